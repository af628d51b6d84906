"""Where in a payload a count stands, written as a short sum: "prompt_tokens + a.b | c - d". Pure.

`+` and `-` join terms, `|` names other places of one term (the first that has a count is taken),
`.` goes into an object, and `[AUDIO]` picks the elements of a list that are of that modality or
lifetime. All of it is written by this package: a payload never is.
"""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

COUNT_LIMIT = 100_000_000_000
"""A count above it is no count: it is treated as missing."""
LIST_LIMIT = 64  # elements of a list of details that are looked at
_PICKED_BY = ("modality", "ttl")
_STEP = re.compile(r"([A-Za-z_0-9]+)(?:\[([A-Za-z0-9|]+)\])?")

Step = tuple[str, tuple[str, ...]]  # a field and, of a list, which elements


class Term(NamedTuple):
    """One term of a sum: its sign, and the places that may have it."""

    sign: int
    places: tuple[tuple[Step, ...], ...]


class Sum(NamedTuple):
    """A compiled sum: its terms, and the fields of a payload that any of them begins with."""

    terms: tuple[Term, ...]
    fields: frozenset[str]


class Found(NamedTuple):
    """A sum over a payload. `total` None: its first term is missing. `bad`: some is no count."""

    total: int | None
    bad: bool


def compiled(text: str) -> Sum:
    """The sum that a text stands for. ValueError for a text that is none."""
    terms, sign = [], 1
    for part in re.split(r"\s([+-])\s", text):
        if part in ("+", "-"):
            sign = 1 if part == "+" else -1
            continue
        places = [tuple(map(_step, place.strip().split("."))) for place in _alternatives(part)]
        terms.append(Term(sign=sign, places=tuple(places)))
    fields = frozenset(place[0][0] for term in terms for place in term.places)
    return Sum(terms=tuple(terms), fields=fields)


def found(wanted: Sum, payload: Mapping[str, Any]) -> Found:
    """The sum over a payload, never below zero. Missing terms but the first one count nothing."""
    total, first_missing, bad = 0, False, False
    for position, term in enumerate(wanted.terms):
        value, wrong = _first(term.places, payload)
        bad = bad or wrong
        if value is None:
            first_missing = first_missing or position == 0
        else:
            total += term.sign * value
    return Found(total=None if first_missing else max(total, 0), bad=bad or total < 0)


def any_found(wanted: Sum, payload: Mapping[str, Any]) -> Found:
    """As `found`, but missing only where every term is."""
    values = [(term.sign, *_first(term.places, payload)) for term in wanted.terms]
    total = sum(sign * value for sign, value, _ in values if value is not None)
    there = any(value is not None for _, value, _ in values)
    bad = any(wrong for _, _, wrong in values) or total < 0
    return Found(total=max(total, 0) if there else None, bad=bad)


def _alternatives(part: str) -> list[str]:
    return re.split(r"\s\|\s", part.strip())


def _step(text: str) -> Step:
    match = _STEP.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is no step of a path")
    return match[1], tuple(match[2].split("|")) if match[2] else ()


def _first(
    places: tuple[tuple[Step, ...], ...], payload: Mapping[str, Any]
) -> tuple[int | None, bool]:
    """(the count of the first place that has one, whether some place held what is no count)."""
    bad = False
    for place in places:
        values = _at(place, payload)
        counts = [count for value in values if (count := count_of(value)) is not None]
        bad = bad or len(counts) < len(values)
        if counts:
            return sum(counts), bad
    return None, bad


def _at(place: tuple[Step, ...], payload: Any) -> list[Any]:
    """What stands at a place; null is nothing."""
    at: list[Any] = [payload]
    for name, picked in place:
        inner = [value[name] for value in at if isinstance(value, dict) and name in value]
        if picked:
            lists = [value[:LIST_LIMIT] for value in inner if isinstance(value, list)]
            inner = [
                element
                for elements in lists
                for element in elements
                if isinstance(element, dict)
                and any(element.get(field) in picked for field in _PICKED_BY)
            ]
        at = [value for value in inner if value is not None]
    return at


def count_of(value: object, limit: int = COUNT_LIMIT) -> int | None:
    """A count: a whole number from 0 to the limit, however it is written. None: it is none.

    5.0 is 5, as servers write it whose language has one kind of number. true, "5", 12.5, NaN and
    what is beyond the limit are no counts. A zero is a zero.
    """
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return value if 0 <= value <= limit else None
