"""Each format on a report of our own making, where no sample is at hand (REC-1)."""

import csv
import io
import json
from typing import Any

import pytest

from ledger.invoices.formats import read
from ledger.invoices.values import Line, Refusal, Report
from ledger.money import units_text

DAY = {"starting_at": "2026-09-01T00:00:00Z", "ending_at": "2026-09-02T00:00:00Z"}


def lines(content: str | bytes, **options: str) -> tuple[Line, ...]:
    data = content.encode() if isinstance(content, str) else content
    found = read([data], **options)
    assert isinstance(found, Report), found
    return found.lines


def code(content: str, **options: str) -> str:
    found = read([content.encode()], **options)
    assert isinstance(found, Refusal), found
    return found.code


def table(*rows: dict[str, str]) -> str:
    out = io.StringIO()
    writer = csv.DictWriter(out, fieldnames=list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def shown(found: tuple[Line, ...]) -> list[tuple[Any, ...]]:
    return [
        (line.kind, line.model, line.tier, line.meter, line.tokens,
         None if line.amount_pico is None else units_text(line.amount_pico))
        for line in found
    ]  # fmt: skip


def page(*results: dict[str, Any]) -> str:
    return json.dumps({"data": [{**DAY, "results": results}], "has_more": False})


def test_anthropics_usage_excludes_the_cache_and_keeps_its_lifetimes():
    result = {
        "uncached_input_tokens": 10, "cache_read_input_tokens": 20, "output_tokens": 5,
        "cache_creation": {"ephemeral_5m_input_tokens": 3, "ephemeral_1h_input_tokens": 4},
        "server_tool_use": {"web_search_requests": 2}, "model": "c", "service_tier": "batch",
        "workspace_id": None, "api_key_id": None, "context_window": "0-200k",
    }  # fmt: skip
    found = lines(page(result))
    assert shown(found) == [
        ("usage", "c", "batch", "input", 10, None),
        ("usage", "c", "batch", "cached_input", 20, None),
        ("usage", "c", "batch", "cache_write_5m", 3, None),
        ("usage", "c", "batch", "cache_write_1h", 4, None),
        ("usage", "c", "batch", "output", 5, None),
        ("usage", "c", "batch", "other", None, None),
    ]
    assert {(line.project, line.api_key) for line in found} == {("default", "console")}
    assert found[-1].quantity == "2 web searches"


def test_anthropics_amounts_are_cents():
    result = {"amount": "123.45", "currency": "USD", "cost_type": "tokens", "model": "c",
              "token_type": "output_tokens", "workspace_id": "w", "service_tier": "standard",
              "description": "Output"}  # fmt: skip
    searches = {**result, "cost_type": "web_search", "token_type": None, "amount": "2"}
    whole = {**result, "token_type": None, "amount": "-0.5"}
    assert shown(lines(page(result, searches, whole))) == [
        ("usage", "c", None, "output", None, "1.2345"),
        ("usage", "c", None, "other", None, "0.02"),
        ("credit", "c", None, "total", None, "-0.005"),
    ]


def test_openais_line_items_are_taken_apart():
    def cost(item: str | None, value: float, **more: Any) -> dict[str, Any]:
        amount = {"value": value, "currency": "usd"}
        named = {"object": "organization.costs.result", "line_item": item, "project_id": "p"}
        return {**named, "amount": amount, **more}

    results = [
        cost("gpt-5, cached input", 0.5, quantity=1.5, quantity_unit="1000_tokens"),
        cost("gpt-5 batch, output", 0.25, quantity=7, quantity_unit="tokens"),
        cost("assistants api | file search", 0.1, quantity=0.2, quantity_unit="gibibyte_hours"),
        cost(None, 0.3),
        cost("gpt-5, input", -0.1),
    ]
    bucket = {"start_time": 1788220800, "end_time": 1788307200, "results": results}
    found = lines(json.dumps({"object": "page", "data": [bucket], "has_more": False}))
    assert shown(found) == [
        ("usage", "gpt-5", None, "cached_input", 1_500, "0.5"),
        ("usage", "gpt-5", "batch", "output", 7, "0.25"),
        ("usage", None, None, "other", None, "0.1"),
        ("usage", None, None, "total", None, "0.3"),
        ("credit", "gpt-5", None, "input", None, "-0.1"),
    ]
    assert found[2].quantity == "0.2 gibibyte_hours"


def test_a_dashboard_is_read_by_name_and_counts_may_be_floats():
    heading = "model,num_model_requests,start_time,end_time,start_time_iso,end_time_iso,"
    names = "output_tokens,input_tokens,input_cached_tokens,batch,service_tier\n"
    row = "gpt-5,3.0,1788220800,1788307200,,,5,100,40,True,default\n"
    empty = ",,1788307200,1788393600,,,,,,,\n"
    found = lines(heading + names + row + empty)
    assert shown(found) == [
        ("usage", "gpt-5", "batch", "input", 60, None),
        ("usage", "gpt-5", "batch", "cached_input", 40, None),
        ("usage", "gpt-5", "batch", "output", 5, None),
    ]
    only = "start_time,end_time,start_time_iso,end_time_iso\n1788220800,1788307200,,\n"
    report = read([only.encode()])
    assert isinstance(report, Report)
    assert [bucket.empty for bucket in report.buckets] == [True]


def cur(**changes: str) -> dict[str, str]:
    return {
        "identity/LineItemId": "li1", "lineItem/LineItemType": "Usage",
        "lineItem/UsageStartDate": "2026-09-01T00:00:00Z",
        "lineItem/UsageEndDate": "2026-09-01T01:00:00Z", "lineItem/UsageAccountId": "1",
        "lineItem/UsageType": "USE1-Claude4Sonnet-input-tokens", "lineItem/UsageAmount": "1.5",
        "lineItem/CurrencyCode": "USD", "lineItem/UnblendedCost": "0.0045",
        "lineItem/Operation": "InvokeModelInference", "lineItem/ProductCode": "AmazonBedrock",
        "lineItem/LineItemDescription": "d", "product/ProductName": "Amazon Bedrock",
        "pricing/unit": "1K tokens", "bill/InvoiceId": "", "resourceTags/user:team": "",
        **changes,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("line_type", "kind"),
    [("Usage", "usage"), ("Credit", "credit"), ("EdpDiscount", "credit"), ("Refund", "refund"),
     ("Tax", "tax"), ("Fee", "fee"), ("RIFee", "commitment"),
     ("SavingsPlanRecurringFee", "commitment"), ("SavingsPlanNegation", "credit")],
)  # fmt: skip
def test_amazons_types_of_line_have_a_kind(line_type, kind):
    assert lines(table(cur(**{"lineItem/LineItemType": line_type})))[0].kind == kind


def test_amazons_units_are_a_thousand_or_a_million_and_an_unknown_type_is_refused():
    market = {
        "lineItem/UsageType": "USE1-MP:USE1_OutputTokenCount-Units", "pricing/unit": "Units",
        "product/ProductName": "Claude Sonnet 4.5 (Amazon Bedrock Edition)",
        "lineItem/UsageAmount": "0.000002", "resourceTags/user:team": "a",
    }  # fmt: skip
    part = {"lineItem/UsageAmount": "0.0005"}  # half a token is none: kept as printed
    other = {"lineItem/UsageType": "USE1-Guardrail", "pricing/unit": "TextUnits"}
    found = lines(table(cur(), cur(**market), cur(**part), cur(**other)))
    assert shown(found) == [
        ("usage", "Claude4Sonnet", None, "input", 1_500, "0.0045"),
        ("usage", "Claude Sonnet 4.5", None, "output", 2, "0.0045"),
        ("usage", "Claude4Sonnet", None, "input", None, "0.0045"),
        ("usage", None, None, "other", None, "0.0045"),
    ]
    assert [line.quantity for line in found] == [None, None, "0.0005 1K tokens", "1.5 TextUnits"]
    assert [line.tags for line in found[:2]] == [(), (("team", "a"),)]
    assert code(table(cur(**{"lineItem/LineItemType": "Gift"}))) == "UNKNOWN_KIND"


def gcp(text: str = "Gemini 2.5 Pro GA Text Input - Predictions", **changes: Any) -> str:
    return json.dumps({
        "sku": {"id": "1", "description": text}, "usage_start_time": "2026-09-01T07:00:00Z",
        "usage_end_time": "2026-09-01T08:00:00Z", "project": {"id": "p"}, "cost": 0.5,
        "labels": [{"key": "team", "value": "a"}], "export_time": "2026-09-01T13:00:00Z",
        "currency": "USD", "cost_type": "regular", "credits": [], "invoice": {"month": "202609"},
        "usage": {"amount": 10.0, "unit": "requests", "amount_in_pricing_units": 10.0,
                  "pricing_unit": "count"}, **changes,
    })  # fmt: skip


def test_googles_credits_are_lines_of_their_own_and_negative():
    credit = {"name": "promo", "amount": -0.2}
    rows = [
        gcp(credits=[credit]),
        gcp("Gemini 2.5 Pro Input Text Caching"),
        gcp("Gemini 2.5 Pro Text Input Caching Storage"),
        gcp("Gemini 2.5 Pro Thinking Text Output - Batch Predictions"),
        gcp("Tax", cost_type="tax", project=None),
    ]
    found = lines("\n".join([*rows, ""]))
    assert shown(found) == [
        ("usage", "Gemini 2.5 Pro", None, "input", 10, "0.5"),
        ("credit", "Gemini 2.5 Pro", None, "other", None, "-0.2"),
        ("usage", "Gemini 2.5 Pro", None, "cached_input", 10, "0.5"),
        ("usage", "Gemini 2.5 Pro", None, "other", None, "0.5"),
        ("usage", "Gemini 2.5 Pro", "batch", "output", 10, "0.5"),
        ("tax", None, None, "other", None, "0.5"),
    ]
    assert (found[0].invoice_number, found[0].tags) == ("202609", (("team", "a"),))
    assert code(gcp(credits=[{"name": "promo", "amount": 0.2}])) == "CREDIT_SIGN"
    assert code(gcp(cost_type="gift")) == "UNKNOWN_KIND"


def focus(**changes: str) -> dict[str, str]:
    return {
        "BilledCost": "1.5", "EffectiveCost": "0.5", "ListCost": "2", "BillingCurrency": "USD",
        "ChargeCategory": "Usage", "ChargeClass": "", "ChargeDescription": "d",
        "ChargePeriodStart": "2026-09-01T00:00:00Z", "ChargePeriodEnd": "2026-09-02T00:00:00Z",
        "ProviderName": "Acme AI", "SkuId": "m", "SkuMeter": "Input Tokens",
        "ConsumedQuantity": "5", "ConsumedUnit": "Tokens", "PricingCategory": "Standard",
        "Tags": "{}", **changes,
    }  # fmt: skip


def test_focus_charges_have_a_kind_and_their_meters():
    rows = [
        focus(),
        focus(SkuMeter="Batch Output Tokens", ConsumedUnit="1000 Tokens"),
        focus(SkuMeter="Priority Cached Input Tokens"),
        focus(SkuMeter="Searches", ConsumedUnit="Requests"),
        focus(ChargeClass="Correction", BilledCost="-1", ConsumedQuantity="-5"),
        focus(ChargeCategory="Purchase", PricingCategory="Committed"),
        focus(ChargeCategory="Purchase", PricingCategory="Standard"),
        focus(ChargeCategory="Credit"),
        focus(ChargeCategory="Tax"),
        focus(ChargeCategory="Adjustment", ChargeDescription="Invoice rounding"),
        focus(ChargeCategory="Adjustment"),
    ]
    found = lines(table(*rows))
    assert [(line.kind, line.tier, line.meter, line.tokens) for line in found] == [
        ("usage", None, "input", 5), ("usage", "batch", "output", 5_000),
        ("usage", "priority", "cached_input", 5), ("usage", None, "other", None),
        ("adjustment", None, "input", -5), ("commitment", None, "other", None),
        ("fee", None, "other", None), ("credit", None, "other", None),
        ("tax", None, "other", None), ("rounding", None, "other", None),
        ("adjustment", None, "other", None),
    ]  # fmt: skip
    assert [units_text(found[0].effective_pico or 0), units_text(found[0].list_pico or 0)] == [
        "0.5", "2",
    ]  # fmt: skip
    assert code(table(focus(ChargeCategory="Gift"))) == "UNKNOWN_KIND"
    assert code(table(focus(), focus(ProviderName="Other"))) == "SEVERAL_PROVIDERS"


def test_the_word_null_and_a_time_without_an_offset_are_those_of_focus_1_0():
    found = lines(table(focus(
        ChargePeriodStart="2026-09-01 00:00:00", ChargePeriodEnd="2026-09-01 01:00:00",
        Tags="NULL", ConsumedQuantity="NULL", ListCost="NULL", SkuMeter="NULL",
    )))  # fmt: skip
    assert (found[0].list_pico, found[0].tokens, found[0].tags) == (None, None, ())
    assert found[0].end_us - found[0].start_us == 3_600_000_000
