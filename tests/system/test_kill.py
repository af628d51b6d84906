"""kill -9 under load, ten times: what was accepted keeps exactly one end (LED-1, LED-4, LED-6)."""

import contextlib

from gateway.replaying import Replayer, tally
from ledger.money import PICO_PER_UNIT
from tests.server import Server
from tests.server_fixtures import Fleet
from tests.system.crowd import Noted, crowd
from tests.system.watching import (
    assert_each_decision_has_one_receipt,
    assert_sound,
    held,
    one,
    open_money_pico,
    until,
)

KILLED_AFTER_BITS = (1, 2, 5, 20, 60, 150, 300, 500, 800, 1_200)
CLIENTS = 24


def killed_under_load(server: Server, noted: Noted, after_bits: int) -> None:
    """Load the server, and kill it at the moment at which the clients have seen so much."""

    def killing(so_far: Noted) -> None:
        if so_far.bits == after_bits:
            server.process.kill()

    noted.bits, noted.lost, noted.seen = 0, 0, killing
    crowd(server, server.keys["support-desk"], noted, clients=CLIENTS, rounds=1_000, max_tokens=24)
    server.process.wait()


def test_a_server_killed_ten_times_under_load_leaves_each_request_exactly_one_end(fleet: Fleet):
    noted = Noted()
    for after_bits in KILLED_AFTER_BITS:
        with fleet.serving() as server:
            assert server.call("/readyz")[0] == 200  # recovery is over before the first request
            with contextlib.closing(fleet.reader()) as reader:
                assert_each_decision_has_one_receipt(reader)
            killed_under_load(server, noted, after_bits)
            assert server.process.returncode == -9

    with fleet.serving() as server, contextlib.closing(fleet.reader()) as reader:
        assert server.call("/readyz")[0] == 200
        assert_each_decision_has_one_receipt(reader)
        until(
            lambda: held(server) == (0, 0, open_money_pico(reader) / PICO_PER_UNIT),
            "only the unknowns' money is held",
        )
        # The simulator died with its process, and says so: its unknowns are settled by evidence.
        until(lambda: open_money_pico(reader) == 0, "what could be asked about is settled")
        assert_each_decision_has_one_receipt(reader)
        server.stop()
        assert_sound(reader)
        assert_told_truly(reader, noted)
        decisions = one(reader, "SELECT count(*) FROM route_decision")
        compared = tally(Replayer(reader).all(), keep=1)
        assert (compared.identical, compared.total) == (decisions, decisions)


def assert_told_truly(reader, noted: Noted) -> None:
    """All that a client was told is in the ledger; what nobody could tell is unknown."""
    rows = reader.execute(
        "SELECT request_id, status, terminal_error_code, seq, entry_hash FROM receipt "
        "WHERE revision = 0"
    )
    ledger = {row["request_id"]: row for row in rows}
    assert noted.ids - set(ledger) == set()
    assert len(noted.receipts) > CLIENTS
    for request_id, receipt in noted.receipts.items():
        row = ledger[request_id]
        assert (row["seq"], row["entry_hash"].hex()) == (receipt["seq"], receipt["entry_hash"])
        assert row["status"] == receipt["status"] == "completed"
    unknown = {key: row for key, row in ledger.items() if row["status"] == "unknown"}
    assert len(unknown) >= len(KILLED_AFTER_BITS)
    assert {row["terminal_error_code"] for row in unknown.values()} == {"PROCESS_ENDED"}
