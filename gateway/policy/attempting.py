"""What follows an attempt: a retry, a fallback, a hedge or nothing. A pure function (SPEC 6).

The same hard filters as at admission judge every route, with what is left of the deadline and of
the money. `Story` is what happened to the request since it was accepted.
"""

from collections.abc import Iterable
from typing import Final, Literal

import msgspec

from gateway.policy import canary, candidates, fallback, limits
from gateway.policy.caps import Caps
from gateway.policy.estimates import LaterScale, Scale, Weighing
from gateway.policy.fallback import Origin
from gateway.policy.filters import Bounds, sift
from gateway.policy.hedging import may_hedge
from gateway.policy.ordering import first
from gateway.policy.prepared import prepare
from gateway.policy.retrying import (
    AttemptSeen,
    Cooldown,
    fault_of,
    may_retry,
    stripped,
    waits_us,
    within_budget,
)
from gateway.policy.values import (
    AdmissionContext,
    Candidate,
    InferenceRequest,
    LogicalModel,
    Route,
    RoutePolicy,
    Value,
)

Action = Literal["retry", "fallback", "hedge", "none"]
Asked = Literal["ended", "hedge_due"]

UNAVAILABLE: Final = "NO_ROUTE_LEFT"
"""Every route fell at a filter; the candidates say which."""
LAST_ATTEMPT: Final = "LAST_ATTEMPT"
"""A route that was tried before could be tried again, but an edge leads to one that wasn't."""


class Story(Value, frozen=True, kw_only=True):
    """A request since it was accepted, at the moment of a question. Times in µs, money in pico."""

    asked: Asked
    attempts: tuple[AttemptSeen, ...]  # in the order of their ordinals; the last one ended last
    deadline_left_us: int
    committed_pico: int  # what its attempts have cost, and what is held for those without an end
    requests_in_minute: int = 0  # of all tenants
    again_in_minute: int = 0  # retries and fallbacks after an attempt
    hedges_in_minute: int = 0
    jitter_permille: int = 0
    cooldowns: tuple[Cooldown, ...] = ()


class Refusal(Value, frozen=True, kw_only=True):
    """A step that was considered and not taken, and why."""

    action: Action
    reason: str


class Step(Value, frozen=True, kw_only=True):
    """What follows. With action `none` there is no route, and `refusals` say why."""

    request_id: str
    action: Action
    reason: str
    refusals: tuple[Refusal, ...] = ()
    candidates: tuple[Candidate, ...] = ()
    ordinal: int | None = None
    route_id: str | None = None
    identity_id: str | None = None
    tokenizer_revision: str | None = None
    input_tokens: int = 0
    reserve_kv_tokens: int = 0
    e2e_us: int | None = None  # from now on, the wait in it
    cost_pico: int | None = None
    wait_us: int = 0
    without: tuple[str, ...] = ()  # optional parameters to leave out
    degraded_from: str | None = None
    probe: bool = False


def next_step(
    request: InferenceRequest, context: AdmissionContext, policy: RoutePolicy, story: Story
) -> Step:
    """Return what follows; equal values give equal bytes.

    After an end: once without what the provider refused, else a retry on the model's own routes,
    else a fallback along an edge. The last attempt goes to a route that this request wasn't on,
    where one can have it. Beside a silent attempt: a hedge on another of the model's own routes.
    """
    scene = _Scene(request, context, policy, story)
    if scene.model is None:
        return scene.none("MODEL_NOT_FOUND", ())
    if story.asked == "hedge_due":
        return _hedged(scene)
    return _again(scene)


class _Scene:
    """What every step of one question is judged by, looked up once."""

    def __init__(
        self,
        request: InferenceRequest,
        context: AdmissionContext,
        policy: RoutePolicy,
        story: Story,
    ) -> None:
        self.request, self.policy, self.story = request, policy, story
        self.rules = policy.attempts
        self.ready = prepare(policy, policy.routes)
        self.model: LogicalModel | None = self.ready.models.get(request.logical_model)
        plan = self.model.canary if self.model is not None else None
        self.arm = canary.arm_of(plan, request) if plan is not None else None
        self.foreign = canary.foreign_routes(plan, self.arm) if plan is not None else frozenset()
        budget = request.budget
        most_pico = budget.max_cost_pico
        if most_pico is not None:
            most_pico = max(0, most_pico - story.committed_pico)
        self.left = msgspec.structs.replace(
            request,
            budget=msgspec.structs.replace(
                budget, deadline_us=story.deadline_left_us, max_cost_pico=most_pico
            ),
        )
        # The tenant's rates count requests, and this one was counted.
        self.context = msgspec.structs.replace(
            context,
            tenant=msgspec.structs.replace(
                context.tenant, requests_per_minute=None, tokens_per_minute=None
            ),
        )
        self.waits = waits_us(
            self.rules.retry,
            story.attempts,
            story.cooldowns,
            context.now_us,
            story.jitter_permille,
        )

    def primaries(self) -> tuple[Route, ...]:
        if self.model is None:
            return ()
        return self.ready.table(self.model, self.arm).routes

    def spent(self) -> str | None:
        """Return why no further attempt of any kind may start, or None."""
        if self.story.deadline_left_us <= 0:
            return "DEADLINE_PASSED"
        if any(each.delivered for each in self.story.attempts):
            return "ALREADY_DELIVERED"
        used_up = limits.over_tenant(self.context.tenant, 0)
        return None if used_up is None else used_up[0]

    @property
    def attempts_left(self) -> int:
        """How many the limit allows yet. One without what its provider refused costs none."""
        free = any(each.without for each in self.story.attempts)
        return self.rules.limit + free - len(self.story.attempts)

    @property
    def tried(self) -> frozenset[str]:
        """The routes that this request was on."""
        return frozenset(each.route_id for each in self.story.attempts)

    def scale(self) -> LaterScale:
        return LaterScale(self.left, self.context, self.policy, self.waits)

    def bounds(self, scale: Scale) -> Bounds:
        assert self.model is not None  # noqa: S101 - next_step has asked
        return Bounds(scale, Caps(self.left, self.context.tenant, self.model))

    def none(
        self, reason: str, refusals: tuple[Refusal, ...], looked_at: tuple[Candidate, ...] = ()
    ) -> Step:
        return Step(
            request_id=self.request.request_id,
            action="none",
            reason=reason,
            refusals=refusals,
            candidates=looked_at,
        )

    def step(
        self,
        action: Action,
        reason: str,
        winner: Weighing,
        looked_at: tuple[Candidate, ...],
        *,
        refusals: tuple[Refusal, ...] = (),
        without: tuple[str, ...] = (),
        degraded_from: str | None = None,
    ) -> Step:
        route = winner.route
        return Step(
            request_id=self.request.request_id,
            action=action,
            reason=reason,
            refusals=refusals,
            candidates=looked_at,
            ordinal=len(self.story.attempts),
            route_id=route.route_id,
            identity_id=route.identity_id,
            tokenizer_revision=route.tokenizer_revision,
            input_tokens=winner.tokens or 0,
            reserve_kv_tokens=winner.need_kv,
            e2e_us=winner.e2e_us,
            cost_pico=winner.cost_pico,
            wait_us=self.waits.get(route.route_id, 0),
            without=without or self._left_out(route.route_id),
            degraded_from=degraded_from,
            probe=not winner.fresh,
        )

    def _left_out(self, route_id: str) -> tuple[str, ...]:
        """What a route refused before stays left out on it."""
        names = [
            name
            for each in self.story.attempts
            if each.route_id == route_id
            for name in (*each.without, *each.refused_parameters)
        ]
        return tuple(sorted(set(names)))


def _again(scene: _Scene) -> Step:
    """Return what follows when the last attempt has ended badly and no other one runs."""
    last = scene.story.attempts[-1]
    spent = scene.spent()
    if spent is not None:
        return scene.none(spent, ())
    without = stripped(scene.story.attempts)
    if without:
        # A refusal of what is optional costs no attempt and no budget: it happens once.
        own = [route for route in scene.policy.routes if route.route_id == last.route_id]
        scene.waits.pop(last.route_id, None)
        weighed, looked_at = _sifted(scene, own)
        if weighed is not None:
            return scene.step(
                "retry", "OPTIONAL_PARAMETERS_REFUSED", weighed, looked_at,
                without=without, degraded_from=last.degraded_from,
            )  # fmt: skip
    if scene.attempts_left <= 0:
        return scene.none("ATTEMPTS_USED_UP", ())
    rule, story = scene.rules.retry, scene.story
    if not within_budget(
        story.again_in_minute, story.requests_in_minute, rule.budget_permille, rule.least_per_minute
    ):
        return scene.none("RETRY_BUDGET_SPENT", ())
    refused, looked_at = may_retry(last), ()
    if refused is None:
        last_one = scene.attempts_left == 1
        weighed, looked_at = _sifted(scene, scene.primaries(), new_first=last_one)
        if weighed is not None and last_one and weighed.route.route_id in scene.tried:
            return _last_one(scene, weighed, looked_at)
        if weighed is not None:
            return scene.step("retry", "NOT_RUN", weighed, looked_at)
        refused = UNAVAILABLE
    return _fallen_back(scene, (Refusal(action="retry", reason=refused),), looked_at)


def _last_one(scene: _Scene, tried: Weighing, looked_at: tuple[Candidate, ...]) -> Step:
    """Return where the last attempt goes: along an edge, else to a route that was tried before.

    Without it an edge would never be taken while its own route can still be retried (FBK-1).
    """
    instead = _fallen_back(scene, (Refusal(action="retry", reason=LAST_ATTEMPT),), looked_at)
    if instead.action == "fallback":
        return instead
    edges = instead.refusals[1:]  # why not along one
    return scene.step("retry", "NOT_RUN", tried, instead.candidates, refusals=edges)


def _sifted(
    scene: _Scene,
    routes: Iterable[Route],
    *,
    fresh_only: bool = False,
    new_first: bool = False,
) -> tuple[Weighing | None, tuple[Candidate, ...]]:
    """Return the first of the routes that pass every hard filter, and all that were looked at.

    `new_first`: one that this request was on before only where no other passes.
    """
    scale = scene.scale()
    weighings = scale.weigh(tuple(routes))
    left, fell, _ = sift(scene.bounds(scale), weighings)
    if fresh_only:
        stale = [w for w in left if not w.fresh]
        fell |= {w.route.route_id: "snapshot_age" for w in stale}
        left = [w for w in left if w.fresh]
    looked_at = candidates.primaries(weighings, fell)
    if not left:
        return None, looked_at
    if new_first:
        left = [w for w in left if w.route.route_id not in scene.tried] or left
    return first(scene.policy.ordering, left)[0], looked_at


def _fallen_back(
    scene: _Scene, refusals: tuple[Refusal, ...], looked_at: tuple[Candidate, ...]
) -> Step:
    """Return the fallback along an edge from a route that failed this request, or why none."""
    origins = _origins(scene, looked_at)
    if not origins:
        refused = Refusal(action="fallback", reason="CLIENT_ERROR_OR_OURS")
        return scene.none(refusals[-1].reason, (*refusals, refused), looked_at)
    scale = scene.scale()
    found = fallback.search(
        scale,
        scene.bounds(scale),
        origins,
        scene.ready.by_id,
        scene.foreign,
        tried=scene.tried,
        outcome_unknown=any(each.state == "unknown" for each in scene.story.attempts),
    )
    looked_at = (*looked_at, *candidates.fallbacks(found))
    if not found.left:
        # The first edge's broken condition; without an edge that there was none.
        reason = found.refused[0].condition if found.refused else UNAVAILABLE
        if not found.refused and not found.reached:
            reason = "NO_EDGE"
        refused = Refusal(action="fallback", reason=reason)
        return scene.none(refusals[-1].reason, (*refusals, refused), looked_at)
    winner = first(scene.policy.ordering, [each.weighing for each in found.left])[0]
    reached = next(each for each in found.left if each.weighing is winner)
    return scene.step(
        "fallback",
        f"FALLBACK_{reached.reason.upper()}",
        winner,
        looked_at,
        refusals=refusals,
        degraded_from=reached.degraded_from,
    )


def _origins(scene: _Scene, looked_at: tuple[Candidate, ...]) -> list[Origin]:
    """Return the routes from which edges may lead: those that failed this request, newest first.

    One that could only be tried again too late opens the edges of `deadline_risk` as well.
    """
    late = {each.route_id for each in looked_at if each.fell_at == "deadline"}
    origins = []
    for seen in reversed(scene.story.attempts):
        route, fault = scene.ready.by_id.get(seen.route_id), fault_of(seen)
        if route is None or fault is None:
            continue
        origin = Origin(route, fault, seen.degraded_from or seen.route_id)
        if origin not in origins:
            origins.append(origin)
            if seen.route_id in late:
                origins.append(Origin(route, "deadline_risk", origin.degraded_from))
    return origins


def _hedged(scene: _Scene) -> Step:
    """Return the second attempt beside the one that runs, or why there is none."""
    story, hedge = scene.story, scene.rules.hedge
    refused = may_hedge(scene.request, scene.policy, story.attempts) or scene.spent()
    if (
        refused is None
        and hedge is not None
        and not within_budget(
            story.hedges_in_minute,
            story.requests_in_minute,
            hedge.budget_permille,
            hedge.least_per_minute,
        )
    ):
        refused = "HEDGE_BUDGET_SPENT"
    if refused is None and scene.attempts_left <= 0:
        refused = "ATTEMPTS_USED_UP"
    if refused is not None:
        return scene.none(refused, (Refusal(action="hedge", reason=refused),))
    others = [route for route in scene.primaries() if route.route_id not in scene.tried]
    weighed, looked_at = _sifted(scene, others, fresh_only=True)
    if weighed is None:
        reason = UNAVAILABLE if others else "NO_OTHER_ROUTE"
        return scene.none(reason, (Refusal(action="hedge", reason=reason),), looked_at)
    return scene.step("hedge", "FIRST_ONE_SILENT", weighed, looked_at)
