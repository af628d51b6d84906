"""Values as trees of named fields, and back with every fault of a tree told by its path. Pure.

Policies and rate tables are kept as arrays; what a person reads, writes or sends names each field.
Fields at their default are left out, so a tree holds what was decided and nothing else.
"""

from collections.abc import Mapping
from dataclasses import dataclass, is_dataclass
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from functools import cache
from typing import Any, Final, TypeAlias, TypeVar

import msgspec
from msgspec import inspect

T = TypeVar("T")
Path: TypeAlias = tuple[str | int, ...]

INT_LIMIT: Final = 2**63  # what a ledger's column holds
INSTANT_LIMIT_US: Final = 32_503_680_000_000_000  # the year 3000: any zone's calendar shows it
TEXT_LIMIT_CHARS: Final = 2_000
FAULTS_LIMIT: Final = 100
INSTANT_ENDINGS: Final = ("_at_us", "_from_us", "_to_us", "_until_us")
IDENTIFIED_BY: Final = (
    ("route_id",), ("name",), ("from_route", "to_route"), ("priority",), ("arm",), ("version",),
    ("evaluation_id",), ("over_input_tokens",),
    ("key", "provider", "region", "service_tier", "valid_from_us"),
)  # fmt: skip
"""What tells an element from its neighbours, by its fields; elements without go by their place."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What is wrong with a tree, where, and what to do. Never repeats a value: it may be secret."""

    path: Path
    what: str
    action: str

    def __str__(self) -> str:
        return self.shown()

    def shown(self, tree: object = None) -> str:
        """One line; with the tree, elements go by what identifies them."""
        return f"{dotted(self.path, tree)}: {self.what}. {self.action}."


def dotted(path: Path, tree: object = None) -> str:
    """A path as text: `routes[2].prediction.queue_us`; of the whole: `it`.

    With the tree, elements go by what identifies them: `routes[fast-v2].prediction.queue_us`.
    """
    text, node = "", tree
    for part in path:
        node = _step(node, part)
        if isinstance(part, str):
            text += f".{part}"
        else:
            label = label_of(node) if isinstance(node, Mapping) else None
            text += f"[{label or part}]"
    return text.removeprefix(".") or "it"


def _step(node: object, part: str | int) -> object:
    if isinstance(node, Mapping):
        return node.get(part)
    if isinstance(node, list | tuple) and isinstance(part, int) and part < len(node):
        return node[part]
    return None


def label_of(element: Mapping[str, Any]) -> str | None:
    """The text by which a person knows an element; None where nothing identifies it."""
    for fields in IDENTIFIED_BY:
        if fields[0] in element:
            joint = " -> " if fields[0] == "from_route" else " "
            return joint.join(str(element[name]) for name in fields if element.get(name))
    return None


def named(value: object, *, whole: bool = False) -> Any:
    """The tree of a value: structs as mappings of the fields that differ from their default.

    `whole`: with the fields at their default, too, all but those that are None.
    """
    if isinstance(value, msgspec.Struct) or is_dataclass(value):
        fields = [(field, getattr(value, field.name)) for field in _fields(type(value))]
        return {
            field.name: named(each, whole=whole)
            for field, each in fields
            if (whole and each is not None) or field.required or each != _default(field)
        }
    if isinstance(value, Mapping):
        return {key: named(each, whole=whole) for key, each in value.items()}
    if isinstance(value, tuple | list):
        return [named(each, whole=whole) for each in value]
    return value


def read(kind: type[T], tree: object, at: Path = ()) -> tuple[T | None, tuple[Fault, ...]]:
    """(the value of a tree, nothing) or (None, every fault). An instant may be a datetime."""
    wanted: object = kind
    reader = _Reader()
    value = reader.value(_type(wanted), tree, at)
    if reader.faults:
        return None, tuple(reader.faults[:FAULTS_LIMIT])
    if not isinstance(value, kind):  # only where a fault was found, and that has returned
        raise TypeError(f"{kind.__name__} was read as {type(value).__name__}")
    return value, ()


def instant_us(value: datetime) -> int:
    """The microseconds of an aware datetime since 1970."""
    return (value - _EPOCH) // _MICROSECOND


def instant(us: int) -> datetime:
    """The datetime in UTC of microseconds since 1970. OverflowError beyond the year 9999."""
    return _EPOCH + us * _MICROSECOND


def is_instant(name: str) -> bool:
    """Whether a field holds a moment, by its name."""
    return name.endswith(INSTANT_ENDINGS)


@cache
def _type(kind: object) -> inspect.Type:
    return inspect.type_info(kind)


def _fields(kind: object) -> tuple[inspect.Field, ...]:
    found = _type(kind)
    if not isinstance(found, inspect.StructType | inspect.DataclassType):
        raise TypeError(f"{kind} has no fields by name")
    return found.fields


def _default(field: inspect.Field) -> Any:
    if field.default_factory is not msgspec.NODEFAULT:
        return field.default_factory()
    return field.default


class _Reader:
    """Walks a type and a tree together, and collects what doesn't fit."""

    def __init__(self) -> None:
        self.faults: list[Fault] = []

    def value(self, kind: inspect.Type, tree: object, path: Path) -> Any:
        match kind:
            case inspect.StructType() | inspect.DataclassType():
                return self._struct(kind, tree, path)
            case inspect.DictType():
                return self._mapping(kind, tree, path)
            case inspect.VarTupleType():
                return self._sequence(kind, tree, path)
            case inspect.TupleType():
                return self._fixed(kind, tree, path)
            case inspect.UnionType():
                return self._union(kind, tree, path)
            case inspect.LiteralType():
                allowed = ", ".join(str(value) for value in kind.values)
                return self._scalar(tree in kind.values, tree, path, f"one of {allowed}")
            case inspect.BoolType():
                return self._scalar(isinstance(tree, bool), tree, path, "true or false")
            case inspect.IntType():
                return self._integer(tree, path)
            case inspect.StrType():
                return self._text(tree, path)
        raise TypeError(f"{dotted(path)} is of a type that no tree can hold: {kind}")

    def _struct(
        self, kind: inspect.StructType | inspect.DataclassType, tree: object, path: Path
    ) -> Any:
        if not isinstance(tree, Mapping):
            return self._fault(path, "it is no table of named fields", "Give its fields by name")
        fields = {field.name: field for field in kind.fields}
        for key in tree:
            if key not in fields:
                near = get_close_matches(str(key), fields, 1)
                known = f"Did you mean {near[0]}" if near else f"Use: {', '.join(fields)}"
                self._fault((*path, str(key)), "there is no such field", known)
        values = {}
        for name, field in fields.items():
            if name in tree:
                values[name] = self.value(field.type, tree[name], (*path, name))
            elif field.required:
                self._fault(path, f"{name} is missing", "Add it")
        return None if self.faults else kind.cls(**values)

    def _mapping(self, kind: inspect.DictType, tree: object, path: Path) -> Any:
        if not isinstance(tree, Mapping):
            return self._fault(path, "it is no table", "Give a table of names")
        return {
            key: self.value(kind.value_type, each, (*path, str(key))) for key, each in tree.items()
        }

    def _sequence(self, kind: inspect.VarTupleType, tree: object, path: Path) -> Any:
        if not isinstance(tree, list | tuple):
            return self._fault(path, "it is no list", "Put it in brackets")
        return tuple(
            self.value(kind.item_type, each, (*path, index)) for index, each in enumerate(tree)
        )

    def _fixed(self, kind: inspect.TupleType, tree: object, path: Path) -> Any:
        count = len(kind.item_types)
        if not isinstance(tree, list | tuple) or len(tree) != count:
            return self._fault(path, f"it is no list of {count}", f"Give {count} values")
        return tuple(
            self.value(item, each, (*path, index))
            for index, (item, each) in enumerate(zip(kind.item_types, tree, strict=True))
        )

    def _union(self, kind: inspect.UnionType, tree: object, path: Path) -> Any:
        if tree is None and kind.includes_none:
            return None
        others = [each for each in kind.types if not isinstance(each, inspect.NoneType)]
        if len(others) != 1:
            raise TypeError(f"{dotted(path)}: of several types none can be told from a tree")
        return self.value(others[0], tree, path)

    def _integer(self, tree: object, path: Path) -> Any:
        name = next((part for part in reversed(path) if isinstance(part, str)), "")
        if isinstance(tree, datetime) and is_instant(name):
            if tree.tzinfo is None:
                return self._fault(path, "the time has no zone", "End it in Z or an offset")
            tree = instant_us(tree)
        if isinstance(tree, bool) or not isinstance(tree, int):
            expected = "a whole number" + (" or a time with its zone" if is_instant(name) else "")
            return self._fault(path, f"it is not {expected}", f"Give {expected}")
        if not -INT_LIMIT <= tree < INT_LIMIT:
            return self._fault(path, "it does not fit in 64 bits", "Give a smaller number")
        if is_instant(name) and not 0 <= tree < INSTANT_LIMIT_US:
            return self._fault(path, "it is not in the years 1970 to 2999", "Give another time")
        return tree

    def _text(self, tree: object, path: Path) -> Any:
        if not isinstance(tree, str):
            return self._fault(path, "it is no text", "Put it in quotes")
        if len(tree) > TEXT_LIMIT_CHARS:
            what = f"it has {len(tree)} characters of at most {TEXT_LIMIT_CHARS}"
            return self._fault(path, what, "Shorten it")
        if not tree.isascii() and any("\ud800" <= each <= "\udfff" for each in tree):
            return self._fault(path, "it has half a character", "Leave it out")
        return tree

    def _scalar(self, fits: bool, tree: object, path: Path, expected: str) -> Any:
        return tree if fits else self._fault(path, f"it is not {expected}", f"Give {expected}")

    def _fault(self, path: Path, what: str, action: str) -> None:
        self.faults.append(Fault(path=path, what=what, action=action))
