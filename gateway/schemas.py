"""The JSON schema that a caller asked its answer to fit: accepted, inlined, judged by (DLV-4).

Judging runs on the event loop, so what could make it slow or endless is refused before admission:
references that leave the schema or come back to themselves, regular expressions (they backtrack),
and whatever is over a named limit. What is left costs at most its own size times the answer's.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any

import jsonschema
import orjson

SCHEMA_LIMIT_BYTES = 65_536
NODES_LIMIT = 2_000  # subschemas, after references are inlined
DEPTH_LIMIT = 24
LEAST_LIMIT = 1_000  # of minLength, minItems and minProperties
WHOLE_LIMIT = 2**63  # a larger whole number comes as a float alone

_REFUSED = ("pattern", "patternProperties", "$dynamicRef", "$recursiveRef", "$anchor", "$id")
_LEAST = ("minLength", "minItems", "minProperties")
_NAMED = ("properties", "dependentSchemas")
_ONE = (
    "items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames",
    "unevaluatedItems", "unevaluatedProperties", "additionalItems",
)  # fmt: skip
_SEVERAL = ("anyOf", "oneOf", "allOf", "prefixItems", "items")


class BadSchema(ValueError):
    """The schema can't be judged by; the message names the keyword, never a value of it."""


def accepted_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema with every reference replaced by what it names.

    Raises BadSchema where answers could not be judged by it, or not within the limits.
    """
    return _inlined(schema, _Inliner(schema))


def schema_to_make_by(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema without references, for making a value and not for judging one.

    Here `pattern` stays. A reference that comes back to itself allows nothing, so that a value ends
    by the shortest way. Raises BadSchema.
    """
    return _inlined(schema, _Inliner(schema, for_making=True))


def _inlined(schema: dict[str, Any], inliner: "_Inliner") -> dict[str, Any]:
    if len(orjson.dumps(schema)) > SCHEMA_LIMIT_BYTES:
        raise BadSchema(f"the JSON schema has more than {SCHEMA_LIMIT_BYTES} bytes")
    inlined: dict[str, Any] = inliner.inline(schema, 0, ())
    if not isinstance(inlined, dict):
        raise BadSchema("the JSON schema has a $ref that comes back to itself")
    try:
        jsonschema.validators.validator_for(inlined).check_schema(inlined)
    except jsonschema.SchemaError as error:
        place = "/".join(str(part) for part in error.absolute_path) or "its root"
        raise BadSchema(f"the JSON schema is not valid at {place}") from None
    return inlined


def matches_schema(text: str, schema: dict[str, Any]) -> bool:
    """Return whether `text` is JSON and valid under an accepted schema.

    A value that can't be judged (a number out of any range) is not valid.
    """
    try:
        value = orjson.loads(text)
        _judging(jsonschema.validators.validator_for(schema))(schema).validate(value)
    except (orjson.JSONDecodeError, jsonschema.ValidationError, ArithmeticError, RecursionError):
        return False
    return True


def judge_of(root: Mapping[str, Any]) -> Callable[[Any, Any], bool]:
    """Return what tells whether a value is valid under a part of `root`, as answers are judged.

    No regular expression is run: `pattern` is not judged.
    """
    validator = _judging(jsonschema.validators.validator_for(root))
    return lambda value, schema: bool(validator(schema).is_valid(value))


@cache
def _judging(usual: Any) -> Any:
    """Return a draft's validator that runs no regular expression and compares items only once."""
    keywords = {"pattern": _not_judged, "uniqueItems": _unique_items}
    extend = jsonschema.validators.extend
    return extend(usual, keywords)  # type: ignore[no-untyped-call]  # its stub has no annotations


def _not_judged(*_: object) -> None:
    return None


def _unique_items(
    validator: Any, unique: bool, value: Any, _: object
) -> Iterator[jsonschema.ValidationError]:
    """Judge in the length of the array what jsonschema does in its square."""
    if unique and validator.is_type(value, "array"):
        written = {orjson.dumps(_plain(each), option=orjson.OPT_SORT_KEYS) for each in value}
        if len(written) < len(value):
            yield jsonschema.ValidationError("the array has items that are not unique")


def _plain(value: Any) -> Any:
    """Return a value in which equal numbers are written alike: 1.0 as 1."""
    if isinstance(value, float) and value.is_integer() and abs(value) < WHOLE_LIMIT:
        return int(value)
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    return value


class _Inliner:
    def __init__(self, root: dict[str, Any], *, for_making: bool = False) -> None:
        self._root = root
        self._nodes = 0
        self._cuts = for_making
        self._refused = tuple(each for each in _REFUSED if each != "pattern" or not for_making)

    def inline(self, schema: Any, depth: int, inside: tuple[str, ...]) -> Any:
        """Return a subschema without references; `inside` are the references that led to it."""
        self._nodes += 1
        if self._nodes > NODES_LIMIT or depth > DEPTH_LIMIT:
            raise BadSchema(
                f"the JSON schema has more than {NODES_LIMIT} parts or {DEPTH_LIMIT} levels"
            )
        if not isinstance(schema, dict):
            return schema
        for keyword in self._refused:
            if keyword in schema:
                raise BadSchema(f"the JSON schema uses {keyword}, which is not supported")
        for keyword in _LEAST:
            least = schema.get(keyword, 0)
            if isinstance(least, int | float) and least > LEAST_LIMIT:
                raise BadSchema(f"the JSON schema's {keyword} is above {LEAST_LIMIT}")
        if "$ref" in schema:
            return self._referred(schema, depth, inside)
        made: dict[str, Any] = {}
        for keyword, value in schema.items():
            if keyword in ("$defs", "definitions"):
                continue  # only references need them, and those are inlined
            if keyword in _NAMED and isinstance(value, dict):
                made[keyword] = {n: self.inline(v, depth + 1, inside) for n, v in value.items()}
            elif keyword in _SEVERAL and isinstance(value, list):
                made[keyword] = [self.inline(each, depth + 1, inside) for each in value]
            elif keyword in _ONE:
                made[keyword] = self.inline(value, depth + 1, inside)
            else:
                made[keyword] = value
        return made

    def _referred(self, schema: dict[str, Any], depth: int, inside: tuple[str, ...]) -> Any:
        reference = schema["$ref"]
        if not isinstance(reference, str) or not reference.startswith("#"):
            raise BadSchema("the JSON schema has a $ref that leaves it")
        if reference in inside:
            if self._cuts:
                return False
            raise BadSchema("the JSON schema has a $ref that comes back to itself")
        target = self.inline(self._resolved(reference), depth + 1, (*inside, reference))
        beside = {key: value for key, value in schema.items() if key != "$ref"}
        beside.pop("$defs", None)
        beside.pop("definitions", None)
        if not beside:
            return target
        return {"allOf": [target, self.inline(beside, depth + 1, inside)]}

    def _resolved(self, reference: str) -> Any:
        found: Any = self._root
        for part in reference[1:].split("/")[1:]:
            name = part.replace("~1", "/").replace("~0", "~")
            if isinstance(found, dict) and name in found:
                found = found[name]
            elif isinstance(found, list) and name.isdecimal() and int(name) < len(found):
                found = found[int(name)]
            else:
                raise BadSchema("the JSON schema has a $ref to a place that it hasn't")
        return found
