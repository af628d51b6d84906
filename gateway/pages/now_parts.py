"""What Now says of rollouts and routes: those that ask for a look, and no others."""

import sqlite3
from dataclasses import dataclass

from gateway.configuration import policy_in_force
from gateway.control import rolling
from gateway.live import Live
from gateway.pages.routes import lines_now
from gateway.pages.routes_view import Line

_ALWAYS = ("open", "half_open", "drained")
_WITH_A_SERVER = ("stale", "silent")  # without one no snapshot comes, which is no fault


@dataclass(frozen=True, slots=True, kw_only=True)
class UnderWay:
    """A rollout that has not come to its end."""

    rollout_id: str
    state: str
    permille: int
    step: int  # from 1
    steps: int
    failed: tuple[str, ...]  # metrics that failed in the newest windows
    since_us: int


def rollouts_under_way(connection: sqlite3.Connection) -> list[UnderWay]:
    return [
        UnderWay(
            rollout_id=one.plan.rollout_id,
            state=one.progress.state,
            permille=one.permille,
            step=one.progress.step + 1,
            steps=len(one.plan.steps_permille),
            failed=tuple(metric for metric, _ in one.progress.failed),
            since_us=one.progress.started_us,
        )
        for one in rolling.live(connection)
    ]


def routes_not_taking(connection: sqlite3.Connection, now_us: int, seen: Live | None) -> list[Line]:
    """The routes that take no request or probes alone, as the Routes page shows them."""
    policy = policy_in_force(connection)
    if policy is None:
        return []
    wanted = _ALWAYS if seen is None else (*_ALWAYS, *_WITH_A_SERVER)
    found = lines_now(connection, policy, now_us, seen)
    return [line for line in found if line.state in wanted]
