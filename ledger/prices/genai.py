"""genai-prices v2 (USD per million, with dates, tiers and daily windows) read into rates. Pure."""

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, date, datetime
from typing import Any

from ledger.prices.imported import (
    PER_MILLION,
    PER_THOUSAND,
    Imported,
    LeftOut,
    NotExpressed,
    Prices,
    micro_of,
    parsed,
    rate_from,
    threshold_of,
)
from ledger.rates import Rate, Window
from ledger.zones import to_us

METER_OF: Mapping[str, tuple[str, int]] = {
    "input_mtok": ("input", PER_MILLION),
    "output_mtok": ("output", PER_MILLION),
    "cache_read_mtok": ("cached_input", PER_MILLION),
    "cache_write_mtok": ("cache_write_5m", PER_MILLION),
    "cache_write_5m_mtok": ("cache_write_5m", PER_MILLION),
    "cache_write_1h_mtok": ("cache_write_1h", PER_MILLION),
    "input_audio_mtok": ("input_audio", PER_MILLION),
    "input_image_mtok": ("input_image", PER_MILLION),
    "input_video_mtok": ("input_video", PER_MILLION),
    "cache_audio_read_mtok": ("cached_input_audio", PER_MILLION),
    "cache_image_read_mtok": ("cached_input_image", PER_MILLION),
    "cache_video_read_mtok": ("cached_input_video", PER_MILLION),
    "output_reasoning_mtok": ("reasoning", PER_MILLION),
    "output_citation_mtok": ("citation", PER_MILLION),
    "output_audio_mtok": ("output_audio", PER_MILLION),
    "output_image_mtok": ("output_image", PER_MILLION),
    "output_video_mtok": ("output_video", PER_MILLION),
    "web_searches_kcount": ("web_search", PER_THOUSAND),
    "rerank_searches_kcount": ("rerank_search", PER_THOUSAND),
    "requests_kcount": ("request", PER_THOUSAND),
}
_TIME = re.compile(r"([01][0-9]|2[0-3]):([0-5][0-9]):([0-5][0-9])(Z|[+-][0-9]{2}:[0-9]{2})")


def read_genai(content: bytes) -> Imported:
    """Every model of the table as rates of the key "provider/model". ValueError: no such table.

    A tier holds strictly above its start, for the whole request, as the table's schema says. A
    model that is not written as the schema says is left out, as what no rate can hold is.
    """
    providers = parsed(content)
    if not isinstance(providers, list):
        raise ValueError("genai-prices v2 is a list of providers; this is none")
    rates: list[Rate] = []
    models: dict[str, tuple[str, str]] = {}
    aliases: dict[str, str] = {}
    left_out: list[LeftOut] = []
    for place, provider in enumerate(providers, start=1):
        listed, named = _listed(provider, "models"), provider.get("id")
        if not isinstance(named, str):
            raise ValueError(f"provider {place} of the list has no id, as genai-prices v2 has it")
        for number, model in enumerate(listed, start=1):
            try:
                key = f"{named}/{model['id']}"
                made = _rates(key, model["prices"], left_out)
                names = tuple(_exact_names(model.get("match")))
            except (AttributeError, KeyError, TypeError, ValueError):
                why = "it is written in another way than genai-prices v2 writes a model"
                place_of = f"{named}: model {number}"
                left_out.append(LeftOut(key=place_of, field="", value="", why=why))
                continue
            if made:
                rates += made
                models[key] = (named, model["id"])
                for name in names:
                    aliases.setdefault(f"{named}/{name}", key)
            else:
                left_out.append(LeftOut(key=key, field="prices", value="", why="it has no price"))
    return Imported(
        source="genai",
        rates=tuple(rates),
        models=models,
        aliases={name: key for name, key in aliases.items() if name not in models},
        left_out=tuple(left_out),
    )


def _listed(of: Any, field: str) -> Sequence[Any]:
    found = of.get(field, ()) if isinstance(of, dict) else None
    if not isinstance(found, list | tuple):
        raise ValueError(f"genai-prices v2 has a list of {field} in each provider")
    return found


def _exact_names(match: Any) -> Iterator[str]:
    """The names that the table takes for the model word for word; patterns are guesses."""
    if isinstance(match, dict):
        if isinstance(match.get("equals"), str):
            yield match["equals"]
        for inner in match.get("or", ()):
            yield from _exact_names(inner)


def _rates(key: str, prices: Any, left_out: list[LeftOut]) -> list[Rate]:
    """The rates of one model: one, or one for each of its conditions."""
    if isinstance(prices, dict):
        collected = _collected(key, prices, left_out)
        return [rate_from(key, collected)] if collected.bands else []
    dated: list[tuple[int | None, Prices]] = []
    windowed: list[tuple[Window, Prices]] = []
    for entry in prices:
        constraint = entry.get("constraint") or {}
        collected = _collected(key, entry["prices"], left_out)
        if "start_date" in constraint and not windowed:
            dated.append((_midnight(constraint["start_date"]), collected))
        elif "start_time" in constraint and "start_date" not in constraint:
            window = _window(constraint)
            if window is None:
                why = "its hours are no times of one UTC offset"
                left_out.append(LeftOut(key=key, field="constraint", value="", why=why))
            else:
                windowed.append((window, collected))
        elif not constraint and not dated and not windowed:
            dated.append((None, collected))
        else:
            # The last that holds wins there; here a window goes before a date.
            why = "its conditions don't nest as dates, then hours"
            left_out.append(LeftOut(key=key, field="constraint", value=str(constraint), why=why))
    ends = [*(start for start, _ in dated[1:]), None][: len(dated)]
    rates = [
        rate_from(key, collected, valid_from_us=start, valid_to_us=end)
        for (start, collected), end in zip(dated, ends, strict=True)
    ]
    return rates + [rate_from(key, collected, windows=(window,)) for window, collected in windowed]


def _collected(key: str, prices: Mapping[str, Any], left_out: list[LeftOut]) -> Prices:
    collected = Prices(bands={})
    for field, value in prices.items():
        meter, places = METER_OF.get(field, ("", 0))
        if not meter:
            left_out.append(LeftOut(key=key, field=field, value=str(value), why="no such meter"))
            continue
        try:
            tiers = value["tiers"] if isinstance(value, dict) else ()
            base = value["base"] if isinstance(value, dict) else value
            found = [(-1, micro_of(base, places))]
            found += [
                (threshold_of(tier["start"]), micro_of(tier["price"], places)) for tier in tiers
            ]
        except NotExpressed as error:
            left_out.append(LeftOut(key=key, field=field, value=str(value), why=str(error)))
            continue
        for over, micro in found:
            collected.put(meter, micro, over)
    return collected


def _midnight(text: str) -> int:
    day = date.fromisoformat(text)
    return to_us(datetime(day.year, day.month, day.day, tzinfo=UTC))


def _window(constraint: Mapping[str, Any]) -> Window | None:
    start = _TIME.fullmatch(str(constraint.get("start_time")))
    end = _TIME.fullmatch(str(constraint.get("end_time")))
    if start is None or end is None or start[4] != end[4]:
        return None
    sign = -1 if start[4].startswith("-") else 1
    offset = 0 if start[4] == "Z" else sign * (int(start[4][1:3]) * 60 + int(start[4][4:]))
    seconds = [int(at[1]) * 3600 + int(at[2]) * 60 + int(at[3]) for at in (start, end)]
    return Window(utc_offset_minutes=offset, from_second=seconds[0], to_second=seconds[1])
