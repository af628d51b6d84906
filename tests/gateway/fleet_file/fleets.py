"""Random policies, rate tables and whole fleets, of plausible shape and of any."""

from typing import Any

from hypothesis import strategies as st

from gateway.fleet_file.document import Evidence, Fleet
from gateway.fleet_file.identities import Identity, identity_id
from gateway.policy.values import (
    CanaryArm,
    CanaryPlan,
    FallbackEdge,
    LogicalModel,
    PriorityShare,
    RoutePolicy,
)
from gateway.quota import Quota
from gateway.tokenizers.registry import REVISIONS
from ledger.rates import Rate, RateTable, Tier
from tests.policy_factories import prediction, replaced, route

WORDS = st.text("abcdefghijklmnopqrstuvwxyz0123456789-", min_size=1, max_size=8)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
"""Any text at all: quotes, line ends, dots and brackets."""
NAMES = TEXTS.filter(lambda text: bool(text.strip()))
"""A field of an identity says something: blanks alone are refused."""
READABLE = st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1, max_size=12)
"""What a route, a model or a region may be called."""
COUNTS = st.integers(1, 10**9)
PRICES = st.integers(0, 10**12)
SIMULATED = "sim:llama-3.1-8b-rtx4090"

identities = st.builds(
    Identity,
    **{name: NAMES for name in Identity.__struct_fields__ if name != "tokenizer_revision"},
    tokenizer_revision=st.sampled_from(REVISIONS),
)


def named_ones(names: st.SearchStrategy[str], most: int) -> st.SearchStrategy[list[str]]:
    return st.lists(names, unique=True, min_size=1, max_size=most)


_NAMES_OF_ANY = named_ones(TEXTS, 4)
_CAPABILITIES = st.lists(TEXTS, max_size=2)


@st.composite
def policies(draw: Any) -> RoutePolicy:
    """A policy that needn't make sense: what matters is its shape."""
    names = draw(_NAMES_OF_ANY)
    routes = tuple(
        route(
            name,
            queue_limit=draw(st.integers(-1, 512)),
            address=draw(TEXTS),
            capabilities=tuple(draw(_CAPABILITIES)),
            prediction=prediction(queue_us=draw(COUNTS)),
        )
        for name in names
    )
    return _policy(draw, routes, draw(TEXTS))


# Made once: building a strategy costs more than drawing from it. Routes are drawn as places.
_PLACES = st.lists(st.integers(0, 3), max_size=3)
_ARMS = st.fixed_dictionaries(
    {"arm": TEXTS, "share_permille": st.integers(0, 1000), "route_ids": _PLACES}
)
_PLANS = st.fixed_dictionaries(
    {"release_id": TEXTS, "key": st.just("tenant"), "salt": TEXTS,
     "arms": st.lists(_ARMS, max_size=2)}
)  # fmt: skip
_MODELS = st.fixed_dictionaries(
    {"name": TEXTS, "primary_routes": _PLACES, "max_input_tokens": COUNTS,
     "max_output_tokens": COUNTS, "max_total_tokens": COUNTS, "default_output_tokens": COUNTS,
     "default_deadline_us": COUNTS, "canary": st.none() | _PLANS}
)  # fmt: skip
_EDGES = st.fixed_dictionaries(
    {"from_route": st.integers(0, 3), "to_route": st.integers(0, 3),
     "allowed_reasons": st.just(("overloaded",)), "required_evaluation_suite": TEXTS,
     "quality_floor_milli": st.integers(0, 1000), "preserves_data_boundary": st.booleans()}
)  # fmt: skip
_SHARES = st.builds(PriorityShare, priority=st.just("batch"), queue_permille=COUNTS)
_SHAPES = st.fixed_dictionaries(
    {"models": st.lists(_MODELS, max_size=2), "edges": st.lists(_EDGES, max_size=3),
     "queue_shares": st.lists(_SHARES, max_size=1).map(tuple),
     "retry_after_ms": st.sampled_from([1_000, 5])}
)  # fmt: skip


def _policy(draw: Any, routes: tuple[Any, ...], revision: str) -> RoutePolicy:
    names = [each.route_id for each in routes]

    def at(place: int) -> str:
        return names[place % len(names)]

    def placed(places: list[int]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(map(at, places)))

    def arm(drawn: dict[str, Any]) -> CanaryArm:
        return CanaryArm(**drawn | {"route_ids": placed(drawn["route_ids"])})

    def model(drawn: dict[str, Any]) -> LogicalModel:
        plan = drawn["canary"]
        canary = plan and CanaryPlan(**plan | {"arms": tuple(map(arm, plan["arms"]))})
        primary = placed(drawn["primary_routes"])
        return LogicalModel(**drawn | {"primary_routes": primary, "canary": canary})

    def edge(drawn: dict[str, Any]) -> FallbackEdge:
        ends = {name: at(drawn[name]) for name in ("from_route", "to_route")}
        return FallbackEdge(**drawn | ends)

    shape = draw(_SHAPES)
    models, edges = map(model, shape["models"]), map(edge, shape["edges"])
    shape |= {"models": tuple(models), "edges": tuple(edges)}
    return RoutePolicy(revision=revision, routes=routes, **shape)


_TIERS = st.builds(
    Tier, over_input_tokens=COUNTS, input_micro_per_mtok=PRICES, output_micro_per_mtok=PRICES,
    cached_input_micro_per_mtok=PRICES,
)  # fmt: skip
_RATES = st.builds(
    Rate, key=st.just(""), input_micro_per_mtok=PRICES, output_micro_per_mtok=PRICES,
    cached_input_micro_per_mtok=PRICES, fixed_pico=PRICES,
    tiers=st.lists(_TIERS, max_size=1).map(tuple),
    tier_mode=st.sampled_from(["whole", "marginal"]),
    meters=st.sampled_from([(), (("web_search", 7), ("input_page", 3))]),
)  # fmt: skip
_QUOTAS = st.builds(
    Quota, in_flight_limit=COUNTS, requests_per_minute=st.none() | COUNTS,
    budget_pico=st.none() | st.integers(1, 2**62), allowed_regions=st.just(()),
    time_zone=st.sampled_from(["UTC", "Asia/Kolkata"]),
)  # fmt: skip
_TENANTS = st.dictionaries(WORDS.filter(lambda w: w.strip("-")), _QUOTAS, max_size=3)
_KNOWN = st.lists(identities, min_size=1, max_size=3, unique_by=identity_id)
_ROUTE_NAMES = named_ones(WORDS, 4)
_REVISIONS = WORDS.filter(lambda w: w[0] != "-")
_CALLED = st.permutations(["Ä", "a/b", 'q"'])
_EVIDENCE = st.builds(
    Evidence, evaluation_id=TEXTS, suite=TEXTS, identity_id=st.sampled_from("012"),
    score_milli=st.integers(0, 1000), passed=st.booleans(), measured_at_us=COUNTS,
    evidence=TEXTS,
)  # fmt: skip
_EVALUATIONS = st.lists(_EVIDENCE, max_size=2, unique_by=lambda each: each.evaluation_id)


@st.composite
def fleets(draw: Any) -> Fleet:
    """A fleet that can be published on an empty ledger: sound, of random content."""
    known = draw(_KNOWN)
    ids = [identity_id(each) for each in known]
    routes = []
    for name in draw(_ROUTE_NAMES):
        who = draw(st.sampled_from(known))
        routes.append(
            route(
                name, identity_id=identity_id(who), tokenizer_revision=who.tokenizer_revision,
                address=SIMULATED, queue_limit=draw(COUNTS), region=draw(READABLE),
            )
        )  # fmt: skip
    names = tuple(each.route_id for each in routes)
    model = LogicalModel(
        name=draw(READABLE), primary_routes=names, max_input_tokens=8_192, max_output_tokens=1_024,
        max_total_tokens=8_192, default_output_tokens=64, default_deadline_us=draw(COUNTS),
    )  # fmt: skip
    # Of each key one rate: whoever is budgeted finds a price.
    priced = tuple(replaced(draw(_RATES), key=key) for key in ids)
    evaluated = {
        (each.suite, who): replaced(each, identity_id=who)
        for each in draw(_EVALUATIONS)
        for who in [ids[int(each.identity_id) % len(ids)]]
    }
    return Fleet(
        tenants=draw(_TENANTS),
        identities=dict(zip(draw(_CALLED), known, strict=False)),
        rate_tables=(
            RateTable(
                version=draw(_REVISIONS),
                effective_from_us=draw(st.integers(0, 10**15)),
                currency=draw(TEXTS),
                rates=priced,
            ),
        ),
        evaluations=tuple(evaluated.values()),
        policy=RoutePolicy(
            revision=draw(_REVISIONS), models=(model,),
            routes=tuple(routes),
        ),
    )  # fmt: skip


__all__ = ["fleets", "policies", "replaced"]
