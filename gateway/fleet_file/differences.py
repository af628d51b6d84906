"""What differs between two values, field by field: for pages, the API, commands and audit. Pure.

    routes[fast-v2].queue_limit: 256 -> 128
    edges[fast-v2 -> long-context-v4]: removed

Elements of a list are matched by what identifies them, not by their place. Two values are equal if
and only if there is no difference.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import msgspec

from gateway.fleet_file.named import label_of, named


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """One field, element or list that is not the same. `before` and `after` as JSON has them."""

    path: str
    kind: Literal["added", "removed", "changed"]
    before: Any = None
    after: Any = None

    def __str__(self) -> str:
        if self.kind == "changed":
            return f"{self.path}: {shown(self.before)} -> {shown(self.after)}"
        value = self.after if self.kind == "added" else self.before
        plain = not isinstance(value, Mapping | list)
        return f"{self.path}: {self.kind}" + (f" ({shown(value)})" if plain else "")


def differences(before: object, after: object, at: str = "") -> tuple[Difference, ...]:
    """Every difference between two values or trees, by path; `at` goes before each path."""
    return tuple(_compared(named(before, whole=True), named(after, whole=True), at))


def shown(value: Any) -> str:
    """A value of a tree as text on one line, the same for the same value."""
    if isinstance(value, str):
        return value or '""'
    return msgspec.json.encode(value, order="deterministic").decode()


def _compared(before: Any, after: Any, at: str) -> Iterator[Difference]:
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for key in sorted({*before, *after}):
            yield from _field(before, after, key, f"{at}.{key}" if at else key)
    elif _keyed(before) and _keyed(after):
        yield from _elements(before, after, at)
    elif before != after:
        yield Difference(path=at, kind="changed", before=before, after=after)


def _field(
    before: Mapping[str, Any], after: Mapping[str, Any], key: str, at: str
) -> Iterator[Difference]:
    if key in before and key in after:
        yield from _compared(before[key], after[key], at)
    elif key in after:
        yield from _whole(after[key], at, "added")
    else:
        yield from _whole(before[key], at, "removed")


def _whole(value: Any, at: str, kind: Literal["added", "removed"]) -> Iterator[Difference]:
    """What is there on one side alone: a list of elements as its elements."""
    if _keyed(value) and value:
        for label, element in labelled(value):
            yield from _whole(element, f"{at}[{label}]", kind)
    elif kind == "added":
        yield Difference(path=at, kind=kind, after=value)
    else:
        yield Difference(path=at, kind=kind, before=value)


def _elements(before: Sequence[Any], after: Sequence[Any], at: str) -> Iterator[Difference]:
    old, new = dict(labelled(before)), dict(labelled(after))
    for label in sorted({*old, *new}):
        yield from _field(old, new, label, f"{at}[{label}]")
    stayed = [label for label in old if label in new]
    moved = [label for label in new if label in old]
    if stayed != moved:
        yield Difference(path=f"{at} (order)", kind="changed", before=stayed, after=moved)


def labelled(elements: Sequence[Any]) -> Iterator[tuple[str, Any]]:
    """(what identifies an element, the element), each label once: a second one gets its place."""
    used: set[str] = set()
    for place, element in enumerate(elements):
        label = label_of(element) or str(place)
        while label in used:
            label = f"{label} #{place}"
        used.add(label)
        yield label, element


def _keyed(value: Any) -> bool:
    """Whether it is a list whose elements have fields; an empty list is one, too."""
    return isinstance(value, list) and all(isinstance(each, Mapping) for each in value)
