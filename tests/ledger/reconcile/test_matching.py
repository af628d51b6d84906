"""Each attempt and each line in exactly one class, with the reason (REC-2)."""

import msgspec
import pytest

from ledger.reconcile.matching import compare
from ledger.reconcile.tying import DoesNotTieOut, tied_out
from ledger.reconcile.values import Alias, Binding, Comparison, Coverage, Ours, Plan, Theirs, Tokens
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


def compared(
    attempts: list[Ours], lines: list[Theirs], plan: Plan = PLAN, coverage: Coverage = NOTHING
) -> Comparison:
    return tied_out(compare(plan, attempts, lines, coverage), attempts, lines)


def test_an_attempt_and_the_lines_with_its_request_id_match():
    """REC-2: by provider_request_id where lines have it."""
    lines = both_meters(1, provider_request_id="p-1")
    found = compared([ours(1, provider_request_id="p-1"), ours(2)], [*lines])
    assert classes(found) == [
        ("matched", "", 1, 2, 0),
        ("only_ours", "no_line", 1, 0, -3_600_000_000),
    ]
    assert (found.ours_pico, found.theirs_pico, found.difference_pico) == (
        7_200_000_000, 3_600_000_000, -3_600_000_000,
    )  # fmt: skip


def test_a_hedged_request_is_two_attempts_with_an_id_each():
    """REC-2: the unit is the attempt: the loser's line has an attempt too."""
    attempts = [
        ours(1, attempt_id="req_1.0", provider_request_id="p-1"),
        ours(1, attempt_id="req_1.1", provider_request_id="p-2", outcome="cancelled"),
    ]
    lines = [
        *both_meters(1, provider_request_id="p-1"),
        *both_meters(2, provider_request_id="p-2"),
    ]
    assert classes(compared(attempts, lines)) == [("matched", "", 1, 2, 0)] * 2


def test_what_has_no_common_id_matches_by_period_model_and_sum():
    attempts = [ours(1), ours(2)]
    lines = [
        theirs(1, tokens=2_000, pico=4_000_000_000),
        theirs(2, meter="output", tokens=400, pico=3_200_000_000),
    ]
    found = compared(attempts, lines)
    assert classes(found) == [("matched", "", 2, 2, 0)]
    assert found.units[0].name == "2026-09-01T00:00:00Z/2026-09-02T00:00:00Z m"
    assert found.units[0].ours_tokens == Tokens(uncached=2_000, output=400)


def test_hours_and_the_day_that_holds_them_are_one_group():
    """A usage report by the hour beside a cost report by the day."""
    hour = 3_600_000_000
    lines = [
        theirs(1, tokens=None, meter="total", pico=3_600_000_000),
        theirs(2, role="usage", pico=0, start_us=START_US + hour, end_us=START_US + 2 * hour),
        theirs(3, role="usage", pico=0, meter="output", tokens=200,
               start_us=START_US + hour, end_us=START_US + 2 * hour),
    ]  # fmt: skip
    assert classes(compared([ours(1)], lines)) == [("matched", "", 1, 3, 0)]


@pytest.mark.parametrize(
    ("changes", "detail", "difference"),
    [
        ({"tokens": 1_001}, "tokens", 0),
        ({"pico": 2_000_000_001, "uncertain_pico": 0}, "rounding", 1),
        ({"pico": 2_500_000_000}, "price", 500_000_000),
        ({"pico": 6_400_000_000, "uncertain_pico": 5_000_000_000}, "rounding", 4_400_000_000),
    ],
)
def test_a_difference_is_of_tokens_of_price_or_of_rounding(changes, detail, difference):
    line, output = both_meters(1)
    changed = theirs(2, **changes)
    found = compared([ours(1)], [changed, output])
    assert classes(found) == [("differing", detail, 1, 2, difference)]
    assert line.line_id == changed.line_id


def test_usage_without_a_cost_line_is_a_difference_of_its_own():
    lines = [theirs(1, role="usage", pico=0), theirs(2, role="usage", pico=0, meter="output",
                                                     tokens=200)]  # fmt: skip
    assert classes(compared([ours(1)], lines)) == [
        ("differing", "no_cost_line", 1, 2, -3_600_000_000)
    ]


def test_a_cost_line_that_counts_no_tokens_is_only_theirs():
    found = compared([ours(1)], [*both_meters(1), theirs(9, meter="other", model=None)])
    assert ("only_theirs", "meter", 0, 1, 2_000_000_000) in classes(found)


def test_within_the_lines_tolerance_it_is_matched_and_the_rest_still_counts():
    plan = msgspec.structs.replace(PLAN, line_tolerance_pico=10)
    input_line, _ = both_meters(1)
    output = theirs(3, meter="output", tokens=200, pico=1_600_000_007)
    found = compared([ours(1)], [input_line, output], plan)
    assert classes(found) == [("matched", "", 1, 2, 7)]
    assert found.difference_pico == 7


def test_lines_that_no_attempt_answers_to_have_classes_of_their_own():
    kinds = ("credit", "refund", "adjustment", "tax", "commitment", "fee", "rounding")
    lines = [theirs(number, kind=kind) for number, kind in enumerate(kinds)]
    found = compared([], lines)
    assert [(c, d) for c, d, *_ in classes(found)] == [
        ("credit_or_refund", "credit"),
        ("credit_or_refund", "refund"),
        ("credit_or_refund", "adjustment"),
        ("tax", "tax"),
        ("commitment_or_fee", "commitment"),
        ("commitment_or_fee", "fee"),
        ("differing", "rounding"),
    ]


def test_a_request_that_is_charged_twice_is_a_duplicate():
    first, output = both_meters(1, provider_request_id="p-1")
    again = theirs(9, provider_request_id="p-1")
    found = compared([ours(1, provider_request_id="p-1")], [first, output, again])
    assert classes(found) == [
        ("duplicate_charge", "request", 0, 1, 2_000_000_000),
        ("matched", "", 1, 2, 0),
    ]


def test_a_line_that_a_file_has_twice_is_a_duplicate():
    found = compared([ours(1)], [*both_meters(1), theirs(9, repeats=True)])
    assert ("duplicate_charge", "line", 0, 1, 2_000_000_000) in classes(found)
    assert ("matched", "", 1, 2, 0) in classes(found)


def test_a_line_for_an_open_unknown_resolves_it_with_the_line_as_evidence():
    """REC-2: the resolution is proposed, not made."""
    lines = both_meters(1, provider_request_id="p-1")
    found = compared([unknown(1, provider_request_id="p-1")], [*lines])
    assert classes(found) == [("unknown_resolved", "charged", 1, 2, 3_600_000_000)]
    proposal = found.units[0].proposal
    assert (proposal.request_id, proposal.ran, proposal.cost_pico) == ("req_1", True, 3_600_000_000)
    assert proposal.tokens == Tokens(uncached=1_000, output=200)
    assert proposal.evidence == ("line_2", "line_3")


def test_a_group_that_ties_out_without_its_unknown_shows_that_it_was_not_charged():
    found = compared([ours(1), unknown(2)], [*both_meters(1)])
    assert classes(found) == [
        ("matched", "", 1, 2, 0),
        ("unknown_resolved", "not_charged", 1, 0, 0),
    ]
    assert found.units[1].proposal.ran is False
    assert found.units[1].proposal.cost_pico == 0


def test_a_group_that_ties_out_with_its_unknown_shows_that_it_was_charged():
    known = unknown(2, tokens=Tokens(uncached=500), cost_pico=1_000_000_000)
    lines = [
        theirs(2, tokens=1_500, pico=3_000_000_000),
        theirs(3, meter="output", tokens=200, pico=1_600_000_000),
    ]
    found = compared([ours(1), known], lines)
    assert classes(found) == [("unknown_resolved", "charged", 2, 2, 0)]
    assert found.units[0].proposal.cost_pico == 1_000_000_000


def test_two_unknowns_in_a_group_prove_nothing():
    found = compared([ours(1), unknown(2), unknown(3)], [*both_meters(1)])
    assert classes(found) == [("matched", "", 3, 2, 0)]
    assert found.units[0].proposal is None


def test_simulated_and_rejected_attempts_are_counted_apart():
    """REC-2: they are out of scope, and in no sum."""
    attempts = [
        ours(1),
        ours(2, simulated=True),
        ours(3, outcome="rejected", cost_pico=0),
        ours(4, route_id="another"),
    ]
    found = tied_out(
        compare(PLAN, attempts, both_meters(1), NOTHING, rejected_requests=5), attempts,
        both_meters(1),
    )  # fmt: skip
    assert classes(found) == [("matched", "", 1, 2, 0)]
    apart = found.apart
    assert (apart.simulated, apart.rejected, apart.other_providers, apart.rejected_requests) == (
        1, 1, 1, 5,
    )  # fmt: skip


def test_an_empty_bucket_is_another_fact_than_a_missing_one():
    attempts = [
        ours(1),
        ours(2, started_at_us=START_US + DAY_US + 1),
        ours(3, started_at_us=START_US + 2 * DAY_US + 1),
    ]
    coverage = Coverage(
        empty=((START_US + DAY_US, START_US + 2 * DAY_US),),
        missing=((START_US + 2 * DAY_US, START_US + 3 * DAY_US),),
    )
    found = compared(attempts, [*both_meters(1)], coverage=coverage)
    assert [(c, d) for c, d, *_ in classes(found)] == [
        ("matched", ""),
        ("only_ours", "empty_bucket"),
        ("only_ours", "missing_bucket"),
    ]
    assert found.units[1].name == "2026-09-02 m"


def test_a_display_name_is_an_alias_and_a_tier_separates_groups():
    plan = Plan(
        provider="acme",
        bindings=(
            Binding(route_id="route-a", model="m"),
            Binding(route_id="route-p", model="m", tier="priority"),
        ),
        group_by=("model", "tier"),
        aliases=(Alias(theirs="Model M", model="m"),),
    )
    attempts = [ours(1), ours(2, route_id="route-p", cost_pico=7_200_000_000)]
    lines = [*both_meters(1, model="Model M")]
    assert classes(compared(attempts, lines, plan)) == [
        ("matched", "", 1, 2, 0),
        ("only_ours", "no_line", 1, 0, -7_200_000_000),
    ]


def test_what_is_late_adjusts_and_matches_nothing():
    """REC-3: a line of a locked period is an adjustment of this one."""
    found = compared(
        [ours(1, late=True, cost_pico=-5), ours(2)], [*both_meters(1), theirs(9, late=True, pico=7)]
    )
    late = [unit for unit in found.units if unit.late]
    assert [(u.class_name, u.detail, u.difference_pico) for u in late] == [
        ("only_theirs", "late", 7),
        ("only_ours", "late", 5),
    ]


def test_what_a_locked_period_counted_and_was_then_rejected_is_taken_back():
    found = compared([ours(1, late=True, outcome="rejected", cost_pico=-7)], [])
    assert classes(found) == [("only_ours", "late", 1, 0, 7)]
    assert found.apart.rejected == 0


def test_a_comparison_that_does_not_add_up_is_refused():
    """REC-2: ours + differences = theirs, to the pico unit, or nothing is reported."""
    attempts, lines = [ours(1)], [*both_meters(1)]
    good = compare(PLAN, attempts, lines, NOTHING)
    assert tied_out(good, attempts, lines) is good
    wrong = {
        "theirs": Comparison(units=good.units, rows=good.rows, apart=good.apart,
                             ours_pico=good.ours_pico, theirs_pico=good.theirs_pico + 1),
        "ours": Comparison(units=good.units, rows=good.rows, apart=good.apart,
                           ours_pico=good.ours_pico + 1, theirs_pico=good.theirs_pico),
        "more than one": Comparison(units=good.units, rows=(*good.rows, good.rows[0]),
                                    apart=good.apart, ours_pico=good.ours_pico,
                                    theirs_pico=good.theirs_pico),
        "have a class": Comparison(units=good.units, rows=good.rows[1:], apart=good.apart,
                                   ours_pico=good.ours_pico, theirs_pico=good.theirs_pico),
    }  # fmt: skip
    for message, comparison in wrong.items():
        with pytest.raises(DoesNotTieOut, match=message):
            tied_out(comparison, attempts, lines)
