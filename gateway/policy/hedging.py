"""A second attempt beside a silent first one: when, and what is owed for its loser (HDG-1). Pure.

The first valid result wins and the loser is cancelled. Until the loser acknowledges, its slot and
its cost are held: a loser that nobody cancelled fails the gate.
"""

from gateway.policy.retrying import AttemptSeen
from gateway.policy.values import InferenceRequest, RoutePolicy, Value


class Loser(Value, frozen=True, kw_only=True):
    """An attempt that lost to another one of its request."""

    attempt_id: str
    cancel_sent: bool
    acknowledged: bool  # its end is known: cancelled, refused, failed or completed
    slots_held: int
    cost_pico: int  # what it is known to have cost, or what is held for it


def may_hedge(
    request: InferenceRequest, policy: RoutePolicy, attempts: tuple[AttemptSeen, ...]
) -> str | None:
    """Return why a request may not be hedged now, or None where it may.

    Only a request without side effects, whose one attempt so far is running and silent.
    """
    if policy.attempts.hedge is None:
        return "NO_HEDGE_RULE"
    if request.side_effects:
        return "SIDE_EFFECTS"
    if any(each.kind == "hedge" for each in attempts):
        return "HEDGED_BEFORE"
    if any(each.delivered for each in attempts):
        return "ALREADY_DELIVERED"
    if [each.state for each in attempts if each.state == "running"] != ["running"]:
        return "NOT_ONE_RUNNING"
    return None


def gate(losers: tuple[Loser, ...]) -> tuple[str, ...]:
    """Return why a hedged request's losers fail the gate of HDG-1, a line each; empty: they pass.

    What a loser cost is no failure, as long as it was cancelled, said so, and holds no slot.
    """
    problems = []
    for loser in losers:
        if not loser.cancel_sent and not loser.acknowledged:
            problems.append(f"{loser.attempt_id}: it was never cancelled")
        if not loser.acknowledged:
            problems.append(f"{loser.attempt_id}: its cost of {loser.cost_pico} pico is still open")
        if loser.slots_held:
            problems.append(f"{loser.attempt_id}: it still holds {loser.slots_held} slot")
    return tuple(problems)
