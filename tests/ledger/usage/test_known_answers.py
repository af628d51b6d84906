"""789 real payloads of ten providers with known prices, read and priced by us (CST-6, CST-7)."""

import gzip
import json
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import cache
from typing import Any, NamedTuple

from ledger.money import parse_units
from ledger.prices import rate_table
from ledger.rate_lookup import Priced, Unpriced, price
from ledger.rates import RateTable, Usage
from ledger.usage import CONVENTIONS, Normalised, StreamUsage, normalise
from ledger.zones import to_us
from tests.ledger.prices.public_tables import genai, key_by_pattern
from tests.shared_data import shared_data_path

MADE_AT = datetime(2026, 7, 15, 12, tzinfo=UTC)
"""A day in the span in which all known prices held: after the last change before they were made
(2026-03-13), and before the next (2026-07-30)."""


class Known(NamedTuple):
    body: dict[str, Any]
    provider: str
    flavor: str
    usage: dict[str, int]
    price_pico: int | None


def convention_name(provider: str, flavor: str) -> str:
    """Which of our conventions is meant by a provider's interface."""
    named = {
        ("google", "default"): "gemini",
        ("aws", "default"): "bedrock-converse",
        ("anthropic", "default"): "anthropic-messages",
        ("minimax", "default"): "anthropic-messages",
        ("cohere", "default"): "cohere-billed",
        ("cohere", "embeddings"): "cohere-billed",
        ("cohere", "tokens"): "cohere-tokens",
        ("x-ai", "default"): "xai-chat",
        ("x-ai", "chat"): "xai-chat",
        ("perplexity", "default"): "perplexity-chat",
    }
    by_flavor = {
        "responses": "openai-responses",
        "embeddings": "openai-embeddings",
        "anthropic": "anthropic-messages",
    }
    return named.get((provider, flavor)) or by_flavor.get(flavor, "openai-chat")


def payloads() -> list[dict[str, Any]]:
    path = shared_data_path("prices", "usage_known_answers.json.gz")
    found: list[dict[str, Any]] = json.loads(gzip.decompress(path.read_bytes()))
    return found


def known_answers() -> Iterator[Known]:
    for each in payloads():
        for extracted in each["extracted"]:
            for reader in extracted["extractors"]:
                parts = (
                    ("total_price",) if "total_price" in reader else ("input_price", "output_price")
                )
                priced = "input_price" in reader
                yield Known(
                    body=each["body"],
                    provider=reader["provider_id"],
                    flavor=reader["api_flavor"],
                    usage=extracted["usage"],
                    price_pico=sum(parse_units(reader[part]) for part in parts) if priced else None,
                )


def read(known: Known) -> Normalised | None:
    return normalise(CONVENTIONS[convention_name(known.provider, known.flavor)], known.body)


def in_their_names(read: Normalised) -> dict[str, int]:
    usage, meters = read.usage, Counter(dict(read.usage.meters))
    named = {
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cache_read_tokens": usage.cached_input_tokens,
        "cache_write_tokens": meters["cache_write_5m"] + meters["cache_write_1h"],
        "output_reasoning_tokens": meters["reasoning"],
        "web_searches": meters["web_search"],
        "output_audio_tokens": meters["output_audio"],
        "output_image_tokens": meters["output_image"],
        **{
            f"input_{kind}_tokens": meters[f"input_{kind}"] + meters[f"cached_input_{kind}"]
            for kind in ("audio", "image", "video")
        },
    }
    return {name: count for name, count in named.items() if count}


def difference(known: Known) -> str:
    """The class of reason by which our reading of a payload differs; "" where it doesn't."""
    ours = read(known)
    if ours is None:
        return "no such usage in it" if not known.usage else "not read"
    mine = in_their_names(ours)
    compared = {name: known.usage.get(name, 0) for name in (*mine, "input_tokens", "output_tokens")}
    apart = {name for name in compared if mine.get(name, 0) != compared[name]}
    if not apart:
        return ""
    if all(compared[name] == 0 for name in apart):
        # Their reader of this provider leaves out a count that the payload has: the same payload
        # is read with it by another of their readers, or it stands under a name they don't know.
        return "a count that the payload has and their reader leaves out"
    if convention_name(known.provider, known.flavor) == "xai-chat" and known.flavor == "default":
        # Their older reader of this provider knows the reasoning tokens under another name only.
        return "reasoning beside the completion that their older reader leaves out"
    return f"other counts: {sorted(apart)}"


def test_every_payload_is_read_whole_by_at_least_one_convention():
    unread = [
        each["body"]
        for each in payloads()
        if not any(
            (found := normalise(convention, each["body"])) is not None
            and found.source == "provider"
            for convention in CONVENTIONS.values()
        )
    ]
    assert (len(payloads()), unread) == (789, [])


def test_no_payload_leads_to_a_negative_count_or_a_part_above_its_whole():
    for known in known_answers():
        ours = read(known)
        if ours is not None:
            usage = ours.usage
            assert 0 <= usage.cached_input_tokens <= usage.input_tokens
            assert usage.output_tokens >= 0
            assert all(count > 0 for _, count in usage.meters)
            assert ours.doubts == ()


def test_payloads_are_counted_as_is_known_of_them_or_differ_for_a_named_class_of_reason():
    assert Counter(difference(known) for known in known_answers()) == {
        "": 8_915,
        "a count that the payload has and their reader leaves out": 587,
        "reasoning beside the completion that their older reader leaves out": 39,
        "no such usage in it": 4,
    }


def in_floats(value: Any) -> Any:
    """A payload of a server whose language has one kind of number: 5 as 5.0."""
    if isinstance(value, dict):
        return {name: in_floats(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [in_floats(inner) for inner in value]
    return float(value) if type(value) is int else value


def test_every_payload_is_read_alike_where_its_counts_are_written_as_floats():
    for body in payloads():
        for convention in CONVENTIONS.values():
            assert normalise(convention, in_floats(body)) == normalise(convention, body)


def halved(value: Any) -> Any:
    """A payload as a running total might have been half-way: every count half of it."""
    if isinstance(value, dict):
        return {name: halved(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [halved(inner) for inner in value]
    return value // 2 if isinstance(value, int) and not isinstance(value, bool) else value


def test_a_stream_that_ends_in_any_payload_is_read_as_the_whole_answer_is():
    """CST-8: so it costs the same."""
    streamed = 0
    for each in payloads():
        for convention in CONVENTIONS.values():
            whole = normalise(convention, each["body"])
            if whole is None:
                continue
            stream = StreamUsage(convention)
            early = halved(each["body"]) if convention.stream == "running" else {"usage": None}
            for event in ({}, early, {"choices": []}, each["body"]):
                stream.take(event)
            assert stream.normalised() == whole
            streamed += 1
    assert streamed > len(payloads())


class Outcome(NamedTuple):
    found: str  # how the model's rate was found
    key: str
    compared: str  # how our price compares with the known one


@cache
def table() -> RateTable:
    return rate_table(genai(), version="genai", effective_from_us=0)


def outcome(known: Known, at_us: int) -> Outcome:
    name = str(known.body.get("model") or known.body.get("modelVersion"))
    exact = f"{known.provider}/{name}"
    key, how = genai().aliases.get(exact, exact), "by its exact name"
    if key not in genai().models:
        key, how = key_by_pattern(known.provider, name) or "", "by their pattern"
    ours = read(known)
    assert ours is not None
    priced = price(table(), (key,), ours.usage, at_us=at_us)
    if isinstance(priced, Unpriced):
        return Outcome(how, key, "unpriced")
    if priced.cost.total_pico == known.price_pico:
        return Outcome(how, key, "the same")
    by_their_count = price(table(), (key,), as_they_read(known), at_us=at_us)
    assert isinstance(by_their_count, Priced)
    if by_their_count.cost.total_pico == known.price_pico:
        return Outcome(how, key, difference(known))
    return Outcome(how, key, "another")


def as_they_read(known: Known) -> Usage:
    """The usage that their reader of the payload found, of the meters that matter to a price."""
    theirs = known.usage
    meters = (("cache_write_5m", "cache_write_tokens"), ("web_search", "web_searches"))
    return Usage(
        input_tokens=theirs.get("input_tokens", 0),
        output_tokens=theirs.get("output_tokens", 0),
        cached_input_tokens=theirs.get("cache_read_tokens", 0),
        meters=tuple((ours, theirs[name]) for ours, name in meters if theirs.get(name)),
    )


def outcomes(at: datetime) -> list[tuple[Known, Outcome]]:
    priced = [known for known in known_answers() if known.price_pico is not None]
    return [(known, outcome(known, to_us(at))) for known in priced]


def test_every_known_price_is_reached_to_the_pico_unit_or_differs_for_a_named_class_of_reason():
    """1,731 prices. Five are of a usage that their reader of that provider leaves a count out of:
    with that count left out they are the same. One is 0, of a model whose public entry has no price
    at all: it is unpriced, never zero (CST-7).
    """
    assert Counter((each.found, each.compared) for _, each in outcomes(MADE_AT)) == {
        ("by its exact name", "the same"): 774,
        ("by their pattern", "the same"): 951,
        ("by their pattern", "a count that the payload has and their reader leaves out"): 5,
        ("by their pattern", "unpriced"): 1,
    }


def test_the_unpriced_one_is_known_to_cost_nothing_and_its_entry_has_no_price():
    unpriced = [(known, each) for known, each in outcomes(MADE_AT) if each.compared == "unpriced"]
    assert [known.price_pico for known, _ in unpriced] == [0]
    assert [left.why for left in genai().left_out if left.key == unpriced[0][1].key] == [
        "it has no price"
    ]


def test_a_known_price_differs_later_only_where_the_table_dates_a_change_in_between():
    later = datetime(2026, 11, 29, 12, tzinfo=UTC)
    dated = {rate.key for rate in genai().rates if rate.valid_from_us is not None}
    moved = [
        after.key
        for (_, before), (_, after) in zip(outcomes(MADE_AT), outcomes(later), strict=True)
        if before != after
    ]
    assert len(moved) == 28
    assert set(moved) <= dated
