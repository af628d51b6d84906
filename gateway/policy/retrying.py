"""What an attempt's bad end allows: whether it may be tried again, and when (RTY-1, RTY-2). Pure.

Chance is a value that the caller gives (`jitter_permille`), and so is the time.
"""

from collections.abc import Mapping
from typing import Final, Literal

from gateway.policy.breaking import Verdict
from gateway.policy.values import FallbackReason, RetryRule, Value

AttemptKind = Literal["primary", "retry", "fallback", "hedge"]
AttemptState = Literal["running", "completed", "not_run", "failed", "cancelled", "unknown"]
"""`not_run`: refused or never sent, for certain. `failed` and `unknown` may have run."""

PERMILLE: Final = 1000

OVERLOADED: Final = frozenset(
    {
        "PROVIDER_RATE_LIMITED",
        "PROVIDER_OVERLOADED",
        "PROVIDER_TIMED_OUT_READING",  # 408
        "PROVIDER_CONFLICT",  # 409
        "PROVIDER_TOO_EARLY",  # 425
    }
)
"""The provider said that it had no room or no time: another moment may do."""

NOT_REACHED: Final = frozenset({"PROVIDER_UNREACHABLE"})
"""The provider can't have had the request."""

MISCONFIGURED: Final = frozenset(
    {
        "PROVIDER_CREDENTIAL_MISSING",
        "PROVIDER_CREDENTIAL_REFUSED",
        "PROVIDER_CREDIT_EXHAUSTED",
        "PROVIDER_NOT_FOUND",
        "PROVIDER_NOT_IMPLEMENTED",
        "PROVIDER_REDIRECTED",
    }
)
"""The route is of no use to anyone until somebody repairs it: no retry helps, another route may."""

OURS: Final = frozenset(
    {
        "SHUTDOWN",
        "GATEWAY_FAULT",
        "ADAPTER_FAULT",
        "UNUSABLE_REPORT",
        "PROCESS_ENDED",
        "CANCEL_NOT_ACKNOWLEDGED",
    }
)
"""Ends that say nothing against the provider's health."""


class AttemptSeen(Value, frozen=True, kw_only=True):
    """One attempt of a request, as far as what may follow depends on it."""

    ordinal: int
    kind: AttemptKind
    route_id: str
    state: AttemptState
    reason: str | None = None  # the code of a bad end
    retry_after_ms: int | None = None
    refused_parameters: tuple[str, ...] = ()  # optional ones, that the provider refused
    without: tuple[str, ...] = ()  # optional ones, left out of this attempt
    degraded_from: str | None = None
    delivered: bool = False  # a piece of it has gone to the caller


class Cooldown(Value, frozen=True, kw_only=True):
    """Until when a route asked to be left alone."""

    route_id: str
    until_us: int


def fault_of(seen: AttemptSeen) -> FallbackReason | None:
    """Return which fallback edges an attempt's end opens; None: none, as of a client's error."""
    if seen.state == "not_run":
        if seen.reason in OVERLOADED:
            return "overloaded"
        return "unhealthy" if seen.reason in NOT_REACHED | MISCONFIGURED else None
    if seen.state in ("failed", "unknown") and seen.reason not in OURS - {"ADAPTER_FAULT"}:
        return "unhealthy"
    return None


def verdict_of(state: AttemptState, reason: str | None) -> Verdict:
    """Return what an end says of the route's health to its circuit breaker."""
    if state == "completed":
        return "good"
    if state == "not_run":
        return "bad" if reason in NOT_REACHED else "neutral"
    if state in ("failed", "unknown"):
        return "neutral" if reason in OURS else "bad"
    return "neutral"


def may_retry(seen: AttemptSeen) -> str | None:
    """Return why an ended attempt may not be tried again, or None where it may (RTY-1).

    Only what is known not to have run, and not for a fault of the request or of the route's
    configuration; a refusal of optional parameters alone is another matter (`stripped`).
    """
    if seen.state == "completed":
        return "COMPLETED"
    if seen.state == "cancelled":
        return "CANCELLED"
    if seen.state != "not_run":
        return "MAY_HAVE_RUN"
    if seen.reason in OVERLOADED or seen.reason in NOT_REACHED:
        return None
    return "ROUTE_MISCONFIGURED" if seen.reason in MISCONFIGURED else "CLIENT_ERROR"


def stripped(attempts: tuple[AttemptSeen, ...]) -> tuple[str, ...]:
    """Return the optional parameters to leave out of one more try of the last attempt (RTY-2).

    Empty where the provider named none, or where this request left some out before: once is all.
    """
    last = attempts[-1]
    if last.state != "not_run" or any(each.without for each in attempts):
        return ()
    return tuple(sorted(set(last.refused_parameters)))


def within_budget(used: int, requests: int, permille: int, least: int) -> bool:
    """Return whether one more is within a share of the last minute's requests, or the least."""
    return used < max(least, requests * permille // PERMILLE)


def backoff_us(rule: RetryRule, tries: int, jitter_permille: int) -> int:
    """Return the pause before a route's next attempt after `tries` on it: half to all of a step.

    The step doubles with each try, up to `backoff_most_us`. `jitter_permille` is 0..1000.
    """
    step = min(rule.backoff_us << min(max(tries, 1) - 1, 32), rule.backoff_most_us)
    return step // 2 + (step - step // 2) * jitter_permille // PERMILLE


def longer(kept: Mapping[str, int], route_id: str, until_us: int) -> int:
    """Return until when a route is left alone: of two cooldowns the longer wins (RTY-2)."""
    return max(kept.get(route_id, 0), until_us)


def waits_us(
    rule: RetryRule,
    attempts: tuple[AttemptSeen, ...],
    cooldowns: tuple[Cooldown, ...],
    now_us: int,
    jitter_permille: int,
) -> dict[str, int]:
    """Return how long each route has to be waited for; one that isn't named, not at all.

    A route that this request was on before waits for its backoff, one that asked to be left alone
    for that, whichever is longer.
    """
    waits: dict[str, int] = {}
    for seen in attempts:
        tries = sum(each.route_id == seen.route_id for each in attempts)
        waits[seen.route_id] = backoff_us(rule, tries, jitter_permille)
    for each in cooldowns:
        waits[each.route_id] = max(waits.get(each.route_id, 0), each.until_us - now_us, 0)
    return waits
