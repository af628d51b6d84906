"""Ledgers with traffic in the shape that a test needs, and the control plane's passes over them."""

from collections.abc import Iterable
from contextlib import closing
from typing import Any

from gateway.configuration import policy_in_force
from gateway.operations import anywhere
from gateway.operations.base import Actor, Done, Operation, Refused
from gateway.operations.control import EvaluateSlos
from gateway.policy.values import RoutePolicy
from ledger.records import ControlAction, Receipt, Record, RoutePolicyRecord
from ledger.rows import record_of, select
from tests.gateway.clock import VirtualClock
from tests.ledger.receipts import receipt
from tests.ledger.seeded import fill
from tests.server_fixtures import Fleet

MINUTE_US = 60_000_000
STEP_US = 5 * MINUTE_US
NOW_US = 1_790_000_000_000_000 - 1_790_000_000_000_000 % (6 * 3_600_000_000)
LONGEST_DEADLINE_US = 120_000_000
GRACE_US = 30_000_000
SHED: Any = {
    "status": "rejected",
    "terminal_error_code": "CAPACITY_SHED",
    "tenant_id": "back-office",
}
"""How a receipt of a request that was turned away differs from one that was served."""
OPERATOR = Actor(name="ada", role="admin", via="console")


def closed(end_us: int) -> int:
    """The first moment at which the window that ends at `end_us` is closed."""
    return end_us + LONGEST_DEADLINE_US + GRACE_US


def perform(fleet: Fleet, operation: Operation, at_us: int) -> Done | Refused:
    return anywhere.perform(fleet.ledger, operation, OPERATOR, clock=VirtualClock(at_us))


def evaluate(fleet: Fleet, at_us: int) -> Done | Refused:
    return perform(fleet, EvaluateSlos(), at_us)


def rows(fleet: Fleet, kind: type[Record], where: str = "1") -> list:
    connection = fleet.reader()
    found = connection.execute(f"{select(kind)} WHERE {where} ORDER BY seq").fetchall()
    connection.close()
    return [record_of(kind, row) for row in found]


def actions(fleet: Fleet) -> list[ControlAction]:
    return rows(fleet, ControlAction, "episode IS NOT NULL")


def policies(fleet: Fleet) -> list[str]:
    return [one.revision for one in rows(fleet, RoutePolicyRecord)]


def policy_now(fleet: Fleet) -> RoutePolicy:
    with closing(fleet.reader()) as connection:
        policy = policy_in_force(connection)
    assert policy is not None
    return policy


def experiment_one(start_us: int, times: int = 1, slow: int = 5, **changes) -> list[Receipt]:
    """60 interactive requests of which 5 queued for 4 s, and 40 of batch; so many times over."""
    made = []
    for turn in range(times):
        for number in range(100):
            is_slow = number < slow
            made.append(
                receipt(
                    **{
                        "request_id": f"req_{start_us}_{turn}_{number}",
                        "priority": "interactive" if number < 60 else "batch",
                        "logical_model": "assist",
                        "route_id": "fast-v2",
                        "queue_us": 4_000_000 if is_slow else 20_000,
                        "first_token_us": 4_200_000 if is_slow else 220_000,
                        "accepted_at_us": start_us
                        + (turn * 100 + number) * (STEP_US // (100 * times)),
                        **changes,
                    }
                )
            )
    return made


def pour(fleet: Fleet, receipts: Iterable[Receipt]) -> None:
    fill(fleet.ledger, list(receipts), batch=500)
