"""What an answer may call, and what form it has to have: tools, tool_choice, response_format."""

import re
from typing import Any

import msgspec
import orjson

from gateway.api.problems import Problem, invalid
from gateway.schemas import BadSchema, accepted_schema

TOOLS_LIMIT = 128
CHOICES = ("none", "auto", "required")
SCHEMA_NAME = "answer"  # of one that came without a name

_FUNCTION_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


class Function(msgspec.Struct):
    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None


class Tool(msgspec.Struct):
    type: str
    function: Function | None = None


class NamedFunction(msgspec.Struct):
    name: str


class NamedTool(msgspec.Struct):
    type: str
    function: NamedFunction | None = None


class JsonSchema(msgspec.Struct):
    schema: dict[str, Any] | None = None
    name: str | None = None
    strict: bool | None = None


class ResponseFormat(msgspec.Struct):
    type: str
    json_schema: JsonSchema | None = None


class AskedForm(msgspec.Struct, frozen=True, kw_only=True):
    """The form that the answer has to have: what it is judged by, and what is passed on."""

    schema: dict[str, Any] | None = None
    response_format_json: str | None = None


class AskedTools(msgspec.Struct, frozen=True, kw_only=True):
    """The tool definitions as compact JSON, as they are counted and passed on, and the choice."""

    tools_json: str | None = None
    tool_choice_json: str | None = None


def read_tools(tools: list[Any] | None, choice: str | NamedTool | None) -> AskedTools | Problem:
    """Returns the tools and which of them may or must be called. Without tools neither counts."""
    if not tools:
        if choice == "required" or isinstance(choice, NamedTool):
            return invalid("tool_choice asks for a call, and there are no tools.", "tool_choice")
        return AskedTools()
    if len(tools) > TOOLS_LIMIT:
        return invalid(f"tools may hold at most {TOOLS_LIMIT} definitions.", "tools")
    try:
        definitions = msgspec.convert(tools, list[Tool])
    except msgspec.ValidationError:
        return invalid(
            "tools must be definitions with a type and a function with a name, an optional "
            "description and optional parameters.",
            "tools",
        )
    names = set()
    for position, definition in enumerate(definitions):
        place = f"tools[{position}]"
        if definition.type != "function" or definition.function is None:
            return invalid(f"{place} must be of type function, with a function.", place)
        if not _FUNCTION_NAME.fullmatch(definition.function.name):
            return invalid(
                f"{place}.function.name must have 1 to 64 letters, digits, _ and -.", place
            )
        names.add(definition.function.name)
    try:
        tools_json = orjson.dumps(tools).decode()
    except TypeError:  # an integer beyond 64 bits
        return invalid("tools hold a number that is too large.", "tools")
    if "\\u0000" in tools_json:
        return invalid("tools hold a NUL character, which no model takes.", "tools")
    choice_json = _choice_json(choice, names)
    if isinstance(choice_json, Problem):
        return choice_json
    return AskedTools(tools_json=tools_json, tool_choice_json=choice_json)


def _choice_json(choice: str | NamedTool | None, names: set[str]) -> str | Problem | None:
    if choice is None:
        return None
    if isinstance(choice, str):
        if choice not in CHOICES:
            return invalid(f"tool_choice must be one of {', '.join(CHOICES)}.", "tool_choice")
        return orjson.dumps(choice).decode()
    if choice.type != "function" or choice.function is None or choice.function.name not in names:
        return invalid("tool_choice must name a function of one of the tools.", "tool_choice")
    named = {"type": "function", "function": {"name": choice.function.name}}
    return orjson.dumps(named).decode()


def read_form(given: ResponseFormat | None) -> AskedForm | Problem:
    """Returns the form that the answer has to have; an empty one where none is asked for."""
    if given is None or given.type == "text":
        return AskedForm()
    if given.type == "json_object":
        return AskedForm(schema={"type": "object"}, response_format_json='{"type":"json_object"}')
    place = "response_format.json_schema.schema"
    if given.type != "json_schema":
        return invalid(
            "response_format.type must be text, json_object or json_schema.", "response_format"
        )
    if given.json_schema is None or given.json_schema.schema is None:
        return invalid(f"{place} is missing.", place)
    try:
        schema = accepted_schema(given.json_schema.schema)
        asked: dict[str, Any] = {
            "name": given.json_schema.name or SCHEMA_NAME,
            "schema": given.json_schema.schema,
        }
        if given.json_schema.strict is not None:
            asked["strict"] = given.json_schema.strict
        passed_on = orjson.dumps({"type": "json_schema", "json_schema": asked}).decode()
    except BadSchema as bad:
        return invalid(f"{place} can't be used: {bad}.", place)
    except (RecursionError, TypeError):  # orjson's for what it can't write
        return invalid(f"{place} can't be used: it is nested too deep or holds no JSON.", place)
    return AskedForm(schema=schema, response_format_json=passed_on)
