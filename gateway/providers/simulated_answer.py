"""What a simulated route answers a call with: words, JSON under a schema, or a tool's call. Pure.

It honours the output cap, stop sequences, a schema and tools, and no other parameter (PRV-4).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from gateway.providers.base import Call
from gateway.providers.said import FinishReason
from gateway.providers.simulated_text import json_pieces, natural_length, word_pieces
from gateway.schemas import BadSchema, accepted_schema
from gateway.submission import Delta, ToolCallPiece

CALL_ID = "call_simulated"
ANY_OBJECT: dict[str, Any] = {"type": "object"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """One text a token, and how they end. `function`: they are the arguments of its call."""

    texts: Sequence[str]
    finish: FinishReason
    function: str | None = None

    def piece(self, index: int) -> Delta:
        if self.function is None:
            return Delta(text=self.texts[index], tokens=1)
        first = index == 0
        call = ToolCallPiece(
            index=0,
            call_id=CALL_ID if first else None,
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
        schema = _arguments_schema(function.get("parameters"))
        texts = json_pieces(seed, schema, cap)
        return _capped(texts, cap, ending="tool_calls", function=function["name"])
    if call.schema is not None:
        texts = json_pieces(seed, call.schema, cap)
    else:
        # One piece beyond the cap tells an answer that was cut off from one that stopped there.
        wanted = cap + 1 if call.ignore_eos else min(cap + 1, natural_length(seed))
        texts = list(word_pieces(seed, wanted))
    stopped = _stopped(texts[:cap], call.parameters.stop)
    if stopped is not None:
        return Script(texts=stopped, finish="stop")
    return _capped(texts, cap, ending="stop")


def _capped(
    texts: list[str], cap: int, *, ending: FinishReason, function: str | None = None
) -> Script:
    whole = len(texts) <= cap
    return Script(texts=texts[:cap], finish=ending if whole else "length", function=function)


def _stopped(texts: list[str], stops: Sequence[str]) -> list[str] | None:
    """Return the texts up to the first stop sequence, which is generated and not shown; None
    where there is none: a token within it has no text."""
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


def _arguments_schema(parameters: object) -> dict[str, Any]:
    """Return the schema of a function's arguments; of one that can't be judged by, any object."""
    if not isinstance(parameters, dict):
        return ANY_OBJECT
    try:
        return accepted_schema(parameters)
    except (BadSchema, RecursionError, TypeError):
        return ANY_OBJECT
