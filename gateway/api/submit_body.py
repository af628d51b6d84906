"""The body of POST /api/v1/requests: a chat with its whole budget beside it (BUD-1)."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

import msgspec
import orjson

from gateway.api.answers import Receipts, run_headers, usage_json
from gateway.api.chat_messages import WireMessage
from gateway.api.chat_tools import NamedTool, ResponseFormat
from gateway.api.choices import call_delta
from gateway.api.forms import ChunkWriter, Finished, Form, Format
from gateway.api.ports import Run
from gateway.api.problems import Problem
from gateway.api.wire import (
    ChatBody,
    ChatRequest,
    Count,
    Penalty,
    Seed,
    Share,
    Temperature,
    chat_request,
    decoded_body,
)
from gateway.submission import Delta

Mode = Literal["sync", "stream", "async"]
Names = Annotated[list[str], msgspec.Meta(max_length=16)]


class BudgetBody(msgspec.Struct, forbid_unknown_fields=True):
    """What the request may use; what is left out is filled from the defaults (BUD-2)."""

    max_input_tokens: Count | None = None
    max_output_tokens: Count | None = None
    max_total_tokens: Count | None = None
    deadline_ms: Count | None = None
    max_cost_units: str | None = None  # an exact decimal


class SubmitBody(msgspec.Struct, forbid_unknown_fields=True):
    """A request. `side_effects` is true by default where there are tools."""

    model: str
    messages: list[WireMessage]
    mode: Mode = "sync"
    budget: BudgetBody = msgspec.field(default_factory=BudgetBody)
    priority: str | None = None
    user_path: str | None = None
    task_type: str | None = None
    required_capabilities: Names | None = None
    allowed_regions: Names | None = None
    quality_floor: str | None = None  # an exact decimal from 0 to 1
    session_id: str | None = None
    side_effects: bool | None = None
    tags: dict[str, str] | None = None
    tools: list[Any] | None = None
    tool_choice: str | NamedTool | None = None
    parallel_tool_calls: bool | None = None
    response_format: ResponseFormat | None = None
    temperature: Temperature | None = None
    top_p: Share | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    stop: str | list[str] | None = None
    seed: Seed | None = None
    ignore_eos: bool | None = None


_decoder = msgspec.json.Decoder(SubmitBody)


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmitForm:
    """A request that could be read."""

    wanted: ChatRequest
    mode: Mode

    def writer(self, run: Run, choices: int) -> ChunkWriter:
        return PieceEvents(run)

    def whole(self, run: Run, finished: Finished, receipts: Receipts) -> bytes:
        gathered, finish_reason = finished[0]
        message = gathered.message()
        return orjson.dumps(
            {
                "request_id": run.request_id,
                "status": "completed",
                "model": run.logical_model,
                "output": {
                    "content": message["content"],
                    "tool_calls": message.get("tool_calls", []),
                    "finish_reason": finish_reason,
                },
                "usage": usage_json(receipts),
                "receipt": receipts[0][1],
            }
        )


class PieceEvents:
    """Writes a stream: `accepted`, a `piece` for each piece, `end` with the receipt."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def role(self, index: int, first: Delta | None = None) -> bytes:
        said = {name.decode(): value.decode() for name, value in run_headers((self._run,))}
        route = said["x-weighbridge-route"]
        return _event("accepted", {"request_id": self._run.request_id, "route_id": route})

    def piece(self, index: int, piece: Delta) -> bytes:
        if piece.empty:
            return b""
        calls = [call_delta(call) for call in piece.tool_calls]
        return _event("piece", {"content": piece.text, "tool_calls": calls})

    def finish(self, index: int, finish_reason: str) -> bytes:
        return b""

    def last(self, index: int, finish_reason: str, receipts: Receipts) -> bytes:
        usage = usage_json(receipts)
        end = {"finish_reason": finish_reason, "usage": usage, "receipt": receipts[0][1]}
        return _event("end", end)


def read_submit_body(body: bytes) -> Form | Problem:
    """Returns the request, or what is wrong with it and where."""
    decoded = decoded_body(body, _decoder)
    if isinstance(decoded, Problem):
        return decoded
    wanted = chat_request(
        ChatBody(
            model=decoded.model,
            messages=decoded.messages,
            stream=decoded.mode == "stream",
            max_tokens=decoded.budget.max_output_tokens,
            tools=decoded.tools,
            tool_choice=decoded.tool_choice,
            parallel_tool_calls=decoded.parallel_tool_calls,
            response_format=decoded.response_format,
            temperature=decoded.temperature,
            top_p=decoded.top_p,
            presence_penalty=decoded.presence_penalty,
            frequency_penalty=decoded.frequency_penalty,
            stop=decoded.stop,
            seed=decoded.seed,
            ignore_eos=decoded.ignore_eos,
            metadata=_budget(decoded),
        )
    )
    if isinstance(wanted, Problem):
        return wanted
    if decoded.side_effects is not None:
        wanted = msgspec.structs.replace(wanted, side_effects=decoded.side_effects)
    return SubmitForm(wanted=wanted, mode=decoded.mode)


SUBMIT = Format(name="submit", read=read_submit_body)


def _budget(body: SubmitBody) -> dict[str, str | int]:
    """Returns what the body asks for under the names by which every call can ask for it."""
    given: dict[str, str | int | None] = {
        "max-input-tokens": body.budget.max_input_tokens,
        "max-total-tokens": body.budget.max_total_tokens,
        "deadline-ms": body.budget.deadline_ms,
        "max-cost-units": body.budget.max_cost_units,
        "priority": body.priority,
        "user-path": body.user_path,
        "task-type": body.task_type,
        "required-capabilities": _list(body.required_capabilities),
        "region": _list(body.allowed_regions),
        "quality-floor": body.quality_floor,
        "session-id": body.session_id,
        **{f"tag-{key}": value for key, value in (body.tags or {}).items()},
    }
    return {name: value for name, value in given.items() if value is not None}


def _list(names: list[str] | None) -> str | None:
    return None if names is None else ",".join(names)


def _event(kind: str, data: dict[str, Any]) -> bytes:
    return b"event: " + kind.encode() + b"\ndata: " + orjson.dumps(data) + b"\n\n"
