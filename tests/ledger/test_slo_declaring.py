"""SLO-0, SLO-5: where a declaration's limits, a bucket and a revision end."""

from fractions import Fraction
from typing import Any

import pytest

from ledger.slo import DAY_US, HOUR_US, MINUTE_US, BurnRule, Selector, SloDefinition
from ledger.slo_rules import (
    NAME_LIMIT_CHARS,
    NAMES_LIMIT,
    PERIOD_LIMIT_US,
    PICO_LIMIT,
    RULES_LIMIT,
    THRESHOLD_LIMIT_US,
    TITLE_LIMIT_CHARS,
    TOKENS_LIMIT,
    problems,
)
from tests.ledger.receipts import receipt


def definition(**changes: Any) -> SloDefinition:
    fields: dict[str, Any] = {
        "slo_id": "slo",
        "revision": 1,
        "title": "An objective",
        "indicator": "ttft",
        "target_ppm": 990_000,
        "threshold_us": 1_000_000,
    }
    return SloDefinition(**fields | changes)


def rule(factor: str, long_us: int = HOUR_US, short_us: int = 5 * MINUTE_US) -> BurnRule:
    return BurnRule(
        name="rule", severity="page", factor=Fraction(factor), long_us=long_us, short_us=short_us
    )


@pytest.mark.parametrize(
    ("allowed", "refused", "code"),
    [
        ({"target_ppm": 1}, {"target_ppm": 0}, "TARGET_IMPOSSIBLE"),
        ({"target_ppm": 999_999}, {"target_ppm": 1_000_000}, "TARGET_IMPOSSIBLE"),
        ({"threshold_us": 1}, {"threshold_us": 0}, "THRESHOLD_MISSING"),
        (
            {"indicator": "cost", "threshold_pico": 1},
            {"indicator": "cost", "threshold_pico": 0},
            "THRESHOLD_MISSING",
        ),
        ({"indicator": "capacity"}, {"indicator": "cost"}, "THRESHOLD_MISSING"),
        (
            {"threshold_us": THRESHOLD_LIMIT_US},
            {"threshold_us": THRESHOLD_LIMIT_US + 1},
            "THRESHOLD_INVALID",
        ),
        ({"threshold_pico": PICO_LIMIT}, {"threshold_pico": PICO_LIMIT + 1}, "THRESHOLD_INVALID"),
        ({"period_us": MINUTE_US}, {"period_us": 0}, "PERIOD_INVALID"),
        (
            {"period_us": PERIOD_LIMIT_US},
            {"period_us": PERIOD_LIMIT_US + MINUTE_US},
            "PERIOD_INVALID",
        ),
        ({"title": "t"}, {"title": ""}, "TITLE_INVALID"),
        (
            {"title": "t" * TITLE_LIMIT_CHARS},
            {"title": "t" * (TITLE_LIMIT_CHARS + 1)},
            "TITLE_INVALID",
        ),
        (
            {"selector": Selector(input_tokens=(0, 1))},
            {"selector": Selector(input_tokens=(-1, 1))},
            "SELECTOR_INVALID",
        ),
        (
            {"selector": Selector(output_tokens=(4, 5))},
            {"selector": Selector(output_tokens=(5, 5))},
            "SELECTOR_INVALID",
        ),
        (
            {"selector": Selector(input_tokens=(0, TOKENS_LIMIT))},
            {"selector": Selector(input_tokens=(0, TOKENS_LIMIT + 1))},
            "SELECTOR_INVALID",
        ),
        (
            {"selector": Selector(arms=("a",) * NAMES_LIMIT)},
            {"selector": Selector(arms=("a",) * (NAMES_LIMIT + 1))},
            "SELECTOR_INVALID",
        ),
        (
            {"selector": Selector(routes=("a" * NAME_LIMIT_CHARS,))},
            {"selector": Selector(routes=("b", "a" * (NAME_LIMIT_CHARS + 1)))},
            "SELECTOR_INVALID",
        ),
        (
            {"rules": (rule("6"),) * RULES_LIMIT},
            {"rules": (rule("6"),) * (RULES_LIMIT + 1)},
            "TOO_MANY_RULES",
        ),
        (
            {"rules": (rule("6", DAY_US, MINUTE_US),), "period_us": DAY_US},
            {"rules": (rule("6", DAY_US + MINUTE_US),), "period_us": DAY_US},
            "WINDOWS_INVALID",
        ),
        (
            {"rules": (rule("6", 2 * MINUTE_US, MINUTE_US),), "period_us": HOUR_US},
            {"rules": (rule("6", MINUTE_US, MINUTE_US),), "period_us": HOUR_US},
            "WINDOWS_INVALID",
        ),
        (
            {"rules": (rule("6"),)},
            {"rules": (rule("6", HOUR_US + 1),)},
            "WINDOWS_INVALID",
        ),
        ({"rules": (rule("6"),)}, {"rules": (rule("6", HOUR_US, 0),)}, "WINDOWS_INVALID"),
    ],
)
def test_what_is_just_inside_a_limit_may_be_declared_and_the_next_one_may_not(
    allowed: dict[str, Any], refused: dict[str, Any], code: str
):
    inside = [one.code for one in problems(definition(**allowed))]
    assert inside in ([], ["RULE_INSIDE_BUDGET"])  # that is of a rule beside its period
    assert code in [one.code for one in problems(definition(**refused))]


@pytest.mark.parametrize("name", ["input_tokens", "output_tokens"])
def test_a_bucket_of_tokens_holds_its_start_and_not_its_end(name: str):
    bucket: dict[str, Any] = {name: (10, 20)}
    selector = Selector(**bucket)
    counts = {"input_tokens": 15, "output_tokens": 15}
    for tokens, covered in ((9, False), (10, True), (19, True), (20, False)):
        assert selector.covers_tokens(receipt(**counts | {name: tokens})) is covered
    both = Selector(input_tokens=(10, 20), output_tokens=(10, 20))
    assert both.covers_tokens(receipt(**counts))
    assert not both.covers_tokens(receipt(**counts | {name: 20}))
    assert Selector().covers_tokens(receipt())
    assert selector.by_tokens
    assert not Selector(tenants=("acme",)).by_tokens


@pytest.mark.parametrize(
    ("dimension", "of_receipt", "value"),
    [
        ("priorities", "priority", "batch"),
        ("tenants", "tenant_id", "t-1"),
        ("logical_models", "logical_model", "m-1"),
        ("identities", "identity_id", "i-1"),
        ("routes", "route_id", "r-1"),
        ("user_paths", "user_path", "recovery"),
        ("arms", "arm", "canary"),
    ],
)
def test_a_dimension_of_a_selector_takes_those_that_it_names_and_no_others(
    dimension: str, of_receipt: str, value: str
):
    named: dict[str, Any] = {dimension: ("other", value)}
    selector = Selector(**named)
    assert selector.covers(receipt(**{of_receipt: value}))
    assert not selector.covers(receipt(**{of_receipt: "none of them"}))


def test_a_selector_may_ask_for_degraded_answers_or_for_those_that_are_not():
    degraded = receipt(degraded_from="route_b")
    taken = [
        [Selector(degraded=asked).covers(one) for one in (degraded, receipt())]
        for asked in (None, True, False)
    ]
    assert taken == [[True, True], [True, False], [False, True]]


def test_a_revision_counts_from_its_start_until_just_before_the_next():
    between = definition(counted_from_us=100, counted_until_us=200)
    assert [between.counts_at(at) for at in (99, 100, 199, 200)] == [False, True, True, False]
    newest = definition(counted_from_us=100)
    assert [newest.counts_at(at) for at in (99, 100, 10**18)] == [False, True, True]
