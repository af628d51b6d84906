"""LiteLLM's model_prices JSON (USD per token, service tiers, context tiers) read into rates. Pure.

A field's name says meter, context threshold and service tier: `input_cost_per_token_above_200k_
tokens_priority`. What a service tier leaves out is unpriced in it: the standard price is another.
"""

import re
from collections.abc import Mapping
from typing import Any

from ledger.prices.imported import (
    PER_TOKEN,
    Imported,
    LeftOut,
    NotExpressed,
    Prices,
    micro_of,
    parsed,
    rate_from,
    threshold_of,
)
from ledger.rates import Rate

PER_ONE = PER_TOKEN
METER_OF: Mapping[str, str] = {
    "input_cost_per_token": "input",
    "output_cost_per_token": "output",
    "cache_read_input_token_cost": "cached_input",
    "input_cost_per_token_cache_hit": "cached_input",
    "cache_creation_input_token_cost": "cache_write_5m",
    "cache_creation_input_token_cost_above_1hr": "cache_write_1h",
    "input_cost_per_audio_token": "input_audio",
    "input_cost_per_image_token": "input_image",
    "input_cost_per_video_token": "input_video",
    "cache_read_input_audio_token_cost": "cached_input_audio",
    "cache_read_input_image_token_cost": "cached_input_image",
    "output_cost_per_reasoning_token": "reasoning",
    "citation_cost_per_token": "citation",
    "output_cost_per_audio_token": "output_audio",
    "output_cost_per_image_token": "output_image",
    "output_cost_per_video_token": "output_video",
    "input_cost_per_request": "request",
    "input_cost_per_image": "input_picture",
    "output_cost_per_image": "output_picture",
    "input_cost_per_character": "input_character",
    "output_cost_per_character": "output_character",
    "input_cost_per_audio_per_second": "input_audio_ms",
    "input_cost_per_video_per_second": "input_video_ms",
    "output_cost_per_video_per_second": "output_video_ms",
    "ocr_cost_per_page": "input_page",
}
BY_MODE: Mapping[tuple[str, str], str] = {
    ("input_cost_per_second", "audio_transcription"): "input_audio_ms",
    ("input_cost_per_second", "realtime"): "input_audio_ms",
    ("output_cost_per_second", "audio_speech"): "output_audio_ms",
    ("output_cost_per_second", "video_generation"): "output_video_ms",
    ("input_cost_per_query", "rerank"): "rerank_search",
    ("input_cost_per_query", "search"): "web_search",
}
"""What a field counts where that depends on what the model is for."""
SEARCH = "search_context_cost_per_query"
STANDARD = "sample_spec"  # the table's own example, no model
_NAME = re.compile(
    r"(?P<base>.+?)(?:_above_(?P<k>[0-9]+)k_tokens)?"
    r"(?:_(?P<tier>batches|flex|priority|ultrafast|balanced|decisions))?"
)
_TIER_OF = {"batches": "batch"}
_PRICED = re.compile(r"cost|pricing|multiplier|free_requests")


def read_litellm(content: bytes) -> Imported:
    """Every model of the table as rates, one for each service tier. ValueError: no such table.

    The key is the table's own name of the model; a threshold of N k is N x 1,000 tokens, and what
    is over it prices the whole request.
    """
    table = parsed(content)
    if not isinstance(table, dict) or not all(isinstance(entry, dict) for entry in table.values()):
        raise ValueError("LiteLLM's table is an object of models; this is none")
    rates: list[Rate] = []
    models: dict[str, tuple[str, str]] = {}
    left_out: list[LeftOut] = []
    for key, entry in table.items():
        if key == STANDARD:
            continue
        made = _rates(key, entry, left_out)
        if not made:
            left_out.append(LeftOut(key=key, field="", value="", why="it has no price"))
            continue
        rates += made
        provider = str(entry.get("litellm_provider", ""))
        models[key] = (provider, key.removeprefix(f"{provider}/"))
    return Imported(
        source="litellm", rates=tuple(rates), models=models, aliases={}, left_out=tuple(left_out)
    )


def _rates(key: str, entry: Mapping[str, Any], left_out: list[LeftOut]) -> list[Rate]:
    tiers: dict[str, Prices] = {}
    lost: list[tuple[str, str]] = []
    for field, value in entry.items():
        if not _PRICED.search(field):
            if field == "provider_specific_entry" and isinstance(value, dict):
                why = "a factor for a region or speed is no price"
                left_out.append(LeftOut(key=key, field=field, value=str(value), why=why))
            continue
        tier = meter = ""
        try:
            if field == "tiered_pricing":
                _ranges(tiers.setdefault("", Prices(bands={})), value)
            else:
                tier, meter, over = _placed(field, str(entry.get("mode")))
                micro = _search_price(value) if field == SEARCH else micro_of(value, PER_ONE)
                tiers.setdefault(tier, Prices(bands={})).put(meter, micro, over)
        except NotExpressed as error:
            lost.append((tier, meter))
            left_out.append(LeftOut(key=key, field=field, value=str(value), why=str(error)))
    for tier, meter in lost:
        # Below a threshold alone its price would go on above it: a price that nobody stated.
        if tier in tiers:
            tiers[tier].drop(meter)
    return [
        rate_from(key, prices, service_tier=tier)
        for tier, prices in sorted(tiers.items())
        if -1 in prices.bands
    ]


def _placed(field: str, mode: str) -> tuple[str, str, int]:
    """(service tier, meter, threshold or -1) of a field. NotExpressed where there is no meter."""
    if field == SEARCH:
        return "", "web_search", -1
    match = _NAME.fullmatch(field)
    base = match["base"] if match else field
    meter = METER_OF.get(base) or BY_MODE.get((base, mode))
    if match is None or meter is None:
        raise NotExpressed("no such meter")
    tier = match["tier"] or ""
    over = threshold_of(match["k"] + "000") if match["k"] else -1
    return _TIER_OF.get(tier, tier), meter, over


def _search_price(value: Any) -> int:
    """The price of a search where it is one price; by the size of its context it has no meter."""
    sizes = list(value.values()) if isinstance(value, dict) else []
    if not sizes or any(price != sizes[0] for price in sizes):
        raise NotExpressed("a search has several prices by its size")
    return micro_of(sizes[0], PER_ONE)


def _ranges(prices: Prices, value: Any) -> None:
    """Ranges of input tokens, each with its prices: the first from 0, each from where one ends.

    What a range begins with belongs to the one below, as providers write it: 0 < tokens <= 32 k.
    """
    found: list[tuple[int, dict[str, int]]] = []
    end = 0
    try:
        for band in value:
            start, until = (threshold_of(limit) for limit in band["range"])
            if start != end:
                raise NotExpressed("its ranges don't join")
            costs = {name: cost for name, cost in band.items() if name != "range"}
            if not costs.keys() <= METER_OF.keys():
                raise NotExpressed("a range has no such meter")
            named = {METER_OF[name]: micro_of(cost, PER_ONE) for name, cost in costs.items()}
            found.append((start or -1, named))
            end = until
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, NotExpressed):
            raise
        raise NotExpressed("it is no list of ranges") from None
    for over, named in found:
        for meter, micro in named.items():
            prices.put(meter, micro, over)
