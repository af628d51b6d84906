"""Which routes may be sent to: circuit breakers and cooldowns, applied to the book.

The rules are pure (`gateway.policy.breaking`, `retrying`); here is their state, kept by the event
loop. Each change that a breaker makes is a control action with its evidence, and a metric. After a
restart breakers are closed. What an operator drained is the book's own (`Book.set_drained`).
"""

import json
import logging
from collections.abc import Callable, Mapping
from concurrent.futures import Future

from gateway import metrics
from gateway.book import Book
from gateway.policy import breaking
from gateway.policy.breaking import Breaker
from gateway.policy.retrying import AttemptState, Cooldown, longer, verdict_of
from gateway.policy.values import BreakerRule, RoutePolicy
from ledger.records import ControlAction, Record
from ledger.statements import Appended

log = logging.getLogger(__name__)

BREAKER_ACTION = "route_breaker"
BREAKER_RULE = "circuit breaker"
COOLDOWNS_LIMIT = 1_024

Append = Callable[[tuple[Record, ...]], "Future[tuple[Appended, ...]]"]
"""Hands records to the ledger's writer without waiting: traffic never waits for its own news."""


class RouteHealth:
    """Owned by one event loop; what it decides is in `Book.set_health`."""

    def __init__(self, book: Book, policy: RoutePolicy, append: Append) -> None:
        self._book = book
        self._append = append
        self._breakers: dict[str, Breaker] = {}
        self._cooldowns: dict[str, tuple[int, int]] = {}  # until when, since when
        self._rule: BreakerRule | None = None
        self.reconfigure(policy)

    def reconfigure(self, policy: RoutePolicy) -> None:
        """Follow a new policy; a route that stays keeps its breaker, as long as there is a rule."""
        self._rule = policy.attempts.breaker
        known = {} if self._rule is None else self._breakers
        self._breakers = {
            route.route_id: known.get(route.route_id, Breaker()) for route in policy.routes
        }
        self._apply()

    def sent(self, route_id: str, now_us: int) -> None:
        """Note that a request was let through to a route: a half-open one has its probe out."""
        breaker = self._breakers.get(route_id)
        if breaker is None or breaker.state == breaking.CLOSED:
            return
        self._breakers[route_id] = breaking.sent(breaking.at(breaker, now_us))
        self._apply()

    def unsent(self, route_id: str, now_us: int) -> None:
        """Note that what was let through never left: a half-open route may be probed by another."""
        self.ended(route_id, "cancelled", None, None, evidence="", now_us=now_us)

    def ended(
        self,
        route_id: str,
        state: AttemptState,
        reason: str | None,
        retry_after_ms: int | None,
        *,
        evidence: str,
        now_us: int,
        sent_us: int | None = None,
    ) -> None:
        """Take an attempt's end. `evidence` names the attempt, for the record of a change.

        `sent_us` is when its provider had it: a success of one that was sent after a cooldown
        began ends that.
        """
        if retry_after_ms:
            self._cool(route_id, now_us + retry_after_ms * 1_000, now_us)
        elif state == "completed" and self._began_while_cooling(route_id, sent_us):
            del self._cooldowns[route_id]
            self._book.set_cooling(self._cooldowns)
        breaker, rule = self._breakers.get(route_id), self._rule
        if breaker is None or rule is None:
            return
        before = breaking.at(breaker, now_us)
        after = breaking.ended(before, verdict_of(state, reason), rule, now_us)
        if after != breaker:
            self._breakers[route_id] = after
        if after.state != before.state:
            self._tell(route_id, before, after, reason or state, evidence, now_us)
        if (after.state, after.probing) != (before.state, before.probing):
            self._apply()

    def tick(self, now_us: int) -> None:
        """Let the pauses and cooldowns that are over end: their routes may be probed."""
        over = [each for each, (until_us, _) in self._cooldowns.items() if until_us <= now_us]
        for route_id in over:
            del self._cooldowns[route_id]
        self._book.set_cooling(self._cooldowns)
        changed = False
        for route_id, breaker in self._breakers.items():
            if breaker.state == breaking.OPEN:
                after = breaking.at(breaker, now_us)
                if after is not breaker:
                    self._breakers[route_id] = after
                    self._tell(route_id, breaker, after, "its pause is over", "", now_us)
                    changed = True
        if changed:
            self._apply()

    def cooldowns(self, now_us: int) -> tuple[Cooldown, ...]:
        """Return the routes that asked to be left alone for longer than until now."""
        return tuple(
            Cooldown(route_id=route_id, until_us=until_us)
            for route_id, (until_us, _) in sorted(self._cooldowns.items())
            if until_us > now_us
        )

    def breakers(self) -> Mapping[str, Breaker]:
        """Return each route's breaker as it stands."""
        return dict(self._breakers)

    def states(self) -> Mapping[str, str]:
        """Return each route's state for a person: closed, open, half_open or drained."""
        drained = self._book.drained()
        return {
            route_id: "drained" if route_id in drained else breaker.state
            for route_id, breaker in self._breakers.items()
        }

    def _tell(
        self, route_id: str, before: Breaker, after: Breaker, why: str, evidence: str, now_us: int
    ) -> None:
        log.warning("the breaker of route %s is %s: %s", route_id, after.state, why)
        self._file(
            ControlAction(
                action=BREAKER_ACTION,
                subject=route_id,
                actor=BREAKER_RULE,
                acted_at_us=now_us,
                reason=why,
                before_json=_breaker_json(before),
                after_json=_breaker_json(after),
                evidence=evidence,
            )
        )
        metrics.breaker_changed(route_id, after.state)

    def _file(self, action: ControlAction) -> None:
        """Hand it over; a ledger that can't be written says so itself, and health goes on."""
        self._append((action,)).add_done_callback(_noted)

    def _cool(self, route_id: str, until_us: int, now_us: int) -> None:
        if len(self._cooldowns) >= COOLDOWNS_LIMIT and route_id not in self._cooldowns:
            self._cooldowns.pop(min(self._cooldowns, key=self._cooldowns.__getitem__))
        kept = {each: until_us for each, (until_us, _) in self._cooldowns.items()}
        self._cooldowns[route_id] = longer(kept, route_id, until_us), now_us
        self._book.set_cooling(self._cooldowns)

    def _began_while_cooling(self, route_id: str, sent_us: int | None) -> bool:
        cooled = self._cooldowns.get(route_id)
        return cooled is not None and sent_us is not None and sent_us >= cooled[1]

    def _apply(self) -> None:
        """Have the book's decisions see which routes may be sent to."""
        drained = self._book.drained()
        passing = frozenset(self._breakers)
        if self._rule is not None:
            passing = breaking.let_through(self._breakers, drained, self._rule)
        for route_id, breaker in self._breakers.items():
            passes = route_id in passing or (route_id in drained and breaking.lets_through(breaker))
            self._book.set_health(route_id, passes)


def _breaker_json(breaker: Breaker) -> str:
    return json.dumps(
        {
            "state": breaker.state,
            "good": breaker.good,
            "bad": breaker.bad,
            "until_us": breaker.until_us,
        }
    )


def _noted(future: "Future[tuple[Appended, ...]]") -> None:
    fault = future.exception()
    if fault is not None:
        log.error("a route's change of health is not in the ledger: %s", type(fault).__name__)
