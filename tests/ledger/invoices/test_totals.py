"""The exact totals of the sample reports, by kind of line (REC-1)."""

import json
from typing import Any

import pytest

from ledger.invoices.formats import read
from ledger.invoices.values import Report
from ledger.money import parse_units, units_text
from tests.shared_data import shared_data_path

LAST_PAGE = b'{"data": [], "has_more": false, "next_page": null}'


def report(*names: str, more: bytes = b"") -> Report:
    files = [shared_data_path("exports", name).read_bytes() for name in names]
    found = read(
        [*files, more] if more else files, format_name=None if not more else "anthropic_cost"
    )
    assert isinstance(found, Report), found
    return found


def kinds(found: Report) -> dict[str, str]:
    sums: dict[str, int] = {}
    for line in found.lines:
        sums[line.kind] = sums.get(line.kind, 0) + (line.amount_pico or 0)
    return {kind: units_text(pico) for kind, pico in sums.items()}


def expected(*path: str) -> Any:
    values = json.loads(shared_data_path("exports", "expected_totals.json").read_text())
    for name in path:
        values = values[name]
    return values


@pytest.mark.parametrize(
    ("name", "format_name", "role", "lines", "sums"),
    [
        ("openai_usage_completions.json", "openai_usage", "usage", 20, {"usage": "0"}),
        ("openai_costs.json", "openai_costs", "cost", 19, {"usage": "8.814574925"}),
        ("openai_completions_usage_dashboard.csv", "openai_dashboard", "usage", 20, {"usage": "0"}),
        ("openai_completions_usage_dashboard_empty.csv", "openai_dashboard", "usage", 0, {}),
        ("anthropic_usage_report_messages.json", "anthropic_usage", "usage", 16, {"usage": "0"}),
        ("anthropic_console_usage.csv", "anthropic_console_usage", "usage", 16, {"usage": "0"}),
        ("anthropic_console_cost.csv", "anthropic_console_cost", "cost", 14, {"usage": "16.72"}),
        (
            "aws_cur_legacy_bedrock.csv", "aws_cur", "cost", 11,
            {"usage": "14.332044", "credit": "-1.5661597", "tax": "0.71"},
        ),
        (
            "gcp_billing_export.jsonl", "gcp_billing", "cost", 10,
            {"usage": "1.9918745", "credit": "-0.3", "tax": "0.17", "rounding": "-0.0018745",
             "adjustment": "-0.0003"},
        ),
        (
            "focus_1.2_genai.csv", "focus", "cost", 12,
            {"usage": "6.685855875", "commitment": "100", "credit": "-1.5", "adjustment": "-0.0125",
             "tax": "0.37", "rounding": "-0.004999"},
        ),
        ("focus_1.0_sample_first200.csv.gz", "focus", "cost", 200, {"usage": "2.7253408097"}),
    ],
)  # fmt: skip
def test_each_sample_report_has_its_exact_total_by_kind(name, format_name, role, lines, sums):
    """REC-1: the format is found by content, and no digit is lost."""
    found = report(name)
    assert (found.format, found.role, len(found.lines)) == (format_name, role, lines)
    assert kinds(found) == sums


def test_the_totals_are_those_that_the_samples_declare():
    costs = report("openai_costs.json")
    assert kinds(costs) == {"usage": expected("openai", "cost_exact_usd")}
    searched = sum(line.amount_pico or 0 for line in costs.lines if line.meter == "other")
    whole = parse_units(expected("openai", "cost_exact_usd"))
    assert units_text(whole - searched) == expected("openai", "cost_from_usage_only_usd")
    anthropic = report("anthropic_cost_report.json", more=LAST_PAGE)
    assert kinds(anthropic) == {"usage": expected("anthropic", "cost_report_usd")}
    console = report("anthropic_console_cost.csv")
    assert kinds(console)["usage"] == expected("anthropic", "console_cost_csv_usd_rounded_per_row")
    aws = report("aws_cur_legacy_bedrock.csv")
    assert units_text(sum(line.amount_pico or 0 for line in aws.lines)) == expected(
        "aws", "sum_unblended_usd"
    )
    assert kinds(aws)["usage"] == expected("aws", "usage_only_usd")
    gcp = report("gcp_billing_export.jsonl")
    credits = sum(line.amount_pico or 0 for line in gcp.lines if line.kind == "credit")
    assert units_text(credits) == expected("gcp", "sum_credits_usd")
    gross = sum(line.amount_pico or 0 for line in gcp.lines) - credits
    assert units_text(gross) == expected("gcp", "sum_cost_usd")
    focus = report("focus_1.2_genai.csv")
    for field, name in (("amount", "billed"), ("effective", "effective"), ("list", "list")):
        total = sum(getattr(line, f"{field}_pico") or 0 for line in focus.lines)
        assert units_text(total) == expected("focus", f"sum_{name}")


def test_openais_input_includes_the_cache_and_anthropics_excludes_it():
    """REC-1, CST-6: both give uncached and cached input apart."""
    usage = report("openai_usage_completions.json").lines
    first = {line.meter: line.tokens for line in usage[:3]}
    assert first == {"input": 802_305, "cached_input": 401_152, "output": 88_213}
    messages = report("anthropic_usage_report_messages.json").lines
    assert {line.meter: line.tokens for line in messages[:4]} == {
        "input": 1_500_123, "cached_input": 800_000, "cache_write_5m": 120_000, "output": 45_678,
    }  # fmt: skip


def test_both_exports_of_one_usage_say_the_same():
    def tokens(found: Report) -> dict[tuple[object, ...], int]:
        return {
            (one.start_us, one.model, one.project, one.tier, one.meter): one.tokens or 0
            for one in found.lines
            if one.meter != "other" and one.tokens
        }

    api = report("openai_usage_completions.json")
    assert tokens(api) == tokens(report("openai_completions_usage_dashboard.csv"))


def test_calls_that_failed_are_lines_without_a_token():
    usage = report("openai_usage_completions.json").lines
    failed = [line for line in usage if line.description == "5 model requests"]
    assert [(line.meter, line.tokens) for line in failed] == [("input", 0), ("output", 0)]


def test_an_empty_bucket_is_said_to_be_empty():
    assert [b.empty for b in report("openai_usage_completions.json").buckets] == [
        False,
        True,
        False,
    ]
    assert [b.empty for b in report("openai_completions_usage_dashboard_empty.csv").buckets] == [
        True, True,
    ]  # fmt: skip


def test_units_by_thousand_and_by_million_give_tokens():
    """AWS's own meters count by 1,000, Marketplace models by a million."""
    lines = report("aws_cur_legacy_bedrock.csv").lines
    assert [(line.model, line.tier, line.meter, line.tokens) for line in lines[:8]] == [
        ("Claude4Sonnet", None, "input", 1_203_457),
        ("Claude4Sonnet", None, "output", 88_213),
        ("Claude4Sonnet", None, "cached_input", 401_152),
        ("Claude4Sonnet", None, "cache_write", 12_000),
        ("Claude4Sonnet", "batch", "input", 5_000_001),
        ("Nova2.0Lite", None, "input", 777_123),
        ("Claude Sonnet 4.5", None, "input", 333_333),
        ("Claude Sonnet 4.5", None, "output", 33_333),
    ]
    assert lines[5].tags == ()  # an empty tag is no tag
    assert lines[4].tags == (("team", "beta"),)
    assert {line.invoice_number for line in lines} == {None}  # the month is not closed


def test_google_counts_tokens_as_requests_and_exports_late():
    lines = report("gcp_billing_export.jsonl").lines
    assert [(line.meter, line.tokens, line.quantity) for line in lines[:7]] == [
        ("input", 1_065_040, None),
        ("output", 120_000, None),
        ("other", None, None),  # the credit of the row before
        ("output", 88_000, None),  # thinking
        ("cached_input", 512_000, None),
        ("other", None, "0.512 h"),  # storage
        ("input", 250_001, None),
    ]
    assert all((line.exported_at_us or 0) > line.end_us for line in lines)


def test_a_display_name_an_hour_and_a_sign_that_is_no_ascii_are_read():
    lines = report("anthropic_console_cost.csv").lines
    assert lines[0].model == "Claude Sonnet 4.5"
    assert dict(lines[0].tags)["context_window"] == "≤ 200k"
    assert {line.step for line in lines} == {"0.01"}
