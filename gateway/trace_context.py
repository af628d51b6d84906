"""W3C Trace Context: who calls carries its trace on to the provider, a new parent id per attempt.

https://www.w3.org/TR/trace-context/. Pure. Ids only: nothing of a request's content is in them. A
`traceparent` that isn't valid is not repaired: a new trace begins, and its `tracestate` is dropped.
"""

import re
from collections.abc import Callable
from hashlib import sha256
from typing import Final

from gateway.quiet import Quiet

TRACEPARENT_LIMIT_CHARS: Final = 512
TRACESTATE_LIMIT_CHARS: Final = 512
TRACESTATE_LIMIT_MEMBERS: Final = 32
VERSION: Final = "00"
SAMPLED: Final = "01"
UNSAMPLED: Final = "00"

_TRACEPARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_KEY = r"[a-z][a-z0-9_\-*/]{0,255}|[a-z0-9][a-z0-9_\-*/]{0,240}@[a-z][a-z0-9_\-*/]{0,13}"
_MEMBER = re.compile(
    rf"({_KEY})=[\x20-\x2b\x2d-\x3c\x3e-\x7e]{{0,255}}[\x21-\x2b\x2d-\x3c\x3e-\x7e]"
)


class TraceContext(Quiet, frozen=True, kw_only=True, gc=False):
    """A request's place in a trace. `parent_id` is the caller's span; None where it sent none."""

    trace_id: str
    parent_id: str | None
    flags: str
    tracestate: str | None = None

    def traceparent(self, attempt_id: str) -> str:
        """Return the header of one attempt: the same trace, a parent id of its own.

        The id is a hash of trace and attempt, so that the ledger's attempt can be found from the
        provider's span and the other way round.
        """
        return f"{VERSION}-{self.trace_id}-{span_id(self.trace_id, attempt_id)}-{self.flags}"


def span_id(trace_id: str, attempt_id: str) -> str:
    """Return an attempt's parent id: 16 hexadecimal digits, never all zero."""
    found = sha256(f"{trace_id}\0{attempt_id}".encode()).hexdigest()[:16]
    return found if found.strip("0") else f"{1:016x}"


def trace_of(
    traceparent: str | None,
    tracestate: str | None,
    *,
    fresh: bytes,
    sampled: Callable[[str], bool] = lambda trace_id: True,
) -> TraceContext:
    """Return the context that a caller sent, or a new one where it sent none that is valid.

    `fresh`: sixteen random bytes for a new trace id; `sampled` says whether such a trace is kept.
    Of a version after 00 the four fields that are known are read, and sent on as version 00.
    """
    read = _read(traceparent)
    if read is None:
        trace_id = fresh.hex() if any(fresh) else f"{1:032x}"
        flags = SAMPLED if sampled(trace_id) else UNSAMPLED
        return TraceContext(trace_id=trace_id, parent_id=None, flags=flags)
    trace_id, parent_id, flags = read
    return TraceContext(
        trace_id=trace_id, parent_id=parent_id, flags=flags, tracestate=_state(tracestate)
    )


def _read(text: str | None) -> tuple[str, str, str] | None:
    if text is None or len(text) > TRACEPARENT_LIMIT_CHARS:
        return None
    match = _TRACEPARENT.fullmatch(text.strip())
    if match is None:
        return None
    version, trace_id, parent_id, flags, rest = match.groups()
    if version == "ff" or (version == VERSION and rest):
        return None
    if not int(trace_id, 16) or not int(parent_id, 16):
        return None
    # Of the flags only `sampled` is defined; the others are not passed on.
    return trace_id, parent_id, f"{int(flags, 16) & 1:02x}"


def _state(text: str | None) -> str | None:
    """Return a valid `tracestate` in its shortest form; None where it is none."""
    if text is None or len(text) > TRACESTATE_LIMIT_CHARS:
        return None
    members = [member.strip(" \t") for member in text.split(",")]
    members = [member for member in members if member]
    keys = [member.partition("=")[0] for member in members]
    if not 0 < len(members) <= TRACESTATE_LIMIT_MEMBERS or len(set(keys)) != len(keys):
        return None
    if not all(_MEMBER.fullmatch(member) for member in members):
        return None
    return ",".join(members)
