"""What the fault server is told to do with a request, and the bytes that this makes. Pure.

The stream of a plan is a list of steps: bytes to write, and commands between them. The same plan
gives the same bytes, so that any byte of them can be named as the place of a fault.
"""

import json
from dataclasses import dataclass, field

PIECES = ("Weigh", " the", " lörry", " 🚚", ",", " then", " 票", ".")
CALL_PIECES = ('{"lörry": "', "🚚", '", "tonnes"', ": 12}")
ERROR_SHAPES = (
    {"error": {"message": "out of memory", "type": "server_error", "code": 500}},
    {"error": "out of memory"},
    {"object": "error", "message": "out of memory", "type": "InternalServerError", "code": 500},
    {"detail": "out of memory"},
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One answer with its faults. Delays are in seconds; `*_after` counts tokens written."""

    tokens: int = len(PIECES)
    input_tokens: int = 11
    cached_tokens: int | None = None
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    content_type: str = "text/event-stream"
    # Delays: before reading the request, the head, the first token, each other token, the tail.
    accept_delay_s: float = 0.0
    head_delay_s: float = 0.0
    first_token_delay_s: float = 0.0
    token_delay_s: float = 0.0
    tail_delay_s: float = 0.0
    # Ways to break off.
    close_before_head: bool = False
    cut_at_byte: int | None = None  # of the body, then the connection is torn
    stall_after: int | None = None  # nothing more is written; the connection stays
    stall_at_tail: bool = False  # after the finish reason
    die_after: int | None = None  # the connection is torn
    end_after: int | None = None  # the body ends as if it were whole
    error_after: int | None = None
    error_shape: int = 0
    garbage_after: int | None = None
    keep_generating: bool = False  # after the client has gone, to the last token
    # The shape of the stream.
    split_bytes: int = 0  # bytes per write; 0: an event per write
    newline: str = "\n"
    framing: str = "chunked"  # chunked | close
    usage: str = "own"  # own | finish | missing | running | zero | wrong
    finish_reason: str | None = "stop"
    done: bool = True
    duplicate: bool = False  # each chunk twice
    comments: bool = False
    whole: bool = False  # one JSON body, as a server that ignores `stream`
    calls: int = 0  # tool calls after the text, interleaved, of len(CALL_PIECES) tokens each
    # Of the Open Inference Protocol.
    protocol: str = "openai"  # openai | kserve
    model_version: str | None = "1"
    ends: str = "done"  # done | details | top: where a stream says that it has finished
    # Optional parameters that are refused where a request has them, and how.
    refuses: tuple[str, ...] = ()
    refuse_status: int = 400
    refuse_shape: str = "param"  # param | loc | message | text
    close_after: bool = False  # close the connection without having said so


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """`body` to be written at once; `token`: which token it carries, from 1. Or a command."""

    body: bytes = b""
    token: int | None = None
    command: str = ""  # stall | die | end


def text_of(plan: Plan) -> str:
    return "".join(PIECES[index % len(PIECES)] for index in range(plan.tokens))


def refusal_body(plan: Plan, refused: list[str]) -> bytes:
    """What a server says of parameters that it doesn't take, in one of four shapes."""
    said = f"Unsupported parameter: '{', '.join(refused)}' is not supported with this model."
    shapes = {
        "param": {"error": {"message": said, "type": "invalid_request_error", "param": refused[0]}},
        "loc": {"detail": [{"loc": ["body", name], "type": "extra_forbidden"} for name in refused]},
        "message": {"object": "error", "message": said, "code": plan.refuse_status},
        "text": {"error": said},
    }
    return json.dumps(shapes[plan.refuse_shape]).encode()


def call_text(plan: Plan) -> list[tuple[str, str]]:
    """(function, arguments) of each tool call of a plan."""
    return [(f"weigh_{number}", "".join(CALL_PIECES)) for number in range(plan.calls)]


def usage_of(plan: Plan, tokens: int) -> dict[str, object]:
    counts = {"zero": (0, 0), "wrong": (plan.input_tokens * 7, tokens * 3)}
    given, generated = counts.get(plan.usage, (plan.input_tokens, tokens))
    usage: dict[str, object] = {
        "prompt_tokens": given,
        "completion_tokens": generated,
        "total_tokens": given + generated,
    }
    if plan.cached_tokens is not None:
        usage["prompt_tokens_details"] = {"cached_tokens": plan.cached_tokens}
    return usage


def whole_body(plan: Plan) -> bytes:
    if plan.protocol == "kserve":
        return json.dumps(kserve_chunk(plan, text_of(plan), tokens=plan.tokens)).encode()
    message: dict[str, object] = {"role": "assistant", "content": text_of(plan)}
    if plan.calls:
        message["tool_calls"] = [
            {"id": f"call_{number}", "type": "function", "function": {"name": name, "arguments": a}}
            for number, (name, a) in enumerate(call_text(plan))
        ]
    answer: dict[str, object] = {
        "id": "chatcmpl-fault",
        "object": "chat.completion",
        "choices": [{"index": 0, "message": message, "finish_reason": plan.finish_reason}],
    }
    if plan.usage != "missing":
        answer["usage"] = usage_of(plan, plan.tokens)
    return json.dumps(answer, ensure_ascii=False).encode()


def steps(plan: Plan) -> list[Step]:
    """Every step of a stream, faults included, in order."""
    made: list[Step] = []
    if plan.protocol == "openai":
        made.append(Step(body=_chunk(plan, {"role": "assistant", "content": ""})))
    for token in range(plan.tokens + 1):
        fault = _fault(plan, token)
        if fault is not None:
            return [*made, *fault]
        if token == plan.tokens:
            break
        piece = _piece(plan, token)
        comment = f": keep-alive{plan.newline}{plan.newline}data:{plan.newline * 2}".encode()
        made.append(Step(body=(comment if plan.comments else b"") + piece, token=token + 1))
    return [*made, *_tail(plan)]


def body_of(plan: Plan) -> bytes:
    """The bytes of the whole stream."""
    return b"".join(step.body for step in steps(plan))


def _fault(plan: Plan, token: int) -> list[Step] | None:
    if token == plan.stall_after:
        return [Step(command="stall")]
    if token == plan.die_after:
        return [Step(command="die")]
    if token == plan.end_after:
        return [Step(command="end")]
    if token == plan.error_after:
        error = json.dumps(ERROR_SHAPES[plan.error_shape])
        return [Step(body=_event(plan, error)), Step(body=_event(plan, "[DONE]"))]
    if token == plan.garbage_after:
        return [Step(body=_event(plan, '{"choices": [{"del')), Step(command="stall")]
    return None


def _tail(plan: Plan) -> list[Step]:
    if plan.protocol == "kserve":
        return [Step(body=_kserve_end(plan))] if plan.finish_reason is not None else []
    in_finish = usage_of(plan, plan.tokens) if plan.usage == "finish" else None
    made = [Step(body=chunk, token=plan.tokens) for chunk in _calls(plan)]
    if plan.finish_reason is not None:
        made.append(Step(body=_chunk(plan, {}, finish=plan.finish_reason, usage=in_finish)))
    if plan.stall_at_tail:
        return [*made, Step(command="stall")]
    if plan.usage in ("own", "zero", "wrong"):
        made.append(Step(body=_chunk(plan, None, usage=usage_of(plan, plan.tokens))))
    if plan.done:
        made.append(Step(body=_event(plan, "[DONE]")))
    return made


def _piece(plan: Plan, token: int) -> bytes:
    text = PIECES[token % len(PIECES)]
    if plan.protocol == "kserve":
        chunk = kserve_chunk(plan, text, tokens=token + 1)
        event = _event(plan, json.dumps(chunk, ensure_ascii=False))
        return event * 2 if plan.duplicate else event
    usage = usage_of(plan, token + 1) if plan.usage == "running" else None
    return _chunk(plan, {"content": text}, usage=usage)


def _calls(plan: Plan) -> list[bytes]:
    """The chunks of the tool calls: the first of each names it, then their arguments in turns."""
    chunks = []
    for number, (name, _) in enumerate(call_text(plan)):
        call = {"index": number, "id": f"call_{number}", "type": "function"}
        function = {"name": name, "arguments": ""}
        chunks.append(_chunk(plan, {"tool_calls": [{**call, "function": function}]}))
    for piece in CALL_PIECES:
        for number in range(plan.calls):
            call = {"index": number, "function": {"arguments": piece}}
            chunks.append(_chunk(plan, {"tool_calls": [call]}))
    return chunks


def kserve_chunk(plan: Plan, text: str, *, tokens: int) -> dict[str, object]:
    """One event of generate_stream, or the body of generate; `tokens`: how many so far."""
    chunk: dict[str, object] = {"model_name": "faulty", "text_output": text}
    if plan.model_version is not None:
        chunk["model_version"] = plan.model_version
    if plan.usage in ("running", "deltas"):
        chunk["num_input_tokens"] = plan.input_tokens
        chunk["num_output_tokens"] = tokens if plan.usage == "running" else 1
    return chunk


def _kserve_end(plan: Plan) -> bytes:
    end = kserve_chunk(plan, "", tokens=plan.tokens)
    if plan.usage == "deltas":
        end["num_output_tokens"] = 0
    if plan.ends == "done":
        end["done"] = True
    elif plan.ends == "details":
        end["details"] = {"finish_reason": plan.finish_reason}
    else:
        end["finish_reason"] = plan.finish_reason
    return _event(plan, json.dumps(end))


def _chunk(
    plan: Plan,
    delta: dict[str, object] | None,
    *,
    finish: str | None = None,
    usage: dict[str, object] | None = None,
) -> bytes:
    choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish}]
    chunk: dict[str, object] = {
        "id": "chatcmpl-fault",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "faulty",
        "choices": choices,
    }
    if usage is not None:
        chunk["usage"] = usage
    event = _event(plan, json.dumps(chunk, ensure_ascii=False))
    return event * 2 if plan.duplicate else event


def _event(plan: Plan, data: str) -> bytes:
    return f"data: {data}{plan.newline}{plan.newline}".encode()
