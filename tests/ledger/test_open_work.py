"""Open work: kept with every commit, rebuilt from the records, read at start (LED-6)."""

import sqlite3

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ledger.money import join
from ledger.open_work import OPEN_HOLDS, OPEN_REQUESTS, POSTED_WHOLE, QUARTER_US, rebuild
from ledger.queries import holds
from ledger.reading import connect_read_only
from ledger.recovery import unfinished
from ledger.store import Store
from tests import factories
from tests.factories import NOW_US
from tests.ledger.seeded import Plans
from tests.ledger_fixtures import copy_of


def tables(path):
    """What the three tables hold, and what the records say that they must hold."""
    connection = sqlite3.connect(path)
    kept = [
        sorted(connection.execute(f"SELECT * FROM {table}").fetchall())
        for table in ("open_request", "open_hold", "tenant_posted")
    ]
    counted = [
        sorted(connection.execute(sql).fetchall())
        for sql in (OPEN_REQUESTS, OPEN_HOLDS, POSTED_WHOLE)
    ]
    connection.close()
    return _joined(kept), _joined(counted)


def _joined(contents):
    """With the two limbs of an amount as one integer: sums carry over, rows don't."""
    requests, open_holds, posted = contents
    return requests, open_holds, [(*row[:2], join(*row[2:])) for row in posted]


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["begin", "end", "both", "unknown", "refused", "settle"]),
        st.integers(0, 9),
        st.booleans(),
    ),
    max_size=30,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
@given(steps=STEPS)
def test_the_tables_hold_what_the_records_say_after_any_history(ledger_template, steps):
    with copy_of(ledger_template) as path:
        stage = dict.fromkeys(range(10), "new")
        with Store.open(path) as store:
            waiting = []
            for step, number, together in steps:
                made = factories.gateway_records if number % 2 else factories.request_records
                first, last = made(number)
                batch = []
                if step == "refused" and stage[number] == "new":
                    batch, stage[number] = [first[0], factories.rejected_receipt(number)], "over"
                elif step == "both" and stage[number] == "new":
                    batch, stage[number] = [*first, *last], "over"
                elif step == "begin" and stage[number] == "new":
                    batch, stage[number] = list(first), "open"
                elif step == "end" and stage[number] == "open":
                    batch, stage[number] = list(last), "over"
                elif step == "unknown" and stage[number] == "open":
                    batch, stage[number] = [last[-1]], "unknown"
                elif step == "settle" and stage[number] == "unknown":
                    late = msgspec.structs.replace(
                        last[1], settled_at_us=NOW_US + number * QUARTER_US
                    )
                    batch, stage[number] = [late], "over"
                waiting.append(store.append(batch))
                if together:
                    store.flush()
            for future in waiting:
                future.result()
        kept, counted = tables(path)
        assert kept == counted
        assert len(kept[0]) == sum(one == "open" for one in stage.values())
        assert len(kept[1]) == sum(one in ("open", "unknown") for one in stage.values())
        connection = sqlite3.connect(path, isolation_level=None)
        connection.execute("DELETE FROM open_hold")
        connection.execute("INSERT INTO tenant_posted VALUES ('x', 0, 0, 1)")
        rebuild(connection)
        connection.close()
        assert tables(path) == (counted, counted)


def test_a_start_reads_what_is_open_and_scans_no_table_of_records(ledger_path):
    with Store.open(ledger_path) as store:
        for number in range(20):
            store.append(factories.request_records(number)[0]).result()
            if number % 7:
                store.append(factories.request_records(number)[1]).result()
    connection = connect_read_only(ledger_path)
    with Plans(connection) as plans:
        assert len(holds.open_reservations(connection)) == 3
        assert len(unfinished(connection)) == 3
        assert holds.posted_pico_since(connection, "acme", NOW_US // QUARTER_US * QUARTER_US) == (
            17 * 3_600_000_000
        )
    small = ("open_request", "open_hold", "tenant_posted")
    scans = [step for step in plans.scans_of_large_tables() if step.split()[1] not in small]
    connection.close()
    assert scans == []


def test_a_closed_ledger_leaves_no_log_beside_it(ledger_path):
    with Store.open(ledger_path) as store:
        store.append([factories.receipt(number) for number in range(500)]).result()
        reader = connect_read_only(ledger_path)  # a page or a report that is still open
    log = ledger_path.with_name(ledger_path.name + "-wal")
    assert log.stat().st_size == 0
    reader.close()
