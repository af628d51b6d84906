"""Every operation by its name, and how one travels as JSON."""

from typing import Any

import msgspec

from gateway.operations import (
    control,
    fleet,
    keys,
    policies,
    rates,
    reconciliation,
    releases,
    routes,
    tenants,
    unknowns,
)
from gateway.operations.base import Operation, Refused

MODULES = (
    control,
    fleet,
    keys,
    policies,
    rates,
    reconciliation,
    releases,
    routes,
    tenants,
    unknowns,
)


def _found() -> dict[str, type[Operation]]:
    found: dict[str, type[Operation]] = {}
    for module in MODULES:
        for value in vars(module).values():
            if isinstance(value, type) and issubclass(value, Operation) and value is not Operation:
                found[value.NAME] = value
    return found


OPERATIONS: dict[str, type[Operation]] = dict(sorted(_found().items()))


def read(name: str, body: bytes) -> Operation | Refused:
    """The operation of a name with its fields from JSON, or what is wrong with them."""
    kind = OPERATIONS.get(name)
    if kind is None:
        known = ", ".join(OPERATIONS)
        return Refused(code="NO_SUCH_OPERATION", message=f"There is no {name[:60]!r}; use: {known}")
    try:
        return msgspec.json.decode(body or b"{}", type=kind)
    except msgspec.ValidationError as problem:
        return Refused(code="INVALID_REQUEST", message=f"{name}: {problem}")
    except RecursionError:
        return Refused(code="INVALID_REQUEST", message=f"{name}: the body is nested too deeply")
    except msgspec.DecodeError:
        return Refused(code="INVALID_REQUEST", message=f"{name}: the body is no JSON object")


def values_of(schema: dict[str, Any], field: str) -> tuple[str, ...]:
    """What an operation's field can be, where only certain texts are; of a list, its items."""
    kind = schema["$defs"][schema["$ref"].rpartition("/")[2]]
    return tuple(str(value) for value in _enum(kind["properties"][field]))


def _enum(schema: dict[str, Any]) -> list[Any]:
    found: list[Any] = schema.get("enum", [])
    for inner in (schema.get("items"), *schema.get("anyOf", ())):
        if not found and isinstance(inner, dict):
            found = _enum(inner)
    return found


def described() -> dict[str, Any]:
    """Each operation with its role, what it does and its fields as JSON Schema."""
    return {
        name: {
            "role": kind.ROLE,
            "needs_reason": kind.NEEDS_REASON,
            "summary": (kind.__doc__ or "").strip().splitlines()[0],
            "schema": msgspec.json.schema(kind),
        }
        for name, kind in OPERATIONS.items()
    }
