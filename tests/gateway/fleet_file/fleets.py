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


@st.composite
def policies(draw: Any) -> RoutePolicy:
    """A policy that needn't make sense: what matters is its shape."""
    names = draw(named_ones(TEXTS, 4))
    routes = tuple(
        route(
            name,
            queue_limit=draw(st.integers(-1, 512)),
            address=draw(TEXTS),
            capabilities=tuple(draw(st.lists(TEXTS, max_size=2))),
            prediction=prediction(queue_us=draw(COUNTS)),
        )
        for name in names
    )
    return _policy(draw, routes, draw(TEXTS))


def _policy(draw: Any, routes: tuple[Any, ...], revision: str) -> RoutePolicy:
    names = [each.route_id for each in routes]
    some = st.lists(st.sampled_from(names), unique=True, max_size=3).map(tuple)
    arms = st.builds(CanaryArm, arm=TEXTS, share_permille=st.integers(0, 1000), route_ids=some)
    plan = st.builds(
        CanaryPlan, release_id=TEXTS, key=st.just("tenant"), salt=TEXTS,
        arms=st.lists(arms, max_size=2).map(tuple),
    )  # fmt: skip
    models = st.builds(
        LogicalModel, name=TEXTS, primary_routes=some, max_input_tokens=COUNTS,
        max_output_tokens=COUNTS, max_total_tokens=COUNTS, default_output_tokens=COUNTS,
        default_deadline_us=COUNTS, canary=st.none() | plan,
    )  # fmt: skip
    edges = st.builds(
        FallbackEdge, from_route=st.sampled_from(names), to_route=st.sampled_from(names),
        allowed_reasons=st.just(("overloaded",)), required_evaluation_suite=TEXTS,
        quality_floor_milli=st.integers(0, 1000), preserves_data_boundary=st.booleans(),
    )  # fmt: skip
    shares = st.builds(PriorityShare, priority=st.just("batch"), queue_permille=COUNTS)
    return RoutePolicy(
        revision=revision,
        models=tuple(draw(st.lists(models, max_size=2))),
        routes=routes,
        edges=tuple(draw(st.lists(edges, max_size=3))),
        queue_shares=tuple(draw(st.lists(shares, max_size=1))),
        retry_after_ms=draw(st.sampled_from([1_000, 5])),
    )


def rates(keys: st.SearchStrategy[str]) -> st.SearchStrategy[Rate]:
    tiers = st.builds(
        Tier, over_input_tokens=COUNTS, input_micro_per_mtok=PRICES, output_micro_per_mtok=PRICES,
        cached_input_micro_per_mtok=PRICES,
    )  # fmt: skip
    return st.builds(
        Rate, key=keys, input_micro_per_mtok=PRICES, output_micro_per_mtok=PRICES,
        cached_input_micro_per_mtok=PRICES, fixed_pico=PRICES,
        tiers=st.lists(tiers, max_size=1).map(tuple),
        tier_mode=st.sampled_from(["whole", "marginal"]),
        meters=st.sampled_from([(), (("web_search", 7), ("input_page", 3))]),
    )  # fmt: skip


@st.composite
def fleets(draw: Any) -> Fleet:
    """A fleet that can be published on an empty ledger: sound, of random content."""
    known = draw(st.lists(identities, min_size=1, max_size=3, unique_by=identity_id))
    ids = [identity_id(each) for each in known]
    routes = []
    for name in draw(named_ones(WORDS, 4)):
        who = draw(st.sampled_from(known))
        routes.append(
            route(
                name, identity_id=identity_id(who), tokenizer_revision=who.tokenizer_revision,
                address=SIMULATED, queue_limit=draw(COUNTS), region=draw(TEXTS),
            )
        )  # fmt: skip
    names = tuple(each.route_id for each in routes)
    model = LogicalModel(
        name=draw(TEXTS), primary_routes=names, max_input_tokens=8_192, max_output_tokens=1_024,
        max_total_tokens=8_192, default_output_tokens=64, default_deadline_us=draw(COUNTS),
    )  # fmt: skip
    # Of each key one rate: whoever is budgeted finds a price.
    priced = tuple(draw(rates(st.just(key))) for key in ids)
    quotas = st.builds(
        Quota, in_flight_limit=COUNTS, requests_per_minute=st.none() | COUNTS,
        budget_pico=st.none() | st.integers(1, 2**62), allowed_regions=st.just(()),
        time_zone=st.sampled_from(["UTC", "Asia/Kolkata"]),
    )  # fmt: skip
    evidence = st.builds(
        Evidence, evaluation_id=TEXTS, suite=TEXTS, identity_id=st.sampled_from(ids),
        score_milli=st.integers(0, 1000), passed=st.booleans(), measured_at_us=COUNTS,
        evidence=TEXTS,
    )  # fmt: skip
    return Fleet(
        tenants=draw(st.dictionaries(WORDS.filter(lambda w: w.strip("-")), quotas, max_size=3)),
        identities=dict(zip(draw(st.permutations(["Ä", "a/b", 'q"'])), known, strict=False)),
        rate_tables=(
            RateTable(
                version=draw(WORDS.filter(lambda w: w[0] != "-")),
                effective_from_us=draw(st.integers(0, 10**15)),
                currency=draw(TEXTS),
                rates=priced,
            ),
        ),
        evaluations=tuple(
            draw(
                st.lists(
                    evidence, max_size=2,
                    unique_by=(lambda e: e.evaluation_id, lambda e: (e.suite, e.identity_id)),
                )
            )
        ),
        policy=RoutePolicy(
            revision=draw(WORDS.filter(lambda w: w[0] != "-")), models=(model,),
            routes=tuple(routes),
        ),
    )  # fmt: skip


__all__ = ["fleets", "policies", "rates", "replaced"]
