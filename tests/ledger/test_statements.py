"""Records as INSERTs: each row once, with its place and all its values, in few statements."""

import re

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger import statements
from ledger.chain import Builder, canonical
from ledger.errors import RecordRefused
from ledger.records import TraceEvent
from ledger.statements import ROWS_PER_STATEMENT, inserts
from tests import factories

INSERT = re.compile(r"INSERT INTO (\w+) \((.+)\) VALUES (\(.+\))")
OPTIONAL = ("route_id", "snapshot_revision", "trace_id")
FULL = [factories.any_record(TraceEvent, number) for number in range(12)]


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch):
    """What other tests wrote says nothing of which statements are made."""
    monkeypatch.setattr(statements._Layout, "known", {})


def made_of(*calls):
    """The statements of these calls: of each its table, columns, and rows by their values."""
    made, placed = [], []
    for sql, bound in inserts(Builder(), calls, placed):
        table, names, places = INSERT.fullmatch(sql).groups()
        names = names.split(", ")
        rows = [tuple(bound[at : at + len(names)]) for at in range(0, len(bound), len(names))]
        assert places == ", ".join([f"({', '.join('?' * len(names))})"] * len(rows))
        made.append((table, names, rows))
    return made, placed


def rows_of(made, table="receipt"):
    """The rows that statements write, each as what it says by name, in their order."""
    rows = [dict(zip(names, row, strict=True)) for of, names, rows in made for row in rows]
    assert all(of == table for of, _, _ in made)
    return sorted(rows, key=lambda row: row["seq"])


def said_by(record):
    return {name: getattr(record, name) for name in record.__struct_fields__}


def check(records, made):
    """Every record is a row, with its place and hash, and what it doesn't say is None."""
    builder = Builder()
    rows = rows_of(made, records[0].TABLE)
    assert [row["seq"] for row in rows] == list(range(1, len(records) + 1))
    for row, record in zip(rows, records, strict=True):
        said = said_by(record)
        link = builder.add(canonical(record.TABLE, record.VERSION, row["seq"], [*said.values()]))
        assert (row.pop("v"), row.pop("entry_hash")) == (record.VERSION, link)
        assert dict.fromkeys(said) | row == said | {"seq": row["seq"]}


@pytest.mark.parametrize(
    ("rows", "sizes"),
    [
        (0, []),
        (1, [1]),
        (31, [16, 8, 4, 2, 1]),
        (32, [32]),
        (33, [32, 1]),
        (103, [32, 32, 32, 4, 2, 1]),
        (300, [32] * 9 + [8, 4]),
    ],
)
@pytest.mark.parametrize("a_call", [1, 300])
def test_rows_of_a_table_go_in_by_the_fewest_statements_of_sizes_that_are_powers_of_two(
    rows, sizes, a_call
):
    assert ROWS_PER_STATEMENT == 32
    records = [factories.trace_event(number) for number in range(rows)]
    calls = [records[at : at + a_call] for at in range(0, rows, a_call)]
    made, placed = made_of(*calls)
    assert [len(rows) for _, _, rows in made] == sizes
    assert [len(one) for one in placed] == [len(one) for one in calls]
    assert [one.seq for places in placed for one in places] == list(range(1, rows + 1))
    if records:
        check(records, made)


def test_a_column_stands_in_a_statement_where_any_of_its_rows_has_a_value_there():
    receipts = [factories.receipt(n, rate_key=None, degraded_from=None) for n in range(1, 66)]
    receipts[40] = factories.receipt(41, rate_key="a rate", degraded_from=None)
    made, _ = made_of(receipts)
    assert ["rate_key" in names for _, names, _ in made] == [True, True, True]
    assert not any("degraded_from" in names for _, names, _ in made)
    check(receipts, made)
    alone, _ = made_of(receipts[:2])
    assert not any("rate_key" in names for _, names, _ in alone)


def test_what_was_written_is_forgotten_by_the_rows_that_come_after_it():
    """Of one batch, but made and written some hundred at a time."""
    rich = [[factories.receipt(n, rate_key="a rate")] for n in range(256)]
    poor = [[factories.receipt(n, rate_key=None)] for n in range(256, 300)]
    made, _ = made_of(*rich, *poor)
    assert ["rate_key" in names for _, names, _ in made] == [True] * 8 + [False] * 3
    check([one for (one,) in rich + poor], made)


def test_no_statement_has_more_variables_than_there_may_be(monkeypatch):
    columns = 3 + len(TraceEvent.__struct_fields__)
    for limit, most in ((8 * columns, 8), (8 * columns - 1, 4), (columns, 1)):
        monkeypatch.setattr(statements, "VARIABLES_LIMIT", limit)
        monkeypatch.setattr(statements._Layout, "known", {})
        records = [factories.any_record(TraceEvent, number) for number in range(40)]
        made, _ = made_of(records)
        assert max(len(rows) for _, _, rows in made) == most
        check(records, made)


@pytest.mark.parametrize("few", [1, 3, 8])
@given(batches=st.lists(st.lists(st.sets(st.sampled_from(OPTIONAL)), max_size=12), max_size=3))
def test_whatever_the_columns_that_are_empty_every_value_is_written(few, batches):
    """Also where statements or shapes are known for a few sets of columns alone."""
    with pytest.MonkeyPatch.context() as limits:
        limits.setattr(statements, "SELECTIONS_LIMIT", few)
        limits.setattr(statements, "SHAPES_LIMIT", few)
        limits.setattr(statements._Layout, "known", {})
        for batch in batches:
            events = [
                msgspec.structs.replace(full, **dict.fromkeys(empty))
                for full, empty in zip(FULL, batch, strict=False)
            ]
            made, _ = made_of(events)
            if events:
                check(events, made)
        for layout in statements._Layout.known.values():
            assert len(layout.selections) <= few
            assert len(layout.empty_of) <= few


def test_what_a_column_can_not_hold_is_told_with_what_it_must_be():
    for changed, said in (
        ({"cost_total_pico": "1"}, "receipt.cost_total_pico is a str; it must be int"),
        ({"cost_total_pico": None}, "receipt.cost_total_pico is a NoneType; it must be int"),
        ({"rate_key": 1}, "receipt.rate_key is a int; it must be str or None"),
    ):
        with pytest.raises(RecordRefused, match=f"^{said}$"):
            made_of([factories.receipt(1)], [factories.receipt(2, **changed)])
        made, _ = made_of([factories.receipt(1)])
        check([factories.receipt(1)], made)
