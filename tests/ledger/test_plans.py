"""Reads over shared rows look them up: none reads a table whole, however long the ledger is."""

import re
from typing import Any

import pytest

from ledger.carrying import every, source
from ledger.queries import charges, what_if
from ledger.reading import connect_read_only
from ledger.records import RECORDS, AttemptEvent, Reservation

WANTED = {"after_us": 0, "after_seq": -1, "end": 2**62, "tenant": None}
READS: dict[str, tuple[str, Any]] = {
    "export": (charges._SQL, WANTED),
    "ends of attempts": (what_if._ENDS.replace(":requests", "?, ?"), ("a", "b")),
    "attempts": (what_if._ATTEMPTS.replace(":requests", "?, ?"), ("a", "b")),
    "late ends": (
        f"SELECT seq FROM {source(AttemptEvent)} "
        "WHERE seq > ? AND seq <= ? AND event = 'ended' ORDER BY seq LIMIT 1000", (1, 5),
    ),
    "a request's": (f"{every(AttemptEvent)} WHERE request_id = ? ORDER BY seq", ("a",)),
    "a hold": (f"{every(Reservation)} WHERE reservation_id = ?", ("a",)),
    "recent holds": (f"{every(Reservation)} WHERE seq < ? ORDER BY seq DESC LIMIT 50", (9,)),
}  # fmt: skip
TABLES = "|".join(record_type.TABLE for record_type in RECORDS)


@pytest.mark.parametrize("read", READS)
def test_no_read_of_shared_rows_goes_through_a_table(ledger_template, read):
    sql, values = READS[read]
    connection = connect_read_only(ledger_template)
    plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {sql}", values)]
    connection.close()
    assert plan
    assert [step for step in plan if re.match(rf"SCAN ({TABLES})\b", step)] == []
