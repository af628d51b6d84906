"""A ledger with real traffic, invoices of it, and the people who do the books."""

import contextlib
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from gateway.operations import anywhere
from gateway.operations.base import Actor, Done, Operation, Refused
from gateway.operations.reconciliation import Reconcile
from ledger.queries import reconciliation as stored
from ledger.reading import connect_read_only, read_head
from ledger.reconcile.reports import Report, report
from ledger.reconcile.running import Run, again
from ledger.reconcile.values import Binding, Plan
from ledger.records import Record
from ledger.rollups.projection import Rollups
from ledger.store import Store
from tests import factories
from tests.gateway.clock import VirtualClock

ANN = Actor(name="ann", role="operator", via="console")
BOB = Actor(name="bob", role="operator", via="console")
DAY_US = 86_400_000_000
START_US = 1_788_220_800_000_000  # 2026-09-01T00:00:00Z
OCTOBER_US = START_US + 30 * DAY_US
NOW_US = OCTOBER_US + 2 * DAY_US
Results = Sequence[tuple[str, float | str, int | None]]
PLAN = Plan(provider="openai", bindings=(Binding(route_id="route-a", model="gpt-5"),))


def request(
    number: int, at_us: int, *, outcome: str = "completed", kind: str = "openai", **event: Any
) -> list[Record]:
    """A request of 1,000 in and 200 out at route-a that cost 0.0036, settled unless unknown."""
    values = {"outcome": outcome, "at_us": at_us + 2_000_000, **event}
    status = {"accepted_at_us": at_us, "ended_at_us": at_us + 2_000_000, "simulated": 0}
    ended = factories.attempt_event(number, **values)
    hold = {"reservation_id": ended.attempt_id}
    records: list[Record] = [
        factories.reservation(number, reserved_at_us=at_us, bound_at_us=at_us + 60_000_000, **hold),
        factories.attempt(number, started_at_us=at_us, provider_kind=kind),
        ended,
    ]
    if outcome != "unknown":
        records.append(factories.settlement(number, settled_at_us=at_us + 2_000_000, **hold))
    return [*records, factories.receipt(number, status=outcome, **status)]


def append(path: Path, records: Iterable[Record]) -> None:
    with Store.open(path, projections=(Rollups(),)) as store:
        store.append(list(records)).result()


def costs(*days: tuple[int, Results], more: bool = False) -> bytes:
    """A cost report: (day of September from 0, [(line item, dollars, tokens)])."""
    data = [
        {
            "start_time": START_US // 10**6 + day * 86_400,
            "end_time": START_US // 10**6 + (day + 1) * 86_400,
            "results": [
                {
                    "object": "organization.costs.result",
                    "amount": {"value": value, "currency": "usd"},
                    "line_item": item,
                    "project_id": "p",
                    "api_key_id": None,
                    "quantity": tokens,
                    "quantity_unit": None if tokens is None else "tokens",
                }
                for item, value, tokens in results
            ],
        }
        for day, results in days
    ]
    return json.dumps({"object": "page", "data": data, "has_more": more}).encode()


def cur(*rows: tuple[str, str]) -> bytes:
    """A Cost and Usage Report about one thing: (line item id, dollars)."""
    heading = (
        "identity/LineItemId,lineItem/LineItemType,lineItem/UsageStartDate,lineItem/UsageEndDate,"
        "lineItem/UsageType,lineItem/CurrencyCode,lineItem/UnblendedCost"
    )
    cells = "Usage,2026-09-01T00:00:00Z,2026-09-01T01:00:00Z,USE1-Searches,USD"
    return "\n".join([heading, *(f"{one},{cells},{dollars}" for one, dollars in rows)]).encode()


def usual(requests: int) -> Results:
    """The lines of so many requests."""
    return [
        ("gpt-5, input", 0.002 * requests, 1_000 * requests),
        ("gpt-5, output", round(0.0016 * requests, 4), 200 * requests),
    ]


WHOLE_MONTH = [(day, usual(1) if day < 2 else []) for day in range(30)]


def perform(path: Path, operation: Operation, actor: Actor = ANN, at_us: int = NOW_US) -> Done:
    result = anywhere.perform(path, operation, actor, clock=VirtualClock(at_us))
    assert isinstance(result, Done), result
    return result


def refused(path: Path, operation: Operation, actor: Actor = ANN, at_us: int = NOW_US) -> Refused:
    """What was said; that nothing was written is asserted here."""
    before = size(path)
    result = anywhere.perform(path, operation, actor, clock=VirtualClock(at_us))
    assert isinstance(result, Refused), result
    assert size(path) == before
    return result


def size(path: Path) -> int:
    with contextlib.closing(connect_read_only(path)) as connection:
        head = read_head(connection)
    assert head is not None
    return head.size


def reported(path: Path, run_id: str) -> Report:
    with contextlib.closing(connect_read_only(path)) as connection:
        found = report(connection, run_id)
    assert found is not None
    return found


def computed(path: Path, run_id: str) -> Run:
    """A recorded run, made again."""
    with contextlib.closing(connect_read_only(path)) as connection:
        recorded = stored.run(connection, run_id)
        assert recorded is not None
        run = again(connection, recorded.record)
    assert isinstance(run, Run), run
    return run


def movements(found: Report) -> list[tuple[str, str, bool, int, int, int]]:
    return [
        (m.class_name, m.detail, m.late, m.attempts, m.lines, m.difference_pico)
        for m in found.movements
    ]


def compare(period: str = "2026-09", plan: Plan = PLAN, **options: str) -> Reconcile:
    return Reconcile(provider="openai", period=period, matching=plan, **options)


def opened(path: Path) -> Path:
    """Two real requests in September, one a day, and a simulated one."""
    append(path, request(1, START_US + 1))
    append(path, request(2, START_US + DAY_US + 1))
    append(path, request(3, START_US + 2, kind="simulator"))
    return path
