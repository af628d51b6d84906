"""Public tables become rates digit by digit, and what can't is listed (CST-7)."""

import csv
import gzip
import json
import re
from datetime import UTC, datetime

import pytest

from ledger.prices import disagreements, rate_table, read_genai, read_litellm
from ledger.rate_lookup import BATCH_TIER, Priced, price, select
from ledger.rates import Tier, Usage, Window
from ledger.zones import to_us
from tests.ledger.prices.public_tables import genai, litellm
from tests.shared_data import shared_data_path


def providers(*models, provider="acme"):
    return json.dumps([{"id": provider, "models": list(models)}]).encode()


def model(prices, model_id="m-1", **more):
    return {"id": model_id, "match": {"equals": model_id}, "prices": prices, **more}


def at(*when):
    return to_us(datetime(*when, tzinfo=UTC))


def test_a_price_is_read_digit_by_digit_and_never_as_a_float():
    prices = '{"input_mtok": 0.123456, "output_mtok": 3e-1}'
    text = f'[{{"id": "acme", "models": [{{"id": "m", "prices": {prices}}}]}}]'
    (rate,) = read_genai(text.encode()).rates
    assert (rate.key, rate.input_micro_per_mtok, rate.output_micro_per_mtok) == (
        "acme/m",
        123_456,
        300_000,
    )


def test_a_price_finer_than_a_micro_unit_is_left_out_and_named_and_its_model_is_unpriced():
    text = b'{"m": {"input_cost_per_token": 1.23456789e-08, "output_cost_per_token": 2e-06}}'
    found = read_litellm(text)
    assert [(left.field, left.value, left.why) for left in found.left_out] == [
        (
            "input_cost_per_token",
            "1.23456789e-08",
            "it is finer than a micro-unit per million",
        )
    ]
    assert found.rates[0].unpriced == ("input", "cached_input")


@pytest.mark.parametrize(
    ("name", "found"),
    [("half \\ud800", "U+D800"), ("\\u0000", "U+0000"), ("\x7f", "U+007F"), ("\\b", "U+0008")],
)
def test_a_name_with_a_control_character_or_half_a_one_is_refused_with_its_place(name, found):
    """CST-7, REC-1: the rule of the providers' reports."""
    text = f'{{"whole \\ud83d\\ude00": {{}},\n "{name}": {{"input_cost_per_token": 1e-6}}}}'
    with pytest.raises(ValueError, match=re.escape(f"line 2, column 2: the text has {found}")):
        read_litellm(text.encode())


@pytest.mark.parametrize("value", ["-1", '"2"', "true", "NaN", "1e40"])
def test_what_is_no_price_is_never_one(value):
    text = f'{{"m": {{"input_cost_per_token": {value}, "output_cost_per_token": 1}}}}'.encode()
    try:
        found = read_litellm(text)
    except ValueError:
        return
    assert found.rates[0].unpriced == ("input", "cached_input")


@pytest.mark.parametrize("content", [b"", b"[", b"3", b'{"m": 4}', b"\x1f\x8bjunk", b"\xff"])
def test_a_file_that_is_no_such_table_is_refused(content):
    with pytest.raises(ValueError):
        read_litellm(content)
    with pytest.raises(ValueError):
        read_genai(content if content != b"[" else b"{}")


def test_tiers_hold_over_their_start_and_keep_what_they_do_not_name():
    prices = {
        "input_mtok": {"base": 3, "tiers": [{"start": 200_000, "price": 6}]},
        "output_mtok": 15,
        "cache_write_1h_mtok": {"base": 6, "tiers": [{"start": 200_000, "price": 12}]},
    }
    (rate,) = read_genai(providers(model(prices))).rates
    assert (rate.threshold, rate.tier_mode) == ("over", "whole")
    assert rate.tiers == (
        Tier(
            over_input_tokens=200_000,
            input_micro_per_mtok=6_000_000,
            output_micro_per_mtok=15_000_000,
            cached_input_micro_per_mtok=6_000_000,
            meters=(("cache_write_1h", 12_000_000),),
        ),
    )


def test_dates_become_validity_and_hours_become_windows():
    prices = [
        {"prices": {"input_mtok": 1, "output_mtok": 2}},
        {"constraint": {"start_date": "2026-03-13"}, "prices": {"input_mtok": 3, "output_mtok": 4}},
        {
            "constraint": {"start_time": "16:30:00Z", "end_time": "00:30:00Z"},
            "prices": {"input_mtok": 5, "output_mtok": 6},
        },
    ]
    table = rate_table(read_genai(providers(model(prices))), version="v", effective_from_us=0)
    assert [(rate.valid_from_us, rate.valid_to_us) for rate in table.rates] == [
        (None, at(2026, 3, 13)),
        (at(2026, 3, 13), None),
        (None, None),
    ]
    assert table.rates[2].windows == (
        Window(utc_offset_minutes=0, from_second=59_400, to_second=1_800),
    )
    asked = {
        at(2026, 3, 12, 16, 29, 59): 1,
        at(2026, 3, 13, 0, 30): 3,
        at(2026, 3, 13, 16, 30): 5,
        at(2026, 3, 14, 0, 29, 59): 5,
        at(2026, 3, 14, 0, 30): 3,
    }
    for at_us, units in asked.items():
        rate = select(table, "acme/m-1", at_us=at_us)
        assert rate is not None
        assert rate.input_micro_per_mtok == units * 1_000_000


def test_a_model_that_is_priced_at_some_hours_alone_has_rates_of_those_hours_alone():
    hours = {"start_time": "08:00:00+08:00", "end_time": "09:00:00+08:00"}
    prices = [{"constraint": hours, "prices": {"input_mtok": 5, "output_mtok": 6}}]
    (rate,) = read_genai(providers(model(prices))).rates
    assert rate.windows == (Window(utc_offset_minutes=480, from_second=28_800, to_second=32_400),)


def test_a_field_that_no_meter_counts_is_listed():
    found = read_genai(providers(model({"input_mtok": 1, "input_gpixels": 2})))
    assert [(left.field, left.why) for left in found.left_out] == [
        ("input_gpixels", "no such meter")
    ]


def test_service_tiers_and_thresholds_are_read_from_the_name_of_a_field():
    entry = {
        "litellm_provider": "acme",
        "mode": "chat",
        "input_cost_per_token": 1e-06,
        "output_cost_per_token": 2e-06,
        "input_cost_per_token_above_200k_tokens": 3e-06,
        "input_cost_per_token_batches": 5e-07,
        "output_cost_per_token_batches": 1e-06,
        "input_cost_per_token_priority": 4e-06,
    }
    found = read_litellm(json.dumps({"acme/m": entry}).encode())
    assert [rate.service_tier for rate in found.rates] == ["", "batch", "priority"]
    assert found.rates[0].tiers[0].over_input_tokens == 200_000
    assert found.rates[2].unpriced == ("output",)
    table = rate_table(found, version="v", effective_from_us=0)
    usage = Usage(input_tokens=1_000, output_tokens=100)
    batch = price(table, ("acme/m",), usage, batch=True)
    assert isinstance(batch, Priced)
    assert (batch.key, batch.cost.total_pico) == (f"acme/m#tier={BATCH_TIER}", 600_000_000)


@pytest.mark.parametrize(
    "odd",
    [
        None, 7, "m-2", [], {"id": "m-2"}, model(None), model([None]), model("free"),
        model({"input_mtok": {"base": 1}}), model({"input_mtok": {"base": 1, "tiers": None}}),
        model([{"constraint": "always", "prices": {"input_mtok": 1}}]),
        model([{"constraint": {"start_date": "2025-02-30"}, "prices": {"input_mtok": 1}}]),
        model({"input_mtok": 1}, match={"or": [None, {"or": None}]}),
    ],
)  # fmt: skip
def test_a_model_that_is_written_in_another_way_is_left_out_and_the_others_are_read(odd):
    """CST-7: a file of someone else's is never a fault of this program."""
    found = read_genai(providers(model({"input_mtok": 1, "output_mtok": 2}), odd))
    assert [rate.key for rate in found.rates] == ["acme/m-1"]
    assert found.left_out


@pytest.mark.parametrize("start", ["null", "-5", "1.5", '"many"', "1" + 30 * "0", "[]"])
def test_a_threshold_that_is_no_number_of_tokens_leaves_the_price_out(start):
    tiers = f'{{"base": 1, "tiers": [{{"start": {start}, "price": 2}}]}}'
    text = f'[{{"id": "a", "models": [{{"id": "m", "prices": {{"input_mtok": {tiers}}}}}]}}]'
    found = read_genai(text.encode())
    assert (found.rates, found.left_out[0].field) == ((), "input_mtok")


def test_a_provider_without_a_name_is_refused_by_its_place():
    with pytest.raises(ValueError, match="provider 2 of the list has no id"):
        read_genai(b'[{"id": "acme", "models": []}, {"models": []}]')


@pytest.mark.parametrize(
    "entry",
    [
        {"search_context_cost_per_query": {"low": {}, "high": []}},
        {"tiered_pricing": [{"range": [None, 1], "input_cost_per_token": 1}]},
        {"tiered_pricing": [{"range": 5}]},
        {f"input_cost_per_token_above_{10**30}k_tokens": 1},
    ],
)
def test_what_is_no_price_of_litellms_is_left_out_and_named(entry):
    text = json.dumps({"m": {"output_cost_per_token": 1} | entry}).encode()
    found = read_litellm(text)
    assert [left.field for left in found.left_out] == list(entry)
    assert found.rates[0].unpriced == ("input", "cached_input")


def test_a_price_over_a_threshold_that_no_rate_holds_leaves_the_meter_without_a_price():
    """CST-7: else what is below the threshold would go on above it, which nobody stated."""
    found = read_litellm(
        b'{"m": {"input_cost_per_token": 1e-06, "output_cost_per_token": 2e-06,'
        b' "input_cost_per_token_above_200k_tokens": 1.23456789e-08}}'
    )
    assert found.rates[0].unpriced == ("input", "cached_input")
    assert [left.field for left in found.left_out] == ["input_cost_per_token_above_200k_tokens"]


def test_a_table_for_our_routes_takes_exact_names_and_refuses_what_it_does_not_know():
    found = read_genai(
        providers(
            model({"input_mtok": 1, "output_mtok": 2}, match={"or": [{"equals": "m-latest"}]}),
        )
    )
    named = rate_table(
        found, version="v", effective_from_us=0, names={"route-a": "acme/m-latest", "b": "acme/m-1"}
    )
    assert [rate.key for rate in named.rates] == ["route-a", "b"]
    with pytest.raises(LookupError, match="no price of exactly acme/m"):
        rate_table(found, version="v", effective_from_us=0, names={"route-a": "acme/m"})


def test_both_public_tables_are_read_whole():
    """1,466 and 4,877 models: each has rates, or is listed as left out."""
    for table, models in ((genai(), 1_466), (litellm(), 4_877)):
        without = {left.key for left in table.left_out if left.why == "it has no price"}
        assert len(table.models) + len(without) == models
        assert not without & table.models.keys()


def test_the_known_disagreements_between_the_tables_are_found_and_no_price_is_misread():
    text = shared_data_path("prices", "disagreements_usd_per_mtok.csv").read_text()
    meters = {"input": "input", "output": "output", "cache_read": "cached_input",
              "cache_write": "cache_write_5m"}  # fmt: skip
    known = {}
    for row in csv.DictReader(text.splitlines()):
        both = {name: row[name] for name in ("genai", "litellm") if row[name]}
        if len(both) == 2 and row["genai"] != row["litellm"]:
            known[row["provider"], row["model"], meters[row["field"]]] = both
    tables = {"genai": genai(), "litellm": litellm()}
    found = {
        (each.provider, each.model, each.meter): {
            table: f"{micro / 1_000_000:g}" for table, micro in each.prices.items()
        }
        for each in disagreements(tables, at(2026, 11, 29))
    }
    apart = {place for place, both in known.items() if found.get(place) != both}
    # Of these three the list's genai-prices column is not what the table of that name says.
    assert {model for _, model, _ in apart} == {
        "deepseek-flash", "deepseek-v4-flash", "deepseek-v4-pro"
    }  # fmt: skip
    assert (len(known), len(apart)) == (21, 9)


def test_every_change_of_a_public_price_ends_in_the_price_that_is_imported():
    """The history's last column is the table itself: what we read of it is the same number."""
    path = shared_data_path("prices", "litellm_price_changes_1.53.9_to_1.110.2.csv.gz")
    meters = {
        "input_cost_per_token": "input_micro_per_mtok",
        "output_cost_per_token": "output_micro_per_mtok",
        "cache_read_input_token_cost": "cached_input_micro_per_mtok",
    }
    standard = {rate.key: rate for rate in litellm().rates if not rate.service_tier}
    compared = 0
    for row in csv.DictReader(gzip.decompress(path.read_bytes()).decode().splitlines()):
        rate, field = standard.get(row["model"]), meters.get(row["key"])
        if rate is None or field is None or not row["v1.110.2"]:
            continue
        if field.split("_")[0] in rate.unpriced:
            continue  # finer than a micro-unit: listed as left out
        assert getattr(rate, field) == round(float(row["v1.110.2"]) * 10**12), row
        compared += 1
    assert compared > 100
