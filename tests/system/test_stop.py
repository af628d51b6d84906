"""A server that is asked to stop under load ends what it took, and returns 0 (LED-1)."""

import contextlib
import threading

from tests.server_fixtures import Fleet
from tests.system.commands import operated
from tests.system.crowd import Noted, crowd
from tests.system.watching import (
    assert_each_decision_has_one_receipt,
    assert_sound,
    one,
    open_money_pico,
)

CLIENTS = 24


def test_a_server_that_is_terminated_under_load_files_every_receipt_and_returns_0(fleet: Fleet):
    noted, enough = Noted(), threading.Event()
    noted.seen = lambda so_far: enough.set() if so_far.bits > 3 * CLIENTS else None
    with operated(fleet, time_scale=20.0) as server:
        load = threading.Thread(
            target=crowd,
            args=(server, server.keys["support-desk"], noted),
            kwargs={"clients": CLIENTS, "rounds": 1_000, "max_tokens": 60},
        )
        load.start()
        assert enough.wait(timeout=60)
        server.process.terminate()
        assert server.process.wait(timeout=60) == 0
        load.join(timeout=60)
        assert not load.is_alive()

    with contextlib.closing(fleet.reader()) as reader:
        assert_each_decision_has_one_receipt(reader)
        assert_sound(reader)
        assert open_money_pico(reader) == 0
        assert one(reader, "SELECT count(*) FROM receipt WHERE status != 'completed'") == 0
        assert noted.ids == set(noted.receipts)  # whoever got an id also got the whole answer
        assert one(reader, "SELECT count(*) FROM receipt") == len(noted.receipts)
    assert "Traceback" not in fleet.ledger.with_suffix(".log").read_text()
