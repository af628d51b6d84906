"""kill -9 in the middle of commits: whole transactions only, and every acknowledged one (LED-4)."""

import subprocess
import sys

from ledger.reading import connect_read_only, fetch
from ledger.store import Store
from tests import factories
from tests.ledger.crashing_writer import ROWS_PER_CALL
from tests.ledger.tampering import verified
from tests.ledger_fixtures import ROOT

KILLS = 3


def test_a_killed_writer_leaves_whole_transactions_and_all_that_it_acknowledged(ledger_path):
    acknowledged: set[str] = set()
    for kill in range(KILLS):
        first = kill * 1_000_000
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.ledger.crashing_writer", str(ledger_path), str(first)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(40 * (kill + 1))]
        process.kill()
        lines += process.stdout.readlines()
        process.wait()
        process.stdout.close()
        whole = [line for line in lines if line.endswith("\n")]
        acknowledged |= {factories.request_id(int(line)) for line in whole}

    reader = connect_read_only(ledger_path)
    sql = "SELECT request_id, count(*) FROM trace_event GROUP BY request_id"
    rows = {row[0]: row[1] for row in fetch(reader, sql)}
    reader.close()
    assert set(rows.values()) == {ROWS_PER_CALL}
    assert acknowledged <= set(rows)
    assert len(acknowledged) >= 40 * KILLS
    assert verified(ledger_path).faults == ()
    with Store.open(ledger_path) as store:
        place = store.append([factories.trace_event(1)]).result()[0]
    assert place.seq == len(rows) * ROWS_PER_CALL + 1
