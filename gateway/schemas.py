"""Whether an answer is valid under the JSON schema that its caller asked for (DLV-4)."""

from typing import Any

import jsonschema
import orjson


class BadSchema(ValueError):
    """The caller's schema is no JSON schema; the message names the place, never a value of it."""


def check_schema(schema: dict[str, Any]) -> None:
    """Raise BadSchema where answers could not be validated against it."""
    try:
        jsonschema.validators.validator_for(schema).check_schema(schema)
    except jsonschema.SchemaError as error:
        place = "/".join(str(part) for part in error.absolute_path) or "its root"
        raise BadSchema(f"the JSON schema is not valid at {place}") from None


def matches_schema(text: str, schema: dict[str, Any]) -> bool:
    """Return whether `text` is JSON and valid under the schema; references leave no process."""
    try:
        value = orjson.loads(text)
        jsonschema.validators.validator_for(schema)(schema).validate(value)
    except (orjson.JSONDecodeError, jsonschema.ValidationError):
        return False
    return True
