"""What can be counted and priced beside input, cached input and output (CST-6, CST-7). Pure.

Counts are whole numbers of the meter's unit. Those of one usage are disjoint: a token stands under
one meter at most, and what stands under none is plain input, cached input or output.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Inside = Literal["input", "cached_input", "output"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Meter:
    """`inside`: the count that holds this one's tokens; None: it stands beside all tokens.

    `like`: the meter whose price holds where this one has none of its own; a meter without it has
    no price then. `per`: how many of its units one unit of its price is for (a price is for a
    second, a count in milliseconds).
    """

    inside: Inside | None = None
    like: str | None = None
    per: int = 1


METERS: Mapping[str, Meter] = {
    # Written to a cache; a lifetime that the provider does not name is its default, 5 minutes.
    "cache_write_5m": Meter(inside="input", like="input"),
    "cache_write_1h": Meter(inside="input", like="cache_write_5m"),
    "input_audio": Meter(inside="input", like="input"),
    "input_image": Meter(inside="input", like="input"),
    "input_video": Meter(inside="input", like="input"),
    "cached_input_audio": Meter(inside="cached_input", like="cached_input"),
    "cached_input_image": Meter(inside="cached_input", like="cached_input"),
    "cached_input_video": Meter(inside="cached_input", like="cached_input"),
    "reasoning": Meter(inside="output", like="output"),
    "citation": Meter(inside="output", like="output"),
    "output_audio": Meter(inside="output", like="output"),
    "output_image": Meter(inside="output", like="output"),
    "output_video": Meter(inside="output", like="output"),
    "web_search": Meter(),
    "rerank_search": Meter(),
    "input_picture": Meter(),
    "output_picture": Meter(),
    "input_character": Meter(),
    "output_character": Meter(),
    "input_page": Meter(),
    "input_audio_ms": Meter(per=1000),
    "output_audio_ms": Meter(per=1000),
    "input_video_ms": Meter(per=1000),
    "output_video_ms": Meter(per=1000),
}

ROOTS = ("input", "cached_input", "output")
"""The meters that every rate has a price of, or names as unpriced."""


def priced_like(meter: str) -> tuple[str, ...]:
    """The meter and those whose price holds for it, nearest first: its own, then `like`, …"""
    chain = [meter]
    while (known := METERS.get(chain[-1])) is not None and known.like is not None:
        chain.append(known.like)
    return tuple(chain)
