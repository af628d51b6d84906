"""Numbers and strings within all the bounds that several schemas set at once. Pure.

`turn` counts variations: another turn gives another value where there is one.
"""

import hashlib
import math
import uuid
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import reduce
from typing import Any

from gateway.providers.simulated_pattern import text_matching

Layers = Sequence[Mapping[str, Any]]

MULTIPLES_TRIED = 16
"""Multiples of a fraction that are looked at: not each one is one in binary floating point."""
PARTS_OF_A_SPAN = 64
LARGEST_INTEGER = 2**63 - 1  # of a JSON text here; a larger one is written as a float
TEXT = "simulated"


class NoValue(Exception):
    """No value was found; the message names the keyword, never a value of the schema."""


def given(layers: Layers, keyword: str) -> list[Any]:
    """Return what the layers say of a keyword, in their order."""
    return [layer[keyword] for layer in layers if keyword in layer]


def text_for(layers: Layers, seed: str, turn: int) -> str:
    """Return a string within minLength, maxLength, format and pattern. Raises NoValue."""
    least = int(max(given(layers, "minLength"), default=0))
    most = math.floor(min(given(layers, "maxLength"))) if given(layers, "maxLength") else None
    if most is not None and most < least:
        raise NoValue("minLength is above maxLength")
    patterns = given(layers, "pattern")
    if patterns:
        text = text_matching(patterns[0], least, most)
        if text is None or len(set(patterns)) > 1:
            raise NoValue("pattern is not of a simple kind")
        return text
    for name in given(layers, "format"):
        made = FORMATS.get(name)
        text = "" if made is None else _lengthened(made(seed, turn), least)
        if text and least <= len(text) and (most is None or len(text) <= most):
            return text
    suffix = str(turn) if turn else ""
    if most is not None and len(TEXT) + len(suffix) > most:
        return (TEXT[: max(0, most - len(suffix))] + suffix)[:most]
    return (TEXT + suffix).ljust(least, "-")


def _lengthened(text: str, least: int) -> str:
    return text.replace(TEXT, TEXT + "x" * max(0, least - len(text)), 1)


def _uuid(seed: str, turn: int) -> str:
    drawn = hashlib.sha256(f"{seed}/{turn}".encode()).digest()
    return str(uuid.UUID(bytes=drawn[:16], version=4))


FORMATS: Mapping[str, Callable[[str, int], str]] = {
    "date": lambda _, turn: f"{2026 + turn // 28 % 1_000}-01-{1 + turn % 28:02}",
    "date-time": lambda _, turn: f"{2026 + turn // 28 % 1_000}-01-{1 + turn % 28:02}T08:00:00Z",
    "time": lambda _, turn: f"{turn // 60 % 24:02}:{turn % 60:02}:00Z",
    "duration": lambda _, turn: f"PT{turn + 1}S",
    "email": lambda _, turn: f"{TEXT}{turn or ''}@example.org",
    "idn-email": lambda _, turn: f"{TEXT}{turn or ''}@example.org",
    "hostname": lambda _, turn: f"{TEXT}{turn or ''}.example.org",
    "idn-hostname": lambda _, turn: f"{TEXT}{turn or ''}.example.org",
    "ipv4": lambda _, turn: f"192.0.2.{1 + turn % 254}",
    "ipv6": lambda _, turn: f"2001:db8::{1 + turn % 65_535:x}",
    "uri": lambda _, turn: f"https://example.org/{TEXT}{turn or ''}",
    "uri-reference": lambda _, turn: f"/{TEXT}{turn or ''}",
    "iri": lambda _, turn: f"https://example.org/{TEXT}{turn or ''}",
    "iri-reference": lambda _, turn: f"/{TEXT}{turn or ''}",
    "uri-template": lambda _, turn: f"/{TEXT}{turn or ''}",
    "uuid": _uuid,
    "json-pointer": lambda _, turn: f"/{TEXT}{turn or ''}",
    "relative-json-pointer": lambda _, turn: str(turn),
    "regex": lambda _, turn: f"{TEXT}{turn or ''}",
}


def number_for(
    layers: Layers, turn: int, *, integer: bool, fits: Callable[[int | float], bool]
) -> int | float:
    """Return a number within bounds, exclusive ones too, and multiples. Raises NoValue.

    The smallest from 0 or from the lower bound on. `fits` judges what binary floating point made
    of it.
    """
    low, low_open = _bound(layers, "minimum", "exclusiveMinimum", highest=True)
    high, high_open = _bound(layers, "maximum", "exclusiveMaximum", highest=False)
    steps = [_exact(step) for step in given(layers, "multipleOf")]
    exact = not any(isinstance(step, float) for step in given(layers, "multipleOf"))
    step = reduce(_common, steps, Fraction(1)) if integer or not steps else reduce(_common, steps)
    if low is None and high is not None and (high < 0 or (high == 0 and high_open)):
        first, count, step = _first(-high, step, high_open), None, -step
        first = -first
    else:
        first = _first(low or Fraction(0), step, low_open)
        count = None if high is None else _count(first, high, step, high_open)
        if count == 0 and not integer and not steps and low is not None and high is not None:
            step = (high - low) / PARTS_OF_A_SPAN  # no whole number lies between the bounds
            first, count = (low + step if low_open else low), PARTS_OF_A_SPAN - 1
    if count == 0:
        raise NoValue("no number lies within the bounds")
    for further in range(MULTIPLES_TRIED):
        place = turn + further
        value = _json_number(first + step * (place if count is None else place % count))
        if value is None:
            continue
        if (isinstance(value, int) and exact) or fits(value):
            return value
    raise NoValue("no number was found within the bounds")


def _exact(number: float) -> Fraction:
    """Return the number as it is written in decimal: 0.1 is a tenth."""
    return Fraction(repr(number)) if isinstance(number, float) else Fraction(number)


def _bound(
    layers: Layers, inclusive: str, exclusive: str, *, highest: bool
) -> tuple[Fraction | None, bool]:
    """Return the strictest bound and whether it is itself outside."""
    sign = 1 if highest else -1
    found = [(_exact(each) * sign, False) for each in given(layers, inclusive)]
    found += [
        (_exact(each) * sign, True)
        for each in given(layers, exclusive)
        if not isinstance(each, bool)  # draft 4's flag
    ]
    if not found:
        return None, False
    value, is_open = max(found)
    return value * sign, is_open


def _common(one: Fraction, other: Fraction) -> Fraction:
    """Return the least common multiple."""
    return Fraction(
        math.lcm(one.numerator * other.denominator, other.numerator * one.denominator),
        one.denominator * other.denominator,
    )


def _first(low: Fraction, step: Fraction, is_open: bool) -> Fraction:
    first = -(-low // step) * step
    return first + step if is_open and first == low else first


def _count(first: Fraction, high: Fraction, step: Fraction, is_open: bool) -> int:
    count = (high - first) // step + 1
    return max(0, count - 1 if is_open and first + step * (count - 1) == high else count)


def _json_number(value: Fraction) -> int | float | None:
    if value.denominator == 1 and abs(value) <= LARGEST_INTEGER:
        return int(value)
    try:
        return float(value)
    except OverflowError:
        return None
