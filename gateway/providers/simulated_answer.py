"""What a simulated route answers a call with: words, JSON under a schema, or a tool's call. Pure.

It honours the output cap, stop sequences, a schema and tools, and no other parameter (PRV-4).
"""

import hashlib
from collections.abc import Sequence
from typing import Any

import msgspec
import orjson
from msgspec.structs import replace

from gateway.providers.base import Call
from gateway.providers.said import FinishReason
from gateway.providers.simulated_json import Unmet
from gateway.providers.simulated_text import (
    json_pieces,
    natural_length,
    unmet_pieces,
    word_pieces,
)
from gateway.schemas import BadSchema, schema_to_make_by
from gateway.submission import Delta, ToolCallPiece

CALL_ID_PREFIX = "call_simulated_"
CALL_ID_DIGITS = 16


class Script(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One text a token, and how they end. `function`: they are the arguments of its call, which
    has the id `call_id`."""

    texts: Sequence[str]
    finish: FinishReason
    function: str | None = None
    call_id: str | None = None

    def piece(self, index: int) -> Delta:
        if self.function is None:
            return Delta(text=self.texts[index], tokens=1)
        first = index == 0
        call = ToolCallPiece(
            index=0,
            call_id=self.call_id if first else None,
            name=self.function if first else None,
            arguments=self.texts[index],
        )
        return Delta(text="", tokens=1, tool_calls=(call,))


def script_of(call: Call, seed: str) -> Script:
    """Return the whole answer to a call; the same call and seed have the same one.

    A tool is called where one must be, and else where a user spoke last and a tool may be called:
    so a client that returns a tool's result gets words, and no loop is endless.
    """
    cap = call.max_output_tokens
    function = _called(call)
    if function is not None:
        arguments = _arguments(function.get("parameters"), seed, cap)
        if isinstance(arguments, Unmet):
            return _capped(unmet_pieces(arguments, cap), cap, ending="stop")
        called = _capped(arguments, cap, ending="tool_calls")
        return replace(called, function=function["name"], call_id=_call_id(call.attempt_id, 0))
    if call.schema is not None:
        made = json_pieces(seed, call.schema, cap)
        texts = unmet_pieces(made, cap) if isinstance(made, Unmet) else made
    else:
        # One piece beyond the cap tells an answer that was cut off from one that stopped there.
        wanted = cap + 1 if call.ignore_eos else min(cap + 1, natural_length(seed))
        texts = list(word_pieces(seed, wanted))
    stopped = _stopped(texts[:cap], call.parameters.stop)
    if stopped is not None:
        return Script(texts=stopped, finish="stop")
    return _capped(texts, cap, ending="stop")


def _capped(texts: list[str], cap: int, *, ending: FinishReason) -> Script:
    whole = len(texts) <= cap
    return Script(texts=texts[:cap], finish=ending if whole else "length")


def _call_id(attempt_id: str, ordinal: int) -> str:
    """Return the id of an attempt's call: the same each time, and no other call's."""
    drawn = hashlib.sha256(f"{attempt_id}/{ordinal}".encode()).hexdigest()
    return CALL_ID_PREFIX + drawn[:CALL_ID_DIGITS]


def _stopped(texts: list[str], stops: Sequence[str]) -> list[str] | None:
    """Return the texts up to the first stop sequence, which is generated and not shown; None
    where there is none: a token within it has no text."""
    if not stops:
        return None
    joined = "".join(texts)
    found = [(joined.find(stop), len(stop)) for stop in stops if stop in joined]
    if not found:
        return None
    at, length = min(found)
    shown, position = [], 0
    for text in texts:
        if position >= at + length:
            break
        shown.append(text[: max(0, at - position)])
        position += len(text)
    return shown


def _called(call: Call) -> dict[str, Any] | None:
    """Return the function that is called: the one that was named, else the first; None: none."""
    if call.tools_json is None:
        return None
    choice = orjson.loads(call.parameters.tool_choice_json or b'"auto"')
    if choice == "none":
        return None
    functions: list[dict[str, Any]] = [
        tool["function"] for tool in orjson.loads(call.tools_json) if tool.get("function")
    ]
    if isinstance(choice, dict) and choice.get("type") == "function":
        named = choice["function"]["name"]
        functions = [each for each in functions if each["name"] == named]
    elif choice != "required" and call.messages[-1].role != "user":
        return None
    return functions[0] if functions else None


def _arguments(parameters: object, seed: str, cap: int) -> list[str] | Unmet:
    """Return the pieces of a function's arguments, always an object; of no parameters, {}."""
    try:
        schema = schema_to_make_by(parameters) if isinstance(parameters, dict) else {}
    except BadSchema as bad:
        return Unmet(why=str(bad))
    except (RecursionError, TypeError):
        return Unmet(why="the JSON schema is nested too deep or holds no JSON")
    kinds = schema.get("type", "object")
    if kinds != "object" and "object" not in kinds:
        return Unmet(why="a call's arguments are an object, and its type is another")
    return json_pieces(seed, schema | {"type": "object"}, cap)
