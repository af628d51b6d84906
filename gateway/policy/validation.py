"""Why a route policy can't be published: each problem says where, what, and what to do.

A published policy is immutable, so what could never work, or would work differently from how it
reads, is refused before. `problems` runs every check below; a new one is one more function.
"""

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Final

from gateway.policy.attempt_checks import attempts
from gateway.policy.canary import PERMILLE
from gateway.policy.edge_checks import edges, unproven, unreached
from gateway.policy.prepared import DEFAULT_SHARES
from gateway.policy.problems import Problem, twice
from gateway.policy.values import PRIORITIES, Evaluation, LogicalModel, Route, RoutePolicy

LEARNING_LEAST_US: Final = 1_000_000
"""Learning reads the ledger: not more often than once a second."""


def problems(policy: RoutePolicy) -> tuple[Problem, ...]:
    """Return everything that keeps the policy from being published; empty where nothing does."""
    return tuple(problem for check in CHECKS for problem in check(policy))


def warnings(policy: RoutePolicy, evaluations: tuple[Evaluation, ...] = ()) -> tuple[Problem, ...]:
    """Return what may be published and is worth a look: it does nothing as things stand.

    Routes that no request reaches, and edges for which the ledger has no passing evidence yet.
    """
    return (*unreached(policy), *unproven(policy, evaluations))


def numbers(policy: RoutePolicy) -> Iterator[Problem]:
    """Constants and limits that are out of their range."""
    ranges: list[tuple[str, int, int]] = [
        ("first_decode_us", policy.first_decode_us, 0),
        ("first_byte_network_us", policy.first_byte_network_us, 0),
        ("snapshot_max_age_us", policy.snapshot_max_age_us, 1),
        ("probe_allowance", policy.probe_allowance, 0),
        ("retry_after_ms", policy.retry_after_ms, 1),
    ]
    if policy.learning is not None:
        learning = policy.learning
        ranges += [
            ("learning least_requests", learning.least_requests, 1),
            ("learning window_requests", learning.window_requests, learning.least_requests),
            ("learning quantile_permille", learning.quantile_permille, 1),
            ("learning change_permille", learning.change_permille, 0),
            ("learning every_us", learning.every_us, LEARNING_LEAST_US),
        ]
    for route in policy.routes:
        at, prediction = f"route {route.route_id}", route.prediction
        ranges += [
            (f"{at} max_input_tokens", route.max_input_tokens, 1),
            (f"{at} max_output_tokens", route.max_output_tokens, 1),
            (f"{at} queue_limit", route.queue_limit, 1),
            (f"{at} queue_age_limit_us", route.queue_age_limit_us, 0),
            (f"{at} prediction queue_us", prediction.queue_us, 0),
            (f"{at} prediction prefill_base_us", prediction.prefill_base_us, 0),
            (f"{at} prediction prefill_us_per_ktok", prediction.prefill_us_per_ktok, 0),
            (f"{at} prediction inter_token_us", prediction.inter_token_us, 0),
        ]
    for model in policy.models:
        at = f"model {model.name}"
        ranges += [
            (f"{at} max_input_tokens", model.max_input_tokens, 1),
            (f"{at} default_output_tokens", model.default_output_tokens, 1),
            (f"{at} default_deadline_us", model.default_deadline_us, 1),
        ]
    for name, value, least in ranges:
        if value < least:
            yield Problem(
                code="OUT_OF_RANGE",
                where=name,
                what=f"it is {value}",
                action=f"Set it to {least} or more",
            )
    if policy.learning is not None and policy.learning.quantile_permille > PERMILLE:
        yield Problem(
            code="OUT_OF_RANGE",
            where="learning quantile_permille",
            what=f"it is {policy.learning.quantile_permille}",
            action=f"Set it to {PERMILLE} or less",
        )


def names(policy: RoutePolicy) -> Iterator[Problem]:
    """Names that nobody can read, that are used twice, or that name nothing."""
    for kind, name in (
        *(("route", route.route_id) for route in policy.routes),
        *(("model", model.name) for model in policy.models),
        *(("region", route.region or "-") for route in policy.routes),
    ):
        if not (name.strip() and name.isprintable()):
            yield Problem(
                code="NAME_UNREADABLE",
                where=f"{kind} {name!r}",
                what="it is empty or holds a character that isn't printed",
                action="Rename it",
            )
    known = {route.route_id for route in policy.routes}
    for kind, used in (
        ("route", [route.route_id for route in policy.routes]),
        ("model", [model.name for model in policy.models]),
        ("queue share of", [share.priority for share in policy.queue_shares]),
        ("edge", [f"{edge.from_route} -> {edge.to_route}" for edge in policy.edges]),
    ):
        for name in twice(used):
            yield Problem(
                code="NAMED_TWICE",
                where=f"{kind} {name}",
                what="it is there twice",
                action="Keep one",
            )
    mentions = [
        *((f"model {m.name} primary_routes", r) for m in policy.models for r in m.primary_routes),
        *((f"edge {e.from_route} -> {e.to_route}", e.from_route) for e in policy.edges),
        *((f"edge {e.from_route} -> {e.to_route}", e.to_route) for e in policy.edges),
    ]
    for where, route_id in mentions:
        if route_id not in known:
            yield Problem(
                code="UNKNOWN_ROUTE",
                where=where,
                what=f"the policy has no route {route_id}",
                action="Add the route, or correct the name",
            )


def caps(policy: RoutePolicy) -> Iterator[Problem]:
    """Caps that contradict each other, so that one of them can never be reached."""
    capped: list[tuple[str, Route | LogicalModel]] = [
        *((f"route {route.route_id}", route) for route in policy.routes),
        *((f"model {model.name}", model) for model in policy.models),
    ]
    for kind, each in capped:
        for name in ("max_input_tokens", "max_output_tokens"):
            if getattr(each, name) > each.max_total_tokens:
                yield Problem(
                    code="CAP_OVER_TOTAL",
                    where=f"{kind} {name}",
                    what=f"{getattr(each, name)} is over max_total_tokens {each.max_total_tokens}",
                    action="Lower it, or raise max_total_tokens",
                )
    carried = {route.route_id: route.max_output_tokens for route in policy.routes}
    for model in policy.models:
        most = max([carried.get(each, 0) for each in model.primary_routes], default=0)
        limit = min(model.max_output_tokens, most)
        if model.primary_routes and model.default_output_tokens > limit:
            yield Problem(
                code="DEFAULT_OVER_LIMIT",
                where=f"model {model.name} default_output_tokens",
                what=f"{model.default_output_tokens} is over {limit}, the most that the model and "
                "its primary routes allow, so a request that leaves it out is always refused",
                action=f"Set it to {limit} or less",
            )


def primaries(policy: RoutePolicy) -> Iterator[Problem]:
    """Models that nothing serves."""
    for model in policy.models:
        where = f"model {model.name} primary_routes"
        if not model.primary_routes:
            yield Problem(
                code="NO_PRIMARY_ROUTE",
                where=where,
                what="there is none",
                action="Name at least one route",
            )
        for route_id in twice(model.primary_routes):
            yield Problem(
                code="NAMED_TWICE",
                where=where,
                what=f"{route_id} is there twice",
                action="Name it once",
            )


def ordering(policy: RoutePolicy) -> Iterator[Problem]:
    """Parts of the ordering rule that can't decide anything."""
    for part in twice(policy.ordering):
        yield Problem(
            code="NAMED_TWICE",
            where="ordering",
            what=f"{part} is there twice",
            action="Keep the first of them",
        )
    if "route_id" in policy.ordering[:-1]:
        yield Problem(
            code="ORDERING_NEVER_REACHED",
            where="ordering",
            what="route_id tells any two routes apart, so what follows it never decides",
            action="Put route_id last",
        )


def shares(policy: RoutePolicy) -> Iterator[Problem]:
    """Shares of queue and KV outside 1..1000, or that shed a higher priority first (ADM-8)."""
    for share in policy.queue_shares:
        for name in ("queue_permille", "kv_permille"):
            if not 1 <= getattr(share, name) <= PERMILLE:
                yield Problem(
                    code="OUT_OF_RANGE",
                    where=f"queue share of {share.priority} {name}",
                    what=f"it is {getattr(share, name)}",
                    action=f"Set it between 1 and {PERMILLE}",
                )
    in_force = {share.priority: share for share in (*DEFAULT_SHARES, *policy.queue_shares)}
    for higher, lower in pairwise(PRIORITIES):
        for name in ("queue_permille", "kv_permille"):
            less, more = getattr(in_force[higher], name), getattr(in_force[lower], name)
            if less < more:
                yield Problem(
                    code="SHARES_OUT_OF_ORDER",
                    where=f"queue share of {higher} {name}",
                    what=f"{less} is under the {more} of {lower}, so {higher} would be shed first",
                    action=f"Give {higher} at least the share of {lower}",
                )


def canaries(policy: RoutePolicy) -> Iterator[Problem]:
    """Canary plans that don't split the whole traffic over primary routes (REL-2)."""
    for model in policy.models:
        if model.canary is not None:
            yield from _canary(model)


def _canary(model: LogicalModel) -> Iterator[Problem]:
    plan = model.canary
    if plan is None:
        return
    where = f"model {model.name} canary {plan.release_id}"
    total = sum(arm.share_permille for arm in plan.arms)
    if total != PERMILLE or any(arm.share_permille < 0 for arm in plan.arms):
        yield Problem(
            code="ARM_SHARES_DO_NOT_ADD_UP",
            where=where,
            what=f"the shares of its arms sum to {total} of {PERMILLE}, each to be 0 or more",
            action="Give the baseline's arm the rest",
        )
    for name in twice(arm.arm for arm in plan.arms):
        yield Problem(
            code="NAMED_TWICE", where=where, what=f"arm {name} is there twice", action="Rename one"
        )
    for route_id in twice(route_id for arm in plan.arms for route_id in arm.route_ids):
        yield Problem(
            code="ROUTE_IN_TWO_ARMS",
            where=where,
            what=f"route {route_id} is in more than one arm, so the arms can't be told apart",
            action="Leave it in one",
        )
    for arm in plan.arms:
        if arm.share_permille > 0 and not arm.route_ids:
            yield Problem(
                code="ARM_WITHOUT_ROUTE",
                where=f"{where} arm {arm.arm}",
                what="it has traffic and no route",
                action="Name its routes, or set its share to 0",
            )
        for route_id in arm.route_ids:
            if route_id not in model.primary_routes:
                yield Problem(
                    code="ARM_ROUTE_NOT_PRIMARY",
                    where=f"{where} arm {arm.arm}",
                    what=f"{route_id} is no primary route of the model: an arm restricts, it "
                    "adds nothing",
                    action="Add the route to primary_routes",
                )


CHECKS: Final[tuple[Callable[[RoutePolicy], Iterator[Problem]], ...]] = (
    numbers,
    names,
    caps,
    primaries,
    ordering,
    shares,
    canaries,
    edges,
    attempts,
)
