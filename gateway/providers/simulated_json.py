"""A JSON value that is valid under a schema: made by construction, checked, varied in turn. Pure.

A schema's whole set of demands on one place is a list of plain schemas ("layers"): allOf adds to
it, anyOf, oneOf and if add one choice. What construction can't promise (not, oneOf's "only one",
contains) is checked where it stands, by the validator that judges answers, and the next choice is
taken. The same seed has the same value. Schemas have no references (gateway.schemas).
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count as count_from
from itertools import islice
from typing import Any

import orjson

from gateway.providers.simulated_leaves import TEXT, Layers, NoValue, given, number_for, text_for
from gateway.schemas import judge_of

TURNS_LIMIT = 32
"""Variations that are tried at one place, each with other choices."""
PARTS_LIMIT = 4_000
"""Values, of whatever size, in one answer: making holds the event loop for about as many 50 µs."""
RETRY_PARTS_LIMIT = 2_000
"""Parts of values that may be made again in one answer; a variation counts as 20 at least."""
LEAST_RETRY_PARTS = 20
JUDGED_PARTS_LIMIT = 8_000
"""Parts that are judged where they stand; after as many only the whole value still is."""
DEEP = 8
"""From this depth on what is optional is left out."""
LISTED_TRIED = 100  # values of an enum, at one place and turn
MADE_UP_LIMIT = 1_000  # names of properties; as many as minProperties may ask for

KINDS = ("string", "object", "array", "integer", "boolean", "null")
TRIED = frozenset(
    {
        "not", "oneOf", "anyOf", "if", "contains", "dependentSchemas", "propertyNames",
        "uniqueItems", "unevaluatedProperties", "unevaluatedItems", "maxProperties",
    }
)  # fmt: skip
COMBINING = frozenset({"allOf", "anyOf", "oneOf", "if", "dependentSchemas"})
_IMPLIED = {
    "object": ("properties", "required", "minProperties", "maxProperties", "additionalProperties",
               "dependentRequired", "dependentSchemas", "propertyNames"),
    "array": ("items", "prefixItems", "contains", "minItems", "maxItems", "uniqueItems"),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
}  # fmt: skip
_NUMERIC = _IMPLIED["number"]
_NOWHERE = "its root"


Judge = Callable[[Any, Any], bool]
"""Whether a value is valid under a schema."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unmet:
    """Why no value was found: keywords of the schema alone."""

    why: str


class _GaveUp(Exception):
    """As much was tried as may be."""


def json_text(seed: str, schema: Mapping[str, Any], parts: int) -> str | Unmet:
    """Return JSON that is valid under the schema, or why there is none.

    A value of more than `parts` parts, each a character at least, is ended there and not judged:
    its text is longer than `parts` characters, and is cut off anyway.
    """
    maker = _Maker(min(parts, PARTS_LIMIT), judge_of(schema))
    try:
        text = orjson.dumps(maker.value([schema], seed, 0, 0, tried=True)).decode()
    except NoValue as nothing:
        return Unmet(why=str(nothing))
    except _GaveUp:
        return Unmet(why=f"{maker.last_reason}; no variation within the limits is valid")
    except (ArithmeticError, TypeError, ValueError):
        return Unmet(why="it asks for a number that no JSON text holds")
    if maker.is_full and parts > PARTS_LIMIT:
        return Unmet(why=f"it asks for more than {PARTS_LIMIT} parts")
    return text


def _draw(seed: str) -> int:
    return hashlib.sha256(seed.encode()).digest()[0]


class _Choices:
    """One variation's number, read as one choice after the other: each turn another combination."""

    __slots__ = ("left",)

    def __init__(self, turn: int) -> None:
        self.left = turn  # the turn of what is inside, once all choices are made

    def of(self, count: int) -> int:
        self.left, chosen = divmod(self.left, count)
        return chosen


class _Maker:
    def __init__(self, parts: int, judge: Judge) -> None:
        self._parts_left, self._judge = parts, judge
        self._retry_parts_left = RETRY_PARTS_LIMIT
        self._judged_parts_left = JUDGED_PARTS_LIMIT
        self.last_reason = ""

    @property
    def is_full(self) -> bool:
        return self._parts_left <= 0

    def value(
        self, wanted: Sequence[Any], seed: str, depth: int, turn: int, *, tried: bool = False
    ) -> Any:
        """Return a value that is valid under all the schemas. Raises NoValue."""
        before = self._parts_left
        if before <= 0:
            return None
        tried = tried or _is_tried(wanted)
        nothing = NoValue("its keywords contradict each other")
        for further in range(TURNS_LIMIT if tried else 1):
            self._parts_left = before - 1
            try:
                value = self._made(wanted, seed, depth, turn + further)
            except NoValue as reason:
                nothing = reason
            else:
                if not tried or self._parts_left <= 0:
                    return value
                self._judged_parts_left -= before - self._parts_left
                if self._judged_parts_left < 0 and depth > 0:
                    return value
                if all(self._judge(value, each) for each in wanted):
                    return value
                nothing = NoValue(f"no valid value was found at {_keywords(wanted)}")
            self.last_reason = str(nothing)
            if tried:
                self._retry_parts_left -= max(LEAST_RETRY_PARTS, before - self._parts_left)
                if self._retry_parts_left < 0:
                    raise _GaveUp
        raise nothing

    def _made(self, wanted: Sequence[Any], seed: str, depth: int, turn: int) -> Any:
        choices = _Choices(turn)
        layers = list(_expanded(wanted, choices))
        listed = _listed(layers)
        if listed is not None:
            values, others = listed
            return self._one_of(values, others, _draw(seed) + choices.left)
        kinds = _kinds(layers)
        kind = kinds[0] if len(kinds) == 1 else kinds[choices.of(len(kinds))]
        turn = choices.left
        if kind == "object":
            return self._object(layers, seed, depth, choices)
        if kind == "array":
            return self._array(layers, seed, depth, choices)
        if kind in ("integer", "number"):
            numeric = [{key: each[key] for key in _NUMERIC if key in each} for each in layers]
            bounds = [each for each in numeric if each]
            if not bounds:
                return turn
            return number_for(
                bounds,
                turn,
                integer=kind == "integer",
                fits=lambda value: all(self._judge(value, each) for each in bounds),
            )
        if kind == "boolean":
            return (_draw(seed) + turn) % 2 == 1
        return None if kind == "null" else text_for(layers, seed, turn)

    def _one_of(self, listed: list[Any], wanted: Layers, first: int) -> Any:
        for further in range(min(len(listed), LISTED_TRIED)):
            value = listed[(first + further) % len(listed)]
            if all(self._judge(value, each) for each in wanted):
                return value
        raise NoValue("no value of its enum or const is valid")

    def _array(self, layers: Layers, seed: str, depth: int, choices: _Choices) -> list[Any]:
        least = int(max(given(layers, "minItems"), default=0))
        most = min(given(layers, "maxItems"), default=None)
        placed = [
            layer["contains"]
            for layer in layers
            if "contains" in layer
            for _ in range(int(layer.get("minContains", 1)))
        ]
        prefix = max((len(_prefix(layer)) for layer in layers), default=0)
        # What must be contained comes behind the prefix, else from the beginning on.
        at = 0 if placed and prefix and choices.of(2) else prefix
        count = max(least, prefix if depth < DEEP else 0, at + len(placed) if placed else 0)
        count = max(count, 1 if depth < DEEP else 0)
        if most is not None:
            count = min(count, int(most))
        unique = True in given(layers, "uniqueItems")
        turns = count_from(choices.left)
        made: list[Any] = []
        seen: set[bytes] = set()
        for index in range(count):
            wanted = [_item(layer, index) for layer in layers]
            if at <= index < at + len(placed):
                wanted.append(placed[index - at])
            try:
                if unique:
                    made.append(self._unlike(wanted, seed, depth, turns, seen))
                else:
                    made.append(self.value(wanted, f"{seed}.{index}", depth + 1, choices.left))
            except NoValue:
                if index < max(least, at + len(placed) if placed else 0):
                    raise
                break
        if len(made) < least:
            raise NoValue("minItems is above maxItems")
        return made

    def _unlike(
        self, wanted: list[Any], seed: str, depth: int, turns: Iterator[int], seen: set[bytes]
    ) -> Any:
        """Return an item that isn't among `seen`; the turns that were taken are not taken again."""
        before = self._parts_left
        for turn in islice(turns, TURNS_LIMIT):
            self._parts_left = before
            value = self.value(wanted, seed, depth + 1, turn)
            written = orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
            if written not in seen or self._parts_left <= 0:
                seen.add(written)
                return value
        raise NoValue("uniqueItems asks for more different items than were found")

    def _object(
        self, layers: list[Mapping[str, Any]], seed: str, depth: int, choices: _Choices
    ) -> dict[str, Any]:
        declared = list(dict.fromkeys(n for each in given(layers, "properties") for n in each))
        required = _closed({n for each in given(layers, "required") for n in each}, layers)
        optional = [name for name in declared if name not in required]
        lean = depth >= DEEP or bool(optional and choices.of(2))
        turn = choices.left
        least = int(max(given(layers, "minProperties"), default=0))
        most = min(given(layers, "maxProperties"), default=None)
        made: dict[str, Any] = {}
        # In the order of the schema, then what is required and not declared.
        for name in (*declared, *sorted(required - set(declared))):
            needed = _closed({name}, layers) - set(made)
            if name not in required:
                if lean and len(made) >= least:
                    continue
                others = required - set(made) - needed
                if most is not None and len(made) + len(needed) + len(others) > most:
                    continue
            try:
                made[name] = self._member(layers, name, seed, depth, turn)
                for other in sorted(needed - set(declared) - required - {name}):
                    made[other] = self._member(layers, other, seed, depth, turn)
            except NoValue:
                if name in required:
                    raise
                made.pop(name, None)
        for number in range(MADE_UP_LIMIT):
            if len(made) >= least:
                break
            name = self._name(layers, seed, depth, number)
            if name not in made:
                made[name] = self._member(layers, name, seed, depth, turn + number)
        triggered = [
            schema
            for each in given(layers, "dependentSchemas")
            for name, schema in each.items()
            if name in made
        ]
        if triggered and depth < 2 * DEEP:
            bare = [{k: v for k, v in each.items() if k not in COMBINING} for each in layers]
            more = list(_expanded([*bare, *triggered], choices))
            return self._object(more, seed, depth + 1, _Choices(2 * turn + lean))
        return made

    def _member(self, layers: Layers, name: str, seed: str, depth: int, turn: int) -> Any:
        wanted = []
        for layer in layers:
            declared = layer.get("properties", {})
            others = layer.get("additionalProperties", True)
            wanted.append(declared.get(name, others))
        return self.value(wanted, f"{seed}.{name}", depth + 1, turn)

    def _name(self, layers: Layers, seed: str, depth: int, number: int) -> str:
        named = given(layers, "propertyNames")
        if not named:
            return f"{TEXT}{number or ''}"
        name = self.value([{"type": "string"}, *named], seed, depth + 1, number)
        return str(name)


def _is_tried(wanted: Sequence[Any]) -> bool:
    return any(
        isinstance(each, Mapping)
        and (not TRIED.isdisjoint(each) or _is_tried(each.get("allOf", ())))
        for each in wanted
    )


def _expanded(wanted: Sequence[Any], choices: _Choices) -> Iterator[Mapping[str, Any]]:
    """Yield the plain schemas that must all hold, with one choice of each anyOf, oneOf and if."""
    stack = list(reversed(wanted))
    while stack:
        each = stack.pop()
        if each is False:
            raise NoValue("false, or a $ref that never ends, allows no value")
        if not isinstance(each, Mapping):
            continue
        yield each
        stack.extend(reversed(each.get("allOf", ())))
        for keyword in ("anyOf", "oneOf"):
            options = each.get(keyword)
            if options:
                stack.append(options[choices.of(len(options))])
        if "if" in each and ("then" in each or "else" in each):
            way = choices.of(3)
            if way == 1:
                stack.extend((each["if"], each.get("then", True)))
            elif way == 2:
                stack.append(each.get("else", True))


def _listed(layers: Layers) -> tuple[list[Any], list[Mapping[str, Any]]] | None:
    """Return the values that a const or enum allows, and what else must hold; None: no such."""
    for keyword in ("const", "enum"):
        for place, layer in enumerate(layers):
            if keyword in layer:
                rest = {key: value for key, value in layer.items() if key != keyword}
                values = [layer[keyword]] if keyword == "const" else layer[keyword]
                others = [*layers[:place], rest, *layers[place + 1 :]]
                return values, [each for each in others if each]
    return None


def _kinds(layers: Layers) -> list[str]:
    """Return the types that all layers allow; without a type first what their keywords imply."""
    allowed: list[str] | None = None
    for named in given(layers, "type"):
        types = [named] if isinstance(named, str) else list(named)
        if allowed is None:
            allowed = types
            continue
        both = [each for each in allowed if each in types]
        if "integer" not in both and {"integer", "number"} <= {*allowed, *types}:
            both.append("integer")
        allowed = both
    if allowed == []:
        raise NoValue("its types exclude each other")
    if allowed is not None:
        return allowed
    implied = [kind for kind, words in _IMPLIED.items() if any(given(layers, w) for w in words)]
    return [*implied, *(kind for kind in KINDS if kind not in implied)]


def _prefix(layer: Mapping[str, Any]) -> Sequence[Any]:
    items = layer.get("items")
    found = layer.get("prefixItems", items if isinstance(items, list) else ())
    return found if isinstance(found, list) else ()


def _item(layer: Mapping[str, Any], index: int) -> Any:
    prefix = _prefix(layer)
    if index < len(prefix):
        return prefix[index]
    items = layer.get("items", True)
    return layer.get("additionalItems", True) if isinstance(items, list) else items


def _closed(names: set[str], layers: Layers) -> set[str]:
    """Return the names and all that dependentRequired demands beside them."""
    depends = given(layers, "dependentRequired")
    new = names
    while new:
        new = {n for each in depends for name in new for n in each.get(name, ())} - names
        names = names | new
    return names


def _keywords(wanted: Sequence[Any]) -> str:
    found = sorted({key for each in wanted if isinstance(each, Mapping) for key in each} & TRIED)
    return ", ".join(found) or _NOWHERE
