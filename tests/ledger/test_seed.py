"""The ledger that benchmarks are made on is a ledger like any other."""

from benchmarks import seed
from ledger.reading import connect_read_only, fetch_one
from ledger.rollups.rebuild import first_difference
from ledger.triggers import trigger_differences
from ledger.verify import verify

RECEIPTS = 60


def test_a_seeded_ledger_is_sound_with_its_costs_rollups_triggers_and_indexes(ledger_path):
    connection = connect_read_only(ledger_path)
    indexes = "SELECT count(*) FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL"
    before = fetch_one(connection, indexes)[0]
    connection.close()
    filled = seed.fill(ledger_path, RECEIPTS)
    connection = connect_read_only(ledger_path)
    report = verify(connection)
    assert (filled.receipts, report.rows, report.faults) == (RECEIPTS, RECEIPTS + 1, ())
    assert trigger_differences(connection) == ()
    assert first_difference(connection) is None
    assert fetch_one(connection, indexes)[0] == before
    connection.close()


def test_the_same_seed_gives_the_same_receipts():
    assert list(seed.receipts(5, seed=3)) == list(seed.receipts(5, seed=3))
    assert list(seed.receipts(5, seed=3)) != list(seed.receipts(5, seed=4))
