"""The samples against what we would have recorded: exact totals, each with its class (REC-2).

Skipped where the samples are absent.
"""

from typing import Any

import pytest

from ledger.invoices.values import Line
from ledger.money import parse_units, units_text
from ledger.reconcile.matching import compare
from ledger.reconcile.tying import tied_out
from ledger.reconcile.values import Alias, Binding, Comparison, Coverage, Ours, Plan, Theirs
from tests.ledger.invoices.test_totals import expected
from tests.ledger.reconcile.parts import (
    LAST_PAGE,
    START_US,
    attempts_of,
    bindings,
    ours,
    sample,
)

SONNET = "claude-sonnet-4-5-20250929"


def openai_price(line: Line) -> int:
    """Pico units a token; batch is half, priority double."""
    mini = {"input": 150_000, "cached_input": 75_000, "output": 600_000}
    five = {"input": 1_250_000, "cached_input": 125_000, "output": 10_000_000}
    times = {None: 2, "batch": 1, "priority": 4}[line.tier]
    return (five if (line.model or "").startswith("gpt-5") else mini)[line.meter] * times // 2


def anthropic_price(line: Line) -> int:
    """Pico units a token; long context doubles input, batch halves, one region adds a tenth."""
    tags = dict(line.tags)
    long = tags["context_window"] == "200k-1M"
    price = {
        "input": 6_000_000 if long else 3_000_000,
        "cached_input": 300_000,
        "cache_write_5m": 3_750_000,
        "cache_write_1h": 12_000_000,
        "output": 22_500_000 if long else 15_000_000,
    }[line.meter]
    if line.tier == "batch":
        return price // 2
    return price * 11 // 10 if tags["inference_geo"] == "us" else price


def against(provider: str, attempts: list[Ours], lines: list[Theirs], **options: Any) -> Comparison:
    if "bindings" not in options:
        options["bindings"] = bindings(attempts)
    plan = Plan(provider=provider, **options)
    return tied_out(compare(plan, attempts, lines, Coverage()), attempts, lines)


def by_class(found: Comparison) -> dict[str, tuple[str, str, str]]:
    """ "class detail" -> (ours, theirs, difference)."""
    sums: dict[str, list[int]] = {}
    for unit in found.units:
        one = sums.setdefault(f"{unit.class_name} {unit.detail}".rstrip(), [0, 0])
        one[0] += unit.ours_pico
        one[1] += unit.theirs_pico
    return {
        name: (units_text(a), units_text(b), units_text(b - a)) for name, (a, b) in sums.items()
    }


def test_openais_costs_match_but_for_the_web_search():
    """Cost without a usage line: 0.25, and nothing else."""
    report, usage = sample("openai_usage_completions.json")
    costs = sample("openai_costs.json")[1]
    found = against("openai", attempts_of(report.lines, openai_price), [*usage, *costs])
    assert units_text(found.ours_pico) == expected("openai", "cost_from_usage_only_usd")
    assert units_text(found.theirs_pico) == expected("openai", "cost_exact_usd")
    assert by_class(found) == {
        "matched": ("8.564574925", "8.564574925", "0"),
        "only_theirs meter": ("0", "0.25", "0.25"),
    }


def test_openais_tiers_are_groups_of_their_own_and_zero_token_calls_match():
    report, usage = sample("openai_usage_completions.json")
    costs = sample("openai_costs.json")[1]
    attempts = attempts_of(report.lines, openai_price)
    found = against("openai", attempts, [*usage, *costs], group_by=("model", "tier"))
    matched = [unit for unit in found.units if unit.class_name == "matched"]
    assert sum(len(unit.attempts) for unit in matched) == expected("openai", "usage_rows") == 8
    assert all(unit.ours_tokens == unit.theirs_tokens for unit in matched)
    assert not any(unit.difference_pico for unit in matched)


def test_anthropics_cost_report_lacks_the_priority_tier():
    """Usage without a cost line: the priority row of 1.50, which that report never holds."""
    report, usage = sample("anthropic_usage_report_messages.json")
    costs = sample("anthropic_cost_report.json", more=LAST_PAGE, format_name="anthropic_cost")[1]
    attempts = attempts_of(report.lines, anthropic_price)
    found = against("anthropic", attempts, [*usage, *costs], group_by=("model", "tier"))
    assert units_text(found.theirs_pico) == expected("anthropic", "cost_report_usd")
    assert by_class(found) == {
        "differing no_cost_line": ("1.5", "0", "-1.5"),
        "matched": ("16.6980474", "16.6980474", "0"),
        "only_theirs meter": ("0", "0.02", "0.02"),
    }
    searched = parse_units("0.02")
    whole = units_text(found.ours_pico + searched)
    assert whole == expected("anthropic", "ledger_usd_including_priority")


def test_a_console_csv_rounds_each_row_and_that_is_a_difference_of_rounding():
    report, _ = sample("anthropic_usage_report_messages.json")
    costs = sample("anthropic_console_cost.csv")[1]
    standard = [line for line in report.lines if line.tier != "priority"]
    attempts = attempts_of(standard, anthropic_price)
    alias = Alias(theirs="Claude Sonnet 4.5", model=SONNET)
    found = against(
        "anthropic", attempts, costs, group_by=("model", "tier"), aliases=(alias,)
    )  # fmt: skip
    assert units_text(found.theirs_pico) == expected(
        "anthropic", "console_cost_csv_usd_rounded_per_row"
    )
    assert by_class(found) == {
        "differing rounding": ("16.6980474", "16.7", "0.0019526"),
        "only_theirs meter": ("0", "0.02", "0.02"),
    }


@pytest.mark.parametrize(
    ("name", "theirs", "classes"),
    [
        (
            "aws_cur_legacy_bedrock.csv",
            "13.4758843",
            {
                "matched": ("12.83205", "12.83205", "0"),
                "only_theirs no_attempt": ("0", "1.499994", "1.499994"),
                "credit_or_refund credit": ("0", "-1.5661597", "-1.5661597"),
                "tax tax": ("0", "0.71", "0.71"),
            },
        ),
        (
            "gcp_billing_export.jsonl",
            "1.8597",
            {
                "matched": ("1.4798745", "1.4798745", "0"),
                "only_theirs meter": ("0", "0.512", "0.512"),  # hours of storage
                "credit_or_refund credit": ("0", "-0.3", "-0.3"),
                "credit_or_refund adjustment": ("0", "-0.0003", "-0.0003"),
                "tax tax": ("0", "0.17", "0.17"),
                "differing rounding": ("0", "-0.0018745", "-0.0018745"),
            },
        ),
        (
            "focus_1.2_genai.csv",
            "105.538356875",
            {
                "matched": ("6.435855875", "6.435855875", "0"),
                "only_theirs meter": ("0", "0.25", "0.25"),  # web search
                "commitment_or_fee commitment": ("0", "100", "100"),
                "credit_or_refund credit": ("0", "-1.5", "-1.5"),
                "credit_or_refund adjustment": ("0", "-0.0125", "-0.0125"),
                "tax tax": ("0", "0.37", "0.37"),
                "differing rounding": ("0", "-0.004999", "-0.004999"),
            },
        ),
    ],
)
def test_each_line_of_a_bill_has_its_class_and_the_classes_tie_out(name, theirs, classes):
    """What we ran is what the bill's first-party usage says; everything else has its reason."""
    report, lines = sample(name)
    attempts = [
        one
        for one in attempts_of(
            [line for line in report.lines if line.kind == "usage" and line.meter != "other"],
            lambda line: (line.amount_pico or 0) // (line.tokens or 1),
        )
        if not one.route_id.startswith("Claude Sonnet 4.5")  # sold by a marketplace: not ours
    ]
    exact = {one.route_id: one for one in attempts}
    bound = tuple(
        Binding(route_id=route, model=route.rpartition(" ")[0]) for route in dict.fromkeys(exact)
    )
    found = against(report.provider, attempts, lines, bindings=bound)
    assert units_text(found.theirs_pico) == theirs
    assert by_class(found) == classes


def test_a_correction_of_an_earlier_month_is_no_usage_of_this_one():
    _, lines = sample("focus_1.2_genai.csv")
    corrected = [line for line in lines if line.kind == "adjustment"]
    assert [(line.pico, line.tokens) for line in corrected] == [(-12_500_000_000, -10_000)]
    binding = Binding(route_id="route-a", model="sku-gpt-5")
    attempts = [ours(1, started_at_us=START_US)]
    found = against("example-ai", attempts, corrected, bindings=(binding,))
    assert by_class(found)["credit_or_refund adjustment"] == ("0", "-0.0125", "-0.0125")
