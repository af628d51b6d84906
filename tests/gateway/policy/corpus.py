"""A seeded corpus of whole cases: every field of request, policy and context varied.

`case(seed)` is the same on every machine and Python, since it draws from sha256 and nothing else.
The ranges are such that each filter and each reason code of `decide` comes up.
"""

from collections.abc import Sequence
from hashlib import sha256
from typing import NamedTuple, TypeVar

from gateway.policy.values import (
    AdmissionContext,
    CanaryArm,
    CanaryPlan,
    FallbackReason,
    InferenceRequest,
    Priority,
    PriorityShare,
    Route,
    RoutePolicy,
    RouteState,
    TokenCount,
)
from ledger.rates import Rate, RateTable, Tier
from tests import policy_factories as make

T = TypeVar("T")
CAPABILITIES = ("json_schema", "tools", "vision")
REGIONS = ("eu", "us")
REASONS: tuple[FallbackReason, ...] = ("overloaded", "unhealthy", "deadline_risk")
PRIORITIES: tuple[Priority, ...] = ("interactive", "normal", "batch")
ORDERINGS = (
    ("e2e", "cost", "route_id"),
    ("cost", "e2e", "route_id"),
    ("quality", "e2e"),
    ("route_id",),
)


class Case(NamedTuple):
    request: InferenceRequest
    routes: tuple[Route, ...]
    context: AdmissionContext
    policy: RoutePolicy


class Draw:
    """Integers from sha256 of a seed and a counter."""

    def __init__(self, seed: int) -> None:
        self._seed, self._count = seed, 0

    def upto(self, limit: int) -> int:
        """Return an integer 0 <= n < limit."""
        self._count += 1
        drawn = sha256(f"{self._seed}:{self._count}".encode()).digest()
        return int.from_bytes(drawn[:8], "big") % limit

    def between(self, low: int, high: int) -> int:
        return low + self.upto(high - low + 1)

    def one_in(self, n: int) -> bool:
        return self.upto(n) == 0

    def of(self, choices: Sequence[T]) -> T:
        return choices[self.upto(len(choices))]

    def some(self, choices: Sequence[T], one_in: int) -> tuple[T, ...]:
        return tuple([each for each in choices if self.one_in(one_in)])

    def shuffled(self, items: Sequence[T]) -> tuple[T, ...]:
        rest, out = list(items), []
        while rest:
            out.append(rest.pop(self.upto(len(rest))))
        return tuple(out)


def case(seed: int) -> Case:
    draw = Draw(seed)
    calm = draw.one_in(2)
    ids = [f"route-{n}" for n in range(draw.between(1, 6))]
    routes = tuple([_route(draw, each) for each in ids])
    policy = _policy(draw, ids, routes)
    states = tuple([state(draw, each, policy) for each in ids if not draw.one_in(30)])
    context = AdmissionContext(
        now_us=make.NOW_US,
        tenant=make.tenant(in_flight=0) if calm else _tenant(draw),
        route_states=states,
        rates=_rates(draw, ids),
        evaluations=tuple(
            make.evaluation(
                each,
                suite=draw.of(("suite-1", "suite-1", "suite-2")),
                score_milli=draw.between(700, 1_000),
                passed=not draw.one_in(8),
            )
            for each in ids
            if not draw.one_in(8)
        ),
    )
    request = _request(draw)
    return Case(_calmed(draw, request) if calm else request, routes, context, policy)


def _route(draw: Draw, route_id: str) -> Route:
    total = draw.of((2_048, 8_192, 65_536, 65_536))
    return make.route(
        route_id,
        tokenizer_revision=draw.of(("tok-1", "tok-1", "tok-2", "tok-2", "tok-3")),
        region=draw.of(("eu", "eu", "eu", "us")),
        capabilities=tuple([each for each in CAPABILITIES if not draw.one_in(8)]),
        max_input_tokens=total,
        max_output_tokens=draw.of((256, 1_024, 4_096, 4_096)),
        max_total_tokens=total,
        prediction=make.prediction(
            queue_us=draw.between(0, 400) * 1_000,
            prefill_base_us=draw.between(0, 300) * 1_000,
            prefill_us_per_ktok=draw.of((0, 3_333, 33_001)),
            inter_token_us=draw.between(5, 40) * 1_000,
        ),
        quality_milli=draw.between(780, 1_000),
        safety_policy_revision=draw.of((1, 2, 2, 2)),
        queue_limit=draw.between(6, 40),
        queue_age_limit_us=draw.of((500_000, 30_000_000, 30_000_000)),
        enabled=not draw.one_in(15),
    )


def _policy(draw: Draw, ids: list[str], routes: tuple[Route, ...]) -> RoutePolicy:
    count = draw.between(1, len(ids))
    primaries = draw.shuffled(ids)[:count]
    canary = None
    if draw.one_in(4):
        share = draw.between(0, 1_000)
        canary = CanaryPlan(
            release_id="release-1",
            key=draw.of(("request", "session", "tenant")),
            salt=f"salt-{draw.upto(5)}",
            arms=(
                CanaryArm(arm="canary", share_permille=share, route_ids=primaries[:1]),
                CanaryArm(
                    arm="baseline",
                    share_permille=draw.of((1_000 - share, (1_000 - share) // 2)),
                    route_ids=primaries[1:],
                ),
            ),
        )
    logical = make.model(
        *primaries,
        max_input_tokens=draw.of((4_000, 65_536, 65_536, 65_536)),
        max_output_tokens=draw.of((512, 4_096, 4_096, 4_096)),
        max_total_tokens=draw.of((6_000, 65_536, 65_536, 65_536)),
        canary=canary,
    )
    edges = tuple(
        make.edge(
            here,
            there,
            allowed_reasons=draw.of((REASONS, REASONS, draw.some(REASONS, 2))),
            quality_floor_milli=draw.of((700, 850)),
            preserves_data_boundary=not draw.one_in(4),
            preserves_required_capabilities=not draw.one_in(4),
        )
        for here in ids
        for there in ids
        if here != there and draw.one_in(2)
    )
    return make.policy(
        *routes,
        models=(logical, make.model(ids[0], name="other")),
        edges=edges,
        ordering=draw.of(ORDERINGS),
        probe_allowance=draw.upto(3),
        queue_shares=tuple(
            PriorityShare(
                priority=each,
                queue_permille=draw.of((250, 600, 1_000)),
                kv_permille=draw.of((500, 1_000)),
            )
            for each in draw.some(PRIORITIES, 2)
        ),
        retry_after_ms=draw.between(1, 5_000),
    )


def state(draw: Draw, route_id: str, policy: RoutePolicy) -> RouteState:
    limit_us = policy.snapshot_max_age_us
    age_us = draw.of((0, limit_us // 2, limit_us, limit_us, limit_us + 1))
    return make.state(
        route_id,
        healthy=not draw.one_in(5),
        reserved_since_kv_tokens=draw.of((0, 0, 0, 5_000)),
        accepted_since=draw.between(0, 6),
        probes_in_flight=draw.upto(3),
        snapshot=None
        if draw.one_in(12)
        else make.snapshot(
            route_id,
            revision=draw.between(1, 9),
            observed_at_us=make.NOW_US - age_us,
            waiting_requests=draw.of((0, 0, 0, 3, 12)),
            waiting_input_tokens=draw.of((0, 0, 3_333)),
            reserved_kv_tokens=draw.of((0, 8_000)),
            free_kv_tokens=draw.of((0, 2_000, 24_000, *(80_000,) * 4)),
            oldest_wait_us=draw.of((0, 0, 0, 600_000)),
        ),
    )


def _tenant(draw: Draw):
    def maybe(value: int) -> int | None:
        return value if draw.one_in(8) else None

    return make.tenant(
        in_flight=draw.upto(5) if draw.one_in(6) else 0,
        requests_in_minute=draw.upto(10),
        requests_per_minute=maybe(8),
        tokens_in_minute=draw.between(0, 4_000),
        tokens_per_minute=maybe(draw.of((6_000, 40_000))),
        spent_pico=draw.between(0, 10**10),
        pending_pico=draw.between(0, 10**10),
        budget_pico=maybe(draw.of((10**10, 25 * 10**9, 10**12))),
        max_input_tokens=maybe(3_000),
        max_output_tokens=maybe(600),
        max_total_tokens=maybe(5_000),
        allowed_regions=draw.some(REGIONS, 12),
        retry_after_ms=draw.between(1, 60_000),
        spent_today_pico=draw.between(0, 10**10),
        day_budget_pico=maybe(draw.of((10**10, 25 * 10**9, 10**12))),
        requests_free_ms=draw.between(1, 60_000),
        tokens_free_ms=draw.between(1, 60_000),
        day_ends_ms=draw.between(1, 86_400_000),
        month_ends_ms=draw.between(1, 31 * 86_400_000),
    )


def _rates(draw: Draw, ids: list[str]) -> RateTable:
    rates: list[Rate] = []
    for each in ids:
        if draw.one_in(8):
            continue
        prices = {
            "input_units": draw.between(1, 5),
            "output_units": draw.between(4, 20),
            "fixed_pico": draw.of((0, 12_345)),
            "batch_multiplier_permille": draw.of((1_000, 500, 333)),
        }
        tier = Tier(
            over_input_tokens=1_500,
            input_micro_per_mtok=7_000_001,
            output_micro_per_mtok=9_000_001,
            cached_input_micro_per_mtok=1,
        )
        tiers = (tier,) if draw.one_in(4) else ()
        key = draw.of((each, f"identity-of-{each}"))
        mode = draw.of(("whole", "marginal"))
        rates.append(make.rate(key, **prices, tiers=tiers, tier_mode=mode))
    return make.rates(*rates)


def _request(draw: Draw) -> InferenceRequest:
    tokens = draw.of((0, 1, 900, 1_000, 1_200, 1_600, 1_900, 3_900, 12_000, 100_000))
    if tokens in (0, 12_000, 100_000) and not draw.one_in(4):
        tokens = 1_000
    counts = [TokenCount(tokenizer_revision="tok-1", tokens=tokens)]
    if not draw.one_in(10):
        more = tokens * draw.of((10, 11, 13)) // 10
        counts.append(TokenCount(tokenizer_revision="tok-2", tokens=more))
    if not draw.one_in(6):
        counts.append(TokenCount(tokenizer_revision="tok-3", tokens=tokens + 7))
    return make.request(
        request_id=f"req-{draw.upto(10**6)}",
        logical_model=make.MODEL if not draw.one_in(25) else draw.of(("other", "none")),
        priority=draw.of(PRIORITIES),
        max_output_tokens=draw.of((1, 100, 200, 200, 300, 2_000, 0 if draw.one_in(5) else 100)),
        deadline_us=draw.of((0 if draw.one_in(4) else 9, 3_000_000, *(8_000_000, 60_000_000) * 4)),
        max_cost_pico=draw.of((None, None, None, 4 * 10**9, 10**10, 10**12)),
        max_input_tokens=draw.of((1_650, *(65_536,) * 8)),
        max_total_tokens=draw.of((2_200, *(65_536,) * 8)),
        input_tokens=draw.shuffled(counts),
        required_capabilities=draw.some((*CAPABILITIES, "audio" if draw.one_in(8) else "tools"), 7),
        allowed_regions=draw.some(REGIONS, 12),
        quality_floor_milli=draw.of((0, 0, 0, 0, 0, 0, 0, 800, 900)),
        side_effects=draw.one_in(3),
        session_id=draw.of(("", "session-1", "sitzung-ä")),
    )


def _calmed(draw: Draw, request: InferenceRequest) -> InferenceRequest:
    """A request that little stands against, so that routes, capacity and edges decide."""
    counts = [
        TokenCount(tokenizer_revision=f"tok-{n}", tokens=draw.between(300, 900)) for n in (1, 2, 3)
    ]
    return make.replaced(
        request,
        logical_model=make.MODEL,
        budget=make.budget(
            max_output_tokens=draw.between(20, 250),
            deadline_us=draw.of((3_000_000, 60_000_000, 60_000_000)),
            max_cost_pico=draw.of((None, 10**12)),
        ),
        input_tokens=draw.shuffled(counts),
        required_capabilities=request.required_capabilities if draw.one_in(4) else (),
        allowed_regions=request.allowed_regions if draw.one_in(4) else (),
        quality_floor_milli=0,
    )
