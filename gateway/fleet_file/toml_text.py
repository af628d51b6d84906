"""A tree of named fields as TOML text for review; tomllib reads the same tree. Pure."""

import json
import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from gateway.fleet_file.named import instant, is_instant

LINE_LIMIT_CHARS = 100
DIGITS_GROUPED_FROM = 10_000
_BARE = re.compile(r"[A-Za-z0-9_-]+")


def written(tree: Mapping[str, Any]) -> str:
    """The text of a tree. Lists of tables become arrays of tables, moments datetimes in UTC."""
    return "\n".join(_table(tree, ())).strip("\n") + "\n"


def _table(tree: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[str]:
    later: list[tuple[str, Any]] = []
    for key, value in tree.items():
        if isinstance(value, Mapping) or (_tables(value) and not _short(key, value)):
            later.append((key, value))
        else:
            yield from _pair(key, value)
    for key, value in later:
        name = ".".join(_key(part) for part in (*path, key))
        if isinstance(value, Mapping):
            if not value or any(not isinstance(each, Mapping) for each in value.values()):
                yield from ("", f"[{name}]")  # one that holds tables alone is there by theirs
            yield from _table(value, (*path, key))
        else:
            for element in value:
                yield from ("", f"[[{name}]]")
                yield from _table(element, (*path, key))


def _pair(key: str, value: Any) -> Iterator[str]:
    line = f"{_key(key)} = {_inline(key, value)}"
    if len(line) <= LINE_LIMIT_CHARS or not isinstance(value, list):
        yield line
        return
    yield f"{_key(key)} = ["
    for each in value:
        yield f"    {_inline(key, each)},"
    yield "]"


def _inline(key: str, value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return _number(key, value)
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, Mapping):
        pairs = ", ".join(f"{_key(name)} = {_inline(name, each)}" for name, each in value.items())
        return f"{{ {pairs} }}" if pairs else "{}"
    if isinstance(value, list):
        return "[" + ", ".join(_inline(key, each) for each in value) + "]"
    raise TypeError(f"{key} is a {type(value).__name__}, which the file has no form for")


def _number(key: str, value: int) -> str:
    if is_instant(key) and value > 0:
        try:
            return _moment(instant(value))
        except OverflowError:
            return str(value)  # past the last year that a datetime knows
    return f"{value:_}" if abs(value) >= DIGITS_GROUPED_FROM else str(value)


def _moment(value: datetime) -> str:
    return value.isoformat().replace("+00:00", "Z")


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else _text(name)


def _text(value: str) -> str:
    """A basic string: JSON's escapes are TOML's, which also wants DEL escaped."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _tables(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(v, Mapping) for v in value)


def _short(key: str, value: list[Any]) -> bool:
    """Whether a list of tables reads better on its one line: flat, and it fits."""
    flat = all(not isinstance(v, Mapping | list) for each in value for v in each.values())
    return flat and len(f"{_key(key)} = {_inline(key, value)}") <= LINE_LIMIT_CHARS
