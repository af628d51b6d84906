"""What was read of a public price table, and the rate table that is made of it. Pure.

Numbers stay the digits that stand in the file until they are whole micro-units: none is ever a
float. What a rate can't express is left out and named, never guessed or rounded.
"""

import json
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from ledger.invoices.fields import refused_character
from ledger.money import INT64_MAX, parse_scaled
from ledger.rates import Meters, Rate, RateTable, Tier

FORMATS = ("genai", "litellm")
FILE_LIMIT_BYTES = 64 << 20
CURRENCY = "USD"  # of both public tables
PER_TOKEN, PER_MILLION, PER_THOUSAND = 12, 6, 9
"""Decimal places from a price for one, a million or a thousand to micro-units per million."""

_TEXT = re.compile(r'"(?:[^"\\]++|\\.)*+"')


class Digits(str):
    """A number as the file writes it."""

    __slots__ = ()


class NotExpressed(ValueError):
    """A price that no rate can hold; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """Something that a public table says of a model and no rate of ours holds."""

    key: str
    field: str
    value: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """`rates` by key, several of one where the price depends on tier or time.

    `models`: key -> (provider, model) as the table names them, for comparing tables. `aliases`:
    further exact names -> key; names that a table matches by a pattern are not among them.
    """

    source: str
    rates: tuple[Rate, ...]
    models: Mapping[str, tuple[str, str]]
    aliases: Mapping[str, str]
    left_out: tuple[LeftOut, ...]


@dataclass(slots=True, kw_only=True)
class Prices:
    """The prices of one rate while they are collected: threshold (-1: the base) -> meter -> micro.

    Meters are those of `ledger.meters`, its roots and "request".
    """

    bands: dict[int, dict[str, int]]

    def put(self, meter: str, micro: int, over: int = -1) -> None:
        self.bands.setdefault(over, {})[meter] = micro

    def drop(self, meter: str) -> None:
        """Forget a meter in every band."""
        for band in self.bands.values():
            band.pop(meter, None)


def parsed(content: bytes) -> Any:
    """The JSON of a file, gzip or not, its numbers as `Digits`. ValueError for anything else."""
    if len(content) > FILE_LIMIT_BYTES:
        raise ValueError(f"the file has {len(content):,} bytes; {FILE_LIMIT_BYTES:,} are the limit")
    if content.startswith(b"\x1f\x8b"):
        unpacker = zlib.decompressobj(zlib.MAX_WBITS | 16)
        try:
            content = unpacker.decompress(content, FILE_LIMIT_BYTES)
        except zlib.error as error:
            raise ValueError(f"the file starts as gzip and can't be unpacked: {error}") from None
        if not unpacker.eof:
            raise ValueError(f"the file is cut, or unpacks to over {FILE_LIMIT_BYTES:,} bytes")
    try:
        text = content.decode(json.detect_encoding(content))
        tree = json.loads(text, parse_float=Digits, parse_int=Digits, parse_constant=_refused)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"the file is no JSON: {error}") from None
    _check_texts(text)
    return tree


def _check_texts(text: str) -> None:
    """ValueError where a text of a JSON document has what no report may have either (REC-1)."""
    for each in _TEXT.finditer(text):
        if "\\" in each[0] or refused_character(each[0]) is not None:
            found = refused_character(json.loads(each[0]))
            if found is not None:
                line = text.count("\n", 0, each.start()) + 1
                column = each.start() - text.rfind("\n", 0, each.start())
                raise ValueError(
                    f"CHARACTER: line {line}, column {column}: the text has {found}, which is no "
                    "character of one"
                )


def micro_of(value: Any, places: int) -> int:
    """A price in micro-units per million, exactly. NotExpressed where it is none or is finer."""
    if not isinstance(value, Digits):
        raise NotExpressed("it is no number")
    try:
        micro = parse_scaled(value, places)
    except ValueError:
        raise NotExpressed("it is finer than a micro-unit per million") from None
    if micro < 0:
        raise NotExpressed("it is negative")
    if micro > INT64_MAX:
        raise NotExpressed("it is larger than a column can hold")
    return micro


def threshold_of(text: Any) -> int:
    """A number of tokens from which other prices hold. NotExpressed where it is none."""
    if not isinstance(text, str) or re.fullmatch(r"[0-9]{1,15}(\.0+)?", text) is None:
        raise NotExpressed("its threshold is no whole number of tokens")
    return int(text.partition(".")[0])


def rate_from(key: str, prices: Prices, **where: Any) -> Rate:
    """The rate of collected prices; `where` are the Rate's fields of time, place and tier.

    Cached input without a price is priced as input, as every meter of tokens is priced as what it
    is inside of. Input or output without one is named in `unpriced`. A price that a band does not
    name goes on from the band below.
    """
    base = dict(prices.bands.get(-1, {}))
    tiers, known = [], dict(base)
    for over in sorted(over for over in prices.bands if over >= 0):
        known = known | prices.bands[over]
        own = base | known
        tiers.append(
            Tier(
                over_input_tokens=over,
                input_micro_per_mtok=own.get("input", 0),
                output_micro_per_mtok=own.get("output", 0),
                cached_input_micro_per_mtok=own.get("cached_input", own.get("input", 0)),
                meters=_meters(own),
            )
        )
    missing = [name for name in ("input", "output") if name not in base]
    if "input" not in base and "cached_input" not in base:
        missing.append("cached_input")
    return Rate(
        key=key,
        input_micro_per_mtok=base.get("input", 0),
        output_micro_per_mtok=base.get("output", 0),
        cached_input_micro_per_mtok=base.get("cached_input", base.get("input", 0)),
        fixed_pico=base.get("request", 0),
        tiers=tuple(tiers),
        meters=_meters(base),
        unpriced=tuple(missing),
        **where,
    )


def rate_table(
    imported: Imported, *, version: str, effective_from_us: int,
    names: Mapping[str, str] | None = None,
) -> RateTable:  # fmt: skip
    """The table that is to be drafted: all rates, or with `names` those of the models named.

    `names`: the key to price (a route_id or identity_id) -> public key or alias. LookupError names
    what the import does not have; nothing is matched by its beginning.
    """
    rates = imported.rates
    if names is not None:
        by_key: dict[str, list[Rate]] = {}
        for rate in imported.rates:
            by_key.setdefault(rate.key, []).append(rate)
        wanted = {ours: imported.aliases.get(name, name) for ours, name in names.items()}
        unknown = sorted(names[ours] for ours, key in wanted.items() if key not in by_key)
        if unknown:
            raise LookupError(f"{imported.source} has no price of exactly {', '.join(unknown[:8])}")
        rates = tuple(
            msgspec.structs.replace(rate, key=ours)
            for ours, key in wanted.items()
            for rate in by_key[key]
        )
    return RateTable(
        version=version, effective_from_us=effective_from_us, currency=CURRENCY, rates=rates
    )


def _meters(prices: Mapping[str, int]) -> Meters:
    plain = ("input", "output", "cached_input", "request")
    return tuple(sorted((name, micro) for name, micro in prices.items() if name not in plain))


def _refused(constant: str) -> Any:
    raise ValueError(f"{constant} is no price")
