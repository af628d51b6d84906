"""REC-2: where a tolerance, a span or an allowance ends, one more is another class."""

import msgspec
import pytest

from ledger.reconcile.judging import EVIDENCE_LIMIT, tokens_said
from ledger.reconcile.matching import compare
from ledger.reconcile.values import Binding, Coverage, Dimension, Plan, Tokens
from tests.ledger.reconcile.parts import (
    DAY_US,
    PLAN,
    START_US,
    both_meters,
    classes,
    ours,
    theirs,
    unknown,
)

NOTHING = Coverage()


@pytest.mark.parametrize("sign", [1, -1])
def test_a_line_tolerance_holds_up_to_itself(sign: int):
    plan = msgspec.structs.replace(PLAN, line_tolerance_pico=10)
    for difference, found in [(10, ("matched", "")), (11, ("differing", "price"))]:
        output = theirs(3, meter="output", tokens=200, pico=1_600_000_000 + sign * difference)
        units = compare(plan, [ours(1)], [theirs(2), output], NOTHING).units
        assert [(unit.class_name, unit.detail) for unit in units] == [found]


@pytest.mark.parametrize("meter", ["uncached", "cached", "output"])
@pytest.mark.parametrize("sign", [1, -1])
def test_a_tolerance_of_tokens_holds_up_to_itself_for_each_kind_of_them(meter: str, sign: int):
    here = Tokens(uncached=100, cached=100, output=100)
    for difference in (5, 6):
        there = msgspec.structs.replace(here, **{meter: 100 + sign * difference})
        assert here.within(there, 5) is (difference == 5)


def test_tokens_within_the_tolerance_are_matched_and_beyond_it_a_difference():
    plan = msgspec.structs.replace(PLAN, tokens_tolerance=5)
    _, output = both_meters(1)
    for tokens, detail in [(1_005, ""), (1_006, "tokens")]:
        found = compare(plan, [ours(1)], [theirs(2, tokens=tokens), output], NOTHING)
        assert [unit.detail for unit in found.units] == [detail]


@pytest.mark.parametrize("sign", [1, -1])
def test_rounding_explains_two_pico_units_an_attempt_and_what_the_lines_round(sign: int):
    """Two attempts and a line that is sure to 3 pico units: 7 is rounding, 8 is a price."""
    output = theirs(3, meter="output", tokens=400, pico=3_200_000_000)
    for difference, detail in [(7, "rounding"), (8, "price")]:
        line = theirs(2, tokens=2_000, pico=4_000_000_000 + sign * difference, uncertain_pico=3)
        found = compare(PLAN, [ours(1), ours(2)], [line, output], NOTHING)
        assert classes(found) == [("differing", detail, 2, 2, sign * difference)]


def test_a_span_holds_its_start_and_not_its_end_and_the_next_one_is_apart():
    first, output = both_meters(1)
    next_day = theirs(8, start_us=START_US + DAY_US, end_us=START_US + 2 * DAY_US, role="usage",
                      pico=0)  # fmt: skip
    found = compare(
        PLAN,
        [
            ours(1, started_at_us=START_US),
            ours(2, started_at_us=START_US + DAY_US),
            ours(3, started_at_us=START_US - 1),
            ours(4, started_at_us=START_US + 2 * DAY_US),
        ],
        [first, output, next_day],
        NOTHING,
    )
    assert [(unit.name, unit.class_name, unit.attempts) for unit in found.units] == [
        ("2026-09-01T00:00:00Z/2026-09-02T00:00:00Z m", "matched", ("req_1.0",)),
        ("2026-09-02T00:00:00Z/2026-09-03T00:00:00Z m", "differing", ("req_2.0",)),
        ("2026-08-31 m", "only_ours", ("req_3.0",)),
        ("2026-09-03 m", "only_ours", ("req_4.0",)),
    ]


@pytest.mark.parametrize("kind", ["empty", "missing"])
def test_a_bucket_without_lines_holds_its_start_and_not_its_end(kind: str):
    coverage = Coverage(**{kind: ((START_US, START_US + DAY_US),)})
    at = [START_US - 1, START_US, START_US + DAY_US - 1, START_US + DAY_US]
    attempts = [ours(number, started_at_us=at_us) for number, at_us in enumerate(at)]
    found = compare(PLAN, attempts, [], coverage)
    assert [(unit.detail, unit.attempts) for unit in found.units] == [
        ("no_line", ("req_0.0",)),
        (f"{kind}_bucket", ("req_1.0", "req_2.0")),
        ("no_line", ("req_3.0",)),
    ]


@pytest.mark.parametrize("dimension", ["project", "api_key", "tier"])
def test_a_plan_groups_by_the_dimension_that_it_names_on_both_sides(dimension: Dimension):
    plan = Plan(
        provider="acme",
        bindings=(
            Binding(route_id="route-a", model="m", **{dimension: "one"}),
            Binding(route_id="route-b", model="m", **{dimension: "two"}),
        ),
        group_by=(dimension,),
    )
    lines = [*both_meters(1, **{dimension: "one"}), *both_meters(2, **{dimension: "two"})]
    found = compare(plan, [ours(1), ours(2, route_id="route-b")], lines, NOTHING)
    assert classes(found) == [("matched", "", 1, 2, 0)] * 2
    assert [unit.attempts for unit in found.units] == [("req_1.0",), ("req_2.0",)]


def test_an_unknown_that_is_settled_is_compared_like_any_other_attempt():
    """REC-2: only an open unknown is resolved by a line."""
    lines = both_meters(1, provider_request_id="p-1")
    for changes in ({"open": False}, {"outcome": "completed"}):
        settled = unknown(1, provider_request_id="p-1", **changes)
        found = compare(PLAN, [settled], lines, NOTHING)
        assert [(unit.class_name, unit.detail) for unit in found.units] == [("differing", "tokens")]
        assert found.units[0].proposal is None


def test_a_group_of_usage_alone_or_without_counts_proves_nothing_of_an_unknown():
    usage = [theirs(2, role="usage", pico=0), theirs(3, role="usage", pico=0, meter="output",
                                                     tokens=200)]  # fmt: skip
    uncounted = [theirs(2, tokens=None, pico=3_600_000_000)]
    for lines in (usage, uncounted):
        found = compare(PLAN, [ours(1), unknown(2)], lines, NOTHING)
        assert [unit.proposal for unit in found.units] == [None]


def test_a_cost_line_beside_usage_lines_proves_that_an_unknown_was_not_charged():
    usage = [theirs(2, role="usage", pico=0), theirs(3, role="usage", pico=0, meter="output",
                                                     tokens=200)]  # fmt: skip
    cost = theirs(4, meter="total", tokens=None, pico=3_600_000_000)
    found = compare(PLAN, [ours(1), unknown(2)], [cost, *usage], NOTHING)
    assert classes(found) == [
        ("matched", "", 1, 3, 0),
        ("unknown_resolved", "not_charged", 1, 0, 0),
    ]


def test_money_or_tokens_alone_that_tie_out_prove_nothing_of_an_unknown():
    _, output = both_meters(1)
    for line in (theirs(2, tokens=1_001), theirs(2, pico=2_000_000_001)):
        found = compare(PLAN, [ours(1), unknown(2)], [line, output], NOTHING)
        assert [unit.proposal for unit in found.units] == [None]


def test_a_proposal_names_at_most_so_many_lines_as_evidence():
    lines = [theirs(number, provider_request_id="p-1", role="usage", pico=0)
             for number in range(100, 101 + EVIDENCE_LIMIT)]  # fmt: skip
    found = compare(PLAN, [unknown(1, provider_request_id="p-1")], lines, NOTHING)
    proposal = found.units[0].proposal
    assert proposal is not None
    assert proposal.evidence == tuple(line.line_id for line in lines[:EVIDENCE_LIMIT])
    assert proposal.tokens == Tokens(uncached=1_000 * len(lines))


def test_what_lines_count_is_said_by_usage_lines_before_cost_lines_and_all_of_them():
    cost, usage = theirs(1, tokens=7), theirs(2, role="usage", tokens=5, meter="cached_input")
    assert tokens_said([cost]) == Tokens(uncached=7)
    assert tokens_said([cost, usage]) == Tokens(cached=5)
    assert tokens_said([cost, theirs(3, tokens=None)]) is None
    assert tokens_said([theirs(4, meter="total", tokens=9)]) is None
    assert tokens_said([]) is None
