"""Failures as HTTP says them: OpenAI's error object on /v1, RFC 9457 problems on /api/v1.

Codes, statuses and advice come from the one table of reasons (ADM-3); what only HTTP knows (no
such URL, a body that is too large) and how an accepted request can end badly are added here.
Message texts are ours, never the client's or a backend's (SEC-1, SEC-3).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import orjson

from gateway.api.problems import Problem
from gateway.policy.reasons import REASONS
from gateway.policy.retrying import MISCONFIGURED, NOT_REACHED, OVERLOADED
from gateway.submission import Refusal

LEDGER_RETRY_AFTER_MS = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A failure with all that either error format says."""

    status: int
    code: str
    message: str
    param: str | None = None
    retryable: bool = False
    retry_after_ms: int | None = None
    caller_action: str = ""
    limits: tuple[tuple[str, int, int], ...] = ()
    conditional_on: tuple[str, ...] = ()
    request_id: str | None = None
    receipt: Mapping[str, Any] | None = None
    allow: str | None = None  # the methods that a 405 names
    problems: tuple[str, ...] = ()  # everything that is wrong, where there is more to say


# Codes of HTTP itself: status, what the caller can do.
_OF_HTTP = MappingProxyType(
    {
        "NOT_FOUND": (404, "Check the URL and the id."),
        "METHOD_NOT_ALLOWED": (405, "Use one of the methods that the Allow header names."),
        "BODY_TOO_LARGE": (413, "Send a smaller body."),
        "BODY_TOO_SLOW": (408, "Send the whole body without long pauses."),
        "REQUEST_ARCHIVED": (410, "Ask the operator for the archive that the message names."),
        "OUTPUT_NOT_RETAINED": (410, "Read the receipt; send a new key to run it again."),
        "SCOPE_MISSING": (403, "Use a key that has the scope; an administrator can make one."),
        "OUTCOME_CONFLICT": (409, "Send a new outcome_id, or none."),
        "INTERNAL_ERROR": (500, "Tell the operator the x-request-id; don't retry blindly."),
    }
)

# How an accepted request ends without an answer: status, sentence.
_ENDINGS = MappingProxyType(
    {
        "failed": (502, "The backend failed."),
        "unknown": (504, "The backend was lost sight of: whether it ran to its end is unknown."),
        "cancelled": (499, "The request was cancelled."),
    }
)
_DEADLINE_EXCEEDED = "DEADLINE_EXCEEDED"
_PENDING_ACTION = "Ask for the receipt by the request id; a retry would run it twice."
_ENDED = "Look at the receipt before sending it again: it may have run."
_OPEN_UNKNOWN = "Ask for its receipt until it is resolved; under a new key it may run twice."
_RATE_LIMITED = "PROVIDER_RATE_LIMITED"
_AGAIN = "Send it again later, under a new Idempotency-Key if it has one."
_REPAIR = "Tell the operator: the route has to be repaired first."
_CORRECT = "Correct the request: as it is, it would be refused again."

# The field of a request that a limit is about, by the limit's name.
_FIELDS = MappingProxyType(
    {
        "input_tokens": "messages",
        "max_input_tokens": "messages",
        "max_output_tokens": "max_tokens",
        "max_total_tokens": "max_tokens",
        "deadline_us": "x-deadline-ms",
        "max_cost_pico": "x-max-cost-units",
        "quality_milli": "x-quality-floor",
    }
)

_OPENAI_TYPES = MappingProxyType(
    {
        401: "authentication_error",
        402: "insufficient_quota",
        403: "permission_error",
        429: "rate_limit_error",
    }
)


def of_problem(problem: Problem) -> Failure:
    """Returns the failure of a problem whose code is in the table of reasons."""
    reason = REASONS[problem.code]
    return Failure(
        status=reason.http_status,
        code=problem.code,
        message=problem.message,
        param=problem.param,
        retryable=reason.retryable,
        caller_action=reason.caller_action,
        conditional_on=reason.conditional_on,
    )


def of_reason(code: str) -> Failure:
    """Returns the failure of a reason, in the table's own words."""
    return of_problem(Problem(code=code, message=REASONS[code].description))


def of_http(code: str, message: str, *, allow: str | None = None) -> Failure:
    """Returns the failure of one of HTTP's own codes."""
    status, caller_action = _OF_HTTP[code]
    return Failure(
        status=status, code=code, message=message, caller_action=caller_action, allow=allow
    )


def http_codes() -> tuple[tuple[str, int, str], ...]:
    """Returns each of HTTP's own codes, and those of endings, with its status and advice."""
    own = [(code, status, action) for code, (status, action) in _OF_HTTP.items()]
    return (*own, ("RECEIPT_PENDING", 504, _PENDING_ACTION), (_DEADLINE_EXCEEDED, 504, _ENDED))


def not_retained(message: str, request_id: str, receipt: Mapping[str, Any] | None) -> Failure:
    """Returns the failure of an output that isn't kept; of an unknown, what that means (PRV-3)."""
    failure = of_http("OUTPUT_NOT_RETAINED", message)
    if receipt is not None and receipt["status"] == "unknown":
        failure = replace(
            failure,
            message=f"{message} Its end is unknown: it may have run, and its money stays held.",
            caller_action=_OPEN_UNKNOWN,
        )
    return replace(failure, request_id=request_id, receipt=receipt)


def ledger_unavailable() -> Failure:
    """Returns the failure of a ledger that can't record: nothing was run (ADM-3)."""
    return replace(of_reason("LEDGER_UNAVAILABLE"), retry_after_ms=LEDGER_RETRY_AFTER_MS)


def ledger_unreadable() -> Failure:
    """Returns the failure of a question that the ledger can't answer now: nothing is changed."""
    return replace(ledger_unavailable(), message="The ledger can't be read now.")


def internal(request_id: str) -> Failure:
    """Returns the failure of a fault of ours: its details are in the log, under this id."""
    return replace(
        of_http("INTERNAL_ERROR", "The gateway failed to handle this."), request_id=request_id
    )


def end_not_recorded(request_id: str) -> Failure:
    """Returns the failure of a request that ran, but whose receipt could not be made durable."""
    return Failure(
        status=504,
        code="RECEIPT_PENDING",
        message="The request ran; its receipt isn't durable yet, so its end is unknown.",
        caller_action=_PENDING_ACTION,
        request_id=request_id,
    )


def of_refusal(refusal: Refusal, receipt: Mapping[str, Any]) -> Failure:
    """Returns the failure of a request that admission refused, with its receipt."""
    observed = ", ".join(
        f"{name} is {value}, limit {limit}" for name, limit, value in refusal.limits
    )
    description = REASONS[refusal.reason_code].description
    return Failure(
        status=refusal.http_status,
        code=refusal.reason_code,
        message=f"{description} ({observed})" if observed else description,
        param=_refused_param(refusal),
        retryable=refusal.retryable,
        retry_after_ms=refusal.retry_after_ms,
        caller_action=refusal.caller_action,
        limits=refusal.limits,
        conditional_on=refusal.conditional_on,
        request_id=refusal.request_id,
        receipt=receipt,
    )


def _refused_param(refusal: Refusal) -> str | None:
    """Returns the request's field that the first limit is about, where it is about one."""
    for name, _, _ in refusal.limits:
        return _FIELDS.get(name.rpartition(".")[2])
    return None


def of_ending(
    request_id: str, status: str, error_code: str | None, receipt: Mapping[str, Any]
) -> Failure:
    """Returns the failure of an accepted request that ended without a whole answer (DLV-3).

    None of them is retryable: the backend may have run it. See `of_nothing_run`.
    """
    http_status, message = _ENDINGS.get(status, _ENDINGS["failed"])
    if error_code == _DEADLINE_EXCEEDED:
        http_status, message = 504, "The deadline passed before the answer was whole."
    return Failure(
        status=http_status,
        code=error_code or status.upper(),
        message=message,
        caller_action=_ENDED,
        request_id=request_id,
        receipt=receipt,
    )


def of_nothing_run(
    request_id: str,
    status: str,
    error_code: str | None,
    receipt: Mapping[str, Any],
    retry_after_ms: int | None,
) -> Failure:
    """Returns the failure of an accepted request that no backend ran: it is owed nothing (RTY-1).

    Where another moment may do it is a 429 or a 503 to be retried, after as long as the backend
    asked. What it refused for the request or the route is not.
    """
    failure = of_ending(request_id, status, error_code, receipt)
    if error_code in OVERLOADED or error_code in NOT_REACHED:
        message = (
            "The backend had no room for it"
            if error_code in OVERLOADED
            else ("The backend could not be reached")
        )
        failure = replace(
            failure, status=429 if error_code == _RATE_LIMITED else 503, retryable=True,
            retry_after_ms=retry_after_ms, message=message, caller_action=_AGAIN,
        )  # fmt: skip
    elif status == "failed":
        action = _REPAIR if error_code in MISCONFIGURED else _CORRECT
        failure = replace(failure, message="The backend refused it", caller_action=action)
    else:
        failure = replace(failure, message=failure.message.rstrip("."), caller_action=_AGAIN)
    return replace(failure, message=f"{failure.message}: nothing ran, and nothing is owed.")


def openai_body(failure: Failure) -> bytes:
    """Returns OpenAI's error object, with what a caller needs beside the usual four."""
    error: dict[str, Any] = {
        "message": f"{failure.message} {failure.caller_action}".strip(),
        "type": _openai_type(failure),
        "param": failure.param,
        "code": failure.code,
        "retryable": failure.retryable,
        "retry_after_ms": failure.retry_after_ms,
        "limits": _limits(failure),
        "conditional_on": failure.conditional_on,
        "caller_action": failure.caller_action,
        "request_id": failure.request_id,
    }
    body: dict[str, Any] = {"error": error}
    if failure.receipt is not None:
        body["receipt"] = failure.receipt
    return orjson.dumps(body)


def problem_body(failure: Failure) -> bytes:
    """Returns a problem of RFC 9457 (application/problem+json)."""
    return orjson.dumps(
        {
            "type": f"urn:weighbridge:problem:{failure.code.lower()}",
            "title": failure.code.replace("_", " ").capitalize(),
            "status": failure.status,
            "detail": failure.message,
            "code": failure.code,
            "retryable": failure.retryable,
            "caller_action": failure.caller_action,
            "request_id": failure.request_id,
            **({"problems": failure.problems} if failure.problems else {}),
            **({"limits": _limits(failure)} if failure.limits else {}),
            **({"conditional_on": failure.conditional_on} if failure.conditional_on else {}),
            **({"receipt": failure.receipt} if failure.receipt is not None else {}),
        }
    )


def _openai_type(failure: Failure) -> str:
    known = _OPENAI_TYPES.get(failure.status)
    if known is not None:
        return known
    return "server_error" if failure.status >= 500 else "invalid_request_error"


def _limits(failure: Failure) -> list[dict[str, Any]]:
    return [
        {"name": name, "limit": limit, "observed": observed}
        for name, limit, observed in failure.limits
    ]
