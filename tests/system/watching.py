"""Questions to a running server and to the ledger that it leaves."""

import sqlite3
import time
from collections.abc import Callable

from ledger.carrying import source
from ledger.records import Reservation, Settlement
from ledger.verify import verify
from tests.server import Server

POLL_LIMIT_SECONDS = 60.0


def until(true: Callable[[], bool], what: str) -> None:
    """Return once `true` holds. Looked at again and again; only the failure depends on time."""
    ends = time.monotonic() + POLL_LIMIT_SECONDS
    while not true():
        assert time.monotonic() < ends, f"not within {POLL_LIMIT_SECONDS} s: {what}"
        time.sleep(0.02)


def held(server: Server) -> tuple[float, float, float]:
    """(slots, KV tokens, money in units) that the running server holds, as its metrics tell."""
    lines = server.call("/metrics")[2].decode().splitlines()
    values = dict(line.rsplit(" ", 1) for line in lines if line.startswith("weighbridge_"))
    return (
        float(values["weighbridge_in_flight_requests"]),
        float(values["weighbridge_held_kv_tokens"]),
        float(values["weighbridge_held_cost_units"]),
    )


def one(reader: sqlite3.Connection, sql: str, *values):
    return reader.execute(sql, values).fetchone()[0]


def open_money_pico(reader: sqlite3.Connection) -> int:
    """What is reserved and not settled: at rest, the money of the open unknowns (LED-6)."""
    return one(
        reader,
        f"SELECT coalesce(sum(cost_pico), 0) FROM {source(Reservation)} "
        f"WHERE reservation_id NOT IN (SELECT reservation_id FROM {source(Settlement)})",
    )


CURRENT = (
    "NOT EXISTS (SELECT 1 FROM receipt AS later "
    "WHERE later.request_id = r.request_id AND later.revision > r.revision)"
)


def assert_each_decision_has_one_receipt(reader: sqlite3.Connection) -> None:
    """LED-1 over the whole ledger; a request that is unknown is exactly one without settlement."""
    counts = reader.execute(
        "SELECT d.request_id FROM route_decision AS d LEFT JOIN receipt AS r "
        f"ON r.request_id = d.request_id AND {CURRENT} GROUP BY d.request_id "
        "HAVING count(r.seq) != 1"
    ).fetchall()
    assert [tuple(row) for row in counts] == []
    assert one(reader, f"SELECT count(*) FROM receipt AS r WHERE {CURRENT}") == one(
        reader, "SELECT count(*) FROM route_decision"
    )
    unsettled = (
        f"SELECT request_id FROM {source(Reservation)} "
        f"WHERE reservation_id NOT IN (SELECT reservation_id FROM {source(Settlement)})"
    )
    unknown = f"SELECT request_id FROM receipt AS r WHERE status = 'unknown' AND {CURRENT}"
    for missing in (f"{unsettled} EXCEPT {unknown}", f"{unknown} EXCEPT {unsettled}"):
        assert one(reader, f"SELECT count(*) FROM ({missing})") == 0


def assert_sound(reader: sqlite3.Connection) -> None:
    """The chain, every cost and every audit of a ledger that nobody serves (LED-2)."""
    report = verify(reader, at_rest=True)
    assert report.faults == ()
    assert report.unfinished == 0
