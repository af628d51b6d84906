"""What one protocol puts into the same way of asking a backend over HTTP."""

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, ClassVar

import orjson

from gateway.providers.answer import Answer
from gateway.providers.said import Said, Texts
from gateway.providers.sse_reader import SseEvent
from gateway.quiet import Quiet

OPTIONAL = frozenset(
    {
        "frequency_penalty", "ignore_eos", "logit_bias", "parallel_tool_calls", "presence_penalty",
        "reasoning_effort", "return_finish_reason", "return_num_input_tokens",
        "return_num_output_tokens", "exclude_input_in_output", "seed", "stream_options",
        "temperature", "top_p",
    }
)  # fmt: skip
"""What a call may be sent without (RTY-2): hints on sampling and on what is told of the answer.
Never a stop sequence, a tool, a schema or a cap: without it another answer would be asked for."""

_WORD = re.compile(r"[a-z_]{3,40}")
ERROR_PARTS_LIMIT = 64  # of a refusal's list of details


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpBackend:
    """A usable address. URLs are without credentials; `kv_tokens` None: metrics aren't read."""

    post_url: str
    metrics_url: str
    key_env: str | None
    close_cancels: bool
    kv_tokens: int | None


class Exchange(Quiet, frozen=True, kw_only=True, gc=False):
    """One request, and how its answer is read.

    `optional` are the parameters in it that it may be sent without. `named_by_header`: the
    answer's x-request-id names it before its body does.
    """

    UNSHOWN: ClassVar[frozenset[str]] = frozenset({"content"})

    content: bytes
    optional: frozenset[str]
    read: Callable[[SseEvent], Said]
    answer: Answer
    texts: Callable[[bytes], Texts | None] | None = None  # that a part of a stream begins with
    read_whole: Callable[[SseEvent], Said] | None = None  # of a body that is no stream; else `read`
    named_by_header: bool = True


def refused_parameters(body: bytes, optional: Collection[str]) -> tuple[str, ...]:
    """Return which optional parameters a 400 or 422 refuses, sorted; () where it names none.

    By the error's `param`, by the places of a list of details, else by their names in the message.
    """
    try:
        told = orjson.loads(body)
    except orjson.JSONDecodeError:
        return ()
    if not isinstance(told, dict):
        return ()
    error = told.get("error") or told.get("detail") or told
    named: set[str] = set()
    if isinstance(error, dict):
        named = _words(error.get("param")) & set(optional) or _words(error.get("message"))
    elif isinstance(error, list):
        for part in error[:ERROR_PARTS_LIMIT]:
            if isinstance(part, dict) and isinstance(part.get("loc"), list):
                named |= {step for step in part["loc"] if isinstance(step, str)}
    else:
        named = _words(error)
    return tuple(sorted(named & set(optional)))


def _words(text: Any) -> set[str]:
    return set(_WORD.findall(text)) if isinstance(text, str) else set()
