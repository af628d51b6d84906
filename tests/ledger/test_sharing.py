"""Records that are written together share a row, and read back as they were said."""

import itertools
import sqlite3

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ledger.carrying import CARRIED, every
from ledger.errors import RecordRefused
from ledger.reading import connect_read_only
from ledger.records import Attempt, AttemptEvent, Receipt, Reservation, RouteDecision, Settlement
from ledger.rows import record_of
from ledger.sharing import rows_of
from ledger.store import Store
from ledger.verify import verify
from tests import factories
from tests.ledger_fixtures import copy_of

REQUEST = factories.request_id(1)
# What makes a record say something that its carrier doesn't: it then has a row of its own.
APART = {
    "route_decision": {},
    "trace_event": {"event": "x", "observed_at_us": 1, "policy_revision": "p", "route_id": "b"},
    "reservation": {"reservation_id": "r", "route_id": "b", "reserved_at_us": 1, "tenant_id": "b"},
    "attempt": {"attempt_id": "a", "ordinal": 1, "route_id": "b", "started_at_us": 1},
    "attempt_event": {
        "attempt_id": "a", "event": "x", "at_us": 1, "outcome": "failed", "error_code": "E",
        "input_tokens": 0, "cached_input_tokens": 1, "output_tokens": 0, "usage_source": None,
        "cost_pico": 0, "rate_key": None, "usage_convention": "c", "usage_json": "{}",
    },
    "settlement": {
        "reservation_id": "res", "kind": "voided", "settled_at_us": 1, "cost_pico": 1,
        "overrun_pico": 1, "settled_by": "operator",
    },
    "receipt": {"revision": 1, "attempts": 2, "status": "failed", "cost_estimated_pico": 1},
}  # fmt: skip


def records(number=1):
    first, last = factories.gateway_records(number)
    return (*first, *last)


def read_back(path):
    connection = connect_read_only(path)
    try:
        return {
            kind: [
                record_of(kind, row) for row in connection.execute(f"{every(kind)} ORDER BY seq")
            ]
            for kind in CARRIED
        }
    finally:
        connection.close()


def test_a_whole_request_of_one_attempt_is_two_rows():
    first, last = factories.gateway_records()
    rows, where = rows_of(first)
    assert ([kind for kind, _ in rows], list(where)) == ([RouteDecision], [0, 0, 0, 0])
    rows, where = rows_of(last)
    assert ([kind for kind, _ in rows], list(where)) == ([Receipt], [0, 0, 0])


def test_what_no_row_could_carry_has_its_own_among_several_requests():
    said = (factories.control_action(), *records(1), *records(2))
    rows, where = rows_of(said)
    assert (rows[where[0]][0], len(rows)) == (type(said[0]), 5)


@pytest.mark.parametrize(
    ("table", "field"), [(table, field) for table, fields in APART.items() for field in fields]
)
def test_a_record_that_says_anything_else_has_a_row_of_its_own(table, field):
    """Each field that a carrier stands for: one that differs keeps its record apart."""
    given_records = [
        msgspec.structs.replace(one, **{field: APART[table][field]}) if table == one.TABLE else one
        for one in records()
    ]
    rows, _ = rows_of(given_records)
    apart = {"attempt_event", "settlement"} if table == "receipt" else {table}
    assert apart <= {kind.TABLE for kind, _ in rows}


ORDERS = st.permutations(range(14))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25)
@given(
    order=ORDERS,
    cuts=st.lists(st.integers(0, 14), max_size=3),
    apart=st.lists(
        st.sampled_from([(t, f) for t, fields in APART.items() for f in fields]), max_size=2
    ),
)
def test_what_is_read_is_what_was_said_in_whatever_order_and_company(
    ledger_template, order, cuts, apart
):
    """Two requests' records in any order and any commits: every record comes back, once."""
    changed = dict(apart)
    said = [
        msgspec.structs.replace(one, **{changed[one.TABLE]: APART[one.TABLE][changed[one.TABLE]]})
        if one.TABLE in changed and one.request_id == REQUEST
        else one
        for one in (*records(1), *records(2))
    ]
    if any(type(one) is Receipt and one.revision for one in said):
        return  # the rollups aside, a revision needs the one before
    shuffled = [said[place] for place in order]
    ends = sorted({0, *cuts, len(shuffled)})
    with copy_of(ledger_template) as path:
        with Store.open(path) as store:
            for start, end in itertools.pairwise(ends):
                store.append(shuffled[start:end]).result()
        found = read_back(path)
    for kind in CARRIED:
        wanted = [one for one in said if type(one) is kind]
        assert sorted(found[kind], key=repr) == sorted(wanted, key=repr)


def test_who_builds_the_carrying_rows_writes_what_the_records_apart_would_have(ledger_path):
    """A caller may give a decision or a receipt that carries already: its row, in fewer steps."""
    apart = [rows_of(part)[0][0] for part in factories.gateway_records()]
    built = [kind(**dict(zip(kind.__struct_fields__, row, strict=True))) for kind, row in apart]
    assert [rows_of([one])[0] for one in built] == [[row] for row in apart]
    with Store.open(ledger_path) as store:
        for one in built:
            store.append([one]).result()
    said = {type(one): [one] for one in records() if type(one) in CARRIED}
    assert read_back(ledger_path) == said


def test_the_records_of_a_shared_row_have_its_place(ledger_path):
    first, last = factories.gateway_records()
    with Store.open(ledger_path) as store:
        opened = store.append([factories.capacity_snapshot(), *first]).result()
        closed = store.append(last).result()
    assert [place.seq for place in opened] == [1, 2, 2, 2, 2]
    assert len({place.entry_hash for place in closed}) == 1
    assert closed[0].prev_hash == opened[-1].entry_hash
    connection = connect_read_only(ledger_path)
    assert verify(connection).rows == 3
    connection.close()


TWICE = [
    factories.reservation(1, reservation_id=REQUEST),
    factories.attempt(1, attempt_id=f"{REQUEST}.0"),
    factories.settlement(1, reservation_id=REQUEST),
]


@pytest.mark.parametrize("again", TWICE, ids=lambda one: one.TABLE)
def test_led_6_a_key_that_a_row_carries_is_taken_for_a_row_of_its_own(ledger_path, again):
    with Store.open(ledger_path) as store:
        for commit in factories.gateway_records():
            store.append(commit).result()
        head = store.head
        assert isinstance(store.append([again]).exception(), RecordRefused)
        assert store.head == head


@pytest.mark.parametrize("first", TWICE, ids=lambda one: one.TABLE)
def test_led_6_a_key_of_a_row_of_its_own_is_taken_for_one_that_carries_it(ledger_path, first):
    opening, closing = factories.gateway_records()
    with Store.open(ledger_path) as store:
        store.append([first]).result()
        carrying = closing if type(first) is Settlement else opening
        assert isinstance(store.append(carrying).exception(), RecordRefused)


def test_led_6_a_receipt_that_resolves_another_settles_nothing_by_itself(ledger_path):
    """`closes` is a first receipt's: a second one can't end the same reservation again."""
    with Store.open(ledger_path) as store:
        for commit in factories.gateway_records():
            store.append(commit).result()
        second = factories.receipt(1, revision=1, closes=1)
        assert isinstance(store.append([second]).exception(), RecordRefused)


@pytest.mark.parametrize("column", ["provider_request_id", "closes", "cost_total_pico"])
def test_led_7_the_hash_of_a_shared_row_covers_what_it_carries(ledger_path, column):
    with Store.open(ledger_path) as store:
        store.append([factories.rate_table()]).result()
        for commit in factories.gateway_records():
            store.append(commit).result()
    connection = sqlite3.connect(ledger_path, isolation_level=None)
    connection.execute("DROP TRIGGER receipt_no_update")
    connection.execute(f"UPDATE receipt SET {column} = '7'")
    connection.close()
    reader = connect_read_only(ledger_path)
    faults = [(fault.kind, fault.seq) for fault in verify(reader).faults]
    reader.close()
    assert ("altered", 3) in faults


def test_an_attempt_and_its_end_are_found_by_the_request_without_reading_a_table(ledger_path):
    connection = connect_read_only(ledger_path)
    for kind in (Reservation, Attempt, AttemptEvent, Settlement):
        plan = connection.execute(f"EXPLAIN QUERY PLAN {every(kind)} WHERE request_id = ?", ("r",))
        steps = [row[3] for row in plan]
        if kind is Settlement:  # is asked for by its reservation
            continue
        assert not [step for step in steps if step.startswith("SCAN")], steps
    connection.close()
