"""The usage of a stream, from its reports: what one answer would have said (CST-8)."""

from collections.abc import Mapping
from typing import Any

from ledger.rates import Usage
from ledger.usage.conventions import Convention
from ledger.usage.reading import Normalised, normalise, usage_object

DEPTH_LIMIT = 8


class StreamUsage:
    """Takes the events of a stream in their order; `normalised` is what they say together.

    By the convention's `stream` a later report replaces what it names, or adds to it; what a
    report does not name stays as it was. A final total that comes after running ones is just the
    last of them.
    """

    __slots__ = ("_convention", "_merged")

    def __init__(self, convention: Convention) -> None:
        self._convention = convention
        self._merged: dict[str, Any] | None = None

    def take(self, event: Mapping[str, Any]) -> None:
        """Adds one event's usage, if it has any."""
        said = usage_object(self._convention, event)
        if said is None:
            return
        if self._merged is None:
            self._merged = {}
        _merge(self._merged, said, adds=self._convention.stream == "deltas", depth=0)

    def normalised(self, *, counted: Usage | None = None) -> Normalised | None:
        """As `ledger.usage.reading.normalise` of the whole answer."""
        body: Any = self._merged
        for name in reversed(self._convention.roots[0]):
            body = {name: body}
        return normalise(self._convention, body, counted=counted)


def _merge(into: dict[str, Any], said: Mapping[str, Any], *, adds: bool, depth: int) -> None:
    for name, value in said.items():
        known = into.get(name)
        if value is None:
            continue  # a null takes nothing back
        if isinstance(value, dict) and depth < DEPTH_LIMIT:
            inner = known if isinstance(known, dict) else {}
            into[name] = inner
            _merge(inner, value, adds=adds, depth=depth + 1)
        elif adds and _number(value) and _number(known):
            into[name] = known + value
        else:
            into[name] = value


def _number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
