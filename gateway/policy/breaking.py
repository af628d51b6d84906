"""A route's circuit breaker: a state machine over how its attempts ended, with time given (RTY-2).

Pure. A client's error and a full queue say nothing against a route, and a cancel is ours: all are
neutral. A breaker that is open lets nothing through until its time has passed; then one request may
try, and its end decides.
"""

from collections.abc import Iterable, Mapping
from typing import Literal

from gateway.policy.values import BreakerRule, Value

Verdict = Literal["good", "bad", "neutral"]
State = Literal["closed", "open", "half_open"]

CLOSED: State = "closed"
OPEN: State = "open"
HALF_OPEN: State = "half_open"
LONGEST_OPEN = 8
"""After failed probes a breaker stays open for up to so many times its first opening."""
PERMILLE = 1000


class Breaker(Value, frozen=True, kw_only=True):
    """One route's breaker. `good` and `bad` are of the window that began at `window_at_us`."""

    state: State = CLOSED
    window_at_us: int = 0
    good: int = 0
    bad: int = 0
    until_us: int = 0  # open: when a probe may go
    openings: int = 0  # in a row, without a good end between them
    probing: bool = False  # half-open: its one request is on its way


def at(breaker: Breaker, now_us: int) -> Breaker:
    """Return the breaker as time alone has changed it: one whose pause is over is half-open."""
    if breaker.state == OPEN and now_us >= breaker.until_us:
        return Breaker(state=HALF_OPEN, until_us=breaker.until_us, openings=breaker.openings)
    return breaker


def lets_through(breaker: Breaker) -> bool:
    """Return whether a request may be sent now."""
    return breaker.state == CLOSED or (breaker.state == HALF_OPEN and not breaker.probing)


def sent(breaker: Breaker) -> Breaker:
    """Return the breaker after a request was let through: a half-open one has its probe out."""
    if breaker.state != HALF_OPEN:
        return breaker
    return Breaker(
        state=HALF_OPEN, until_us=breaker.until_us, openings=breaker.openings, probing=True
    )


def ended(breaker: Breaker, verdict: Verdict, rule: BreakerRule, now_us: int) -> Breaker:
    """Return the breaker after an attempt on its route ended.

    Closed, it opens once the window has `failures` bad ends that are `failed_permille` of all.
    Half-open, a good end closes it, a bad one opens it for twice as long as before, at most
    LONGEST_OPEN times `open_us`; a neutral one leaves room for the next probe. What ends while it
    is open began before, and changes nothing.
    """
    if breaker.state == OPEN:
        return breaker
    if breaker.state == HALF_OPEN:
        if verdict == "good":
            return Breaker(window_at_us=now_us)
        if verdict == "bad":
            return _opened(breaker, rule, now_us)
        return Breaker(state=HALF_OPEN, until_us=breaker.until_us, openings=breaker.openings)
    if verdict == "neutral":
        return breaker
    fresh = now_us - breaker.window_at_us >= rule.window_us
    good = (0 if fresh else breaker.good) + (verdict == "good")
    bad = (0 if fresh else breaker.bad) + (verdict == "bad")
    counted = Breaker(window_at_us=now_us if fresh else breaker.window_at_us, good=good, bad=bad)
    if bad >= rule.failures and bad * PERMILLE >= rule.failed_permille * (good + bad):
        return _opened(counted, rule, now_us)
    return counted


def let_through(
    breakers: Mapping[str, Breaker], drained: Iterable[str], rule: BreakerRule
) -> frozenset[str]:
    """Return the routes that may be sent to; a drained one never is.

    Where every route that isn't drained is cut by its breaker, the policy says what happens:
    `refuse` sends nothing, `try_all` sends as if none were, so that one bad cause can't cut the
    whole fleet.
    """
    wanted = frozenset(breakers).difference(drained)
    passing = frozenset(route_id for route_id in wanted if lets_through(breakers[route_id]))
    if not passing and rule.when_all_unhealthy == "try_all":
        return wanted
    return passing


def _opened(breaker: Breaker, rule: BreakerRule, now_us: int) -> Breaker:
    pause_us = rule.open_us * min(2**breaker.openings, LONGEST_OPEN)
    return Breaker(state=OPEN, until_us=now_us + pause_us, openings=breaker.openings + 1)
