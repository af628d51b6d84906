"""The one table of reason codes: what each means, how HTTP says it, what the caller does (ADM-3).

Codes are stable strings. `decide` returns most of them; the API returns those of a request that
never reached a decision (UNAUTHENTICATED, INVALID_REQUEST, IDEMPOTENCY_CONFLICT and so on).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """One code. `conditional_on`: what a changed request may change so that it could pass."""

    code: str
    http_status: int
    retryable: bool
    conditional_on: tuple[str, ...] = ()
    caller_action: str
    description: str


_ALL = (
    Reason(
        code="UNAUTHENTICATED",
        http_status=401,
        retryable=False,
        caller_action="Send a valid, unexpired API key as `Authorization: Bearer <key>`.",
        description="There is no API key, or it is unknown, revoked or expired.",
    ),
    Reason(
        code="MODEL_NOT_FOUND",
        http_status=404,
        retryable=False,
        conditional_on=("model",),
        caller_action="Use one of the model names that GET /v1/models lists.",
        description="The policy in force has no logical model of this name.",
    ),
    Reason(
        code="INVALID_REQUEST",
        http_status=400,
        retryable=False,
        conditional_on=("body",),
        caller_action="Correct the field that the message names and send the request again.",
        description="The body or a header can't be read or has a value that can't be used.",
    ),
    Reason(
        code="INVALID_TOKEN_BUDGET",
        http_status=400,
        retryable=False,
        conditional_on=("input_tokens", "max_output_tokens", "deadline"),
        caller_action="Send at least one input token, an output cap and a deadline above zero.",
        description="A token count, an output cap, a total cap or the deadline is not positive.",
    ),
    Reason(
        code="TOKEN_BUDGET_EXCEEDED",
        http_status=400,
        retryable=False,
        conditional_on=("input_tokens", "max_output_tokens", "max_total_tokens"),
        caller_action="Shorten the input, lower the output cap, or use a longer-context model.",
        description="The tokens are over the cap of the request, the tenant or the logical model.",
    ),
    Reason(
        code="TENANT_CONCURRENCY_LIMIT",
        http_status=429,
        retryable=True,
        caller_action="Wait for Retry-After, then retry with fewer requests in flight.",
        description="The tenant has as many requests in flight as its quota allows.",
    ),
    Reason(
        code="TENANT_RATE_LIMIT",
        http_status=429,
        retryable=True,
        caller_action="Wait for Retry-After, then send fewer requests or tokens per minute.",
        description="The tenant's requests or tokens per minute would be over its quota.",
    ),
    Reason(
        code="TENANT_BUDGET_EXHAUSTED",
        http_status=402,
        retryable=False,
        caller_action="Ask the tenant's administrator for budget, or wait for the next period.",
        description="Spent, reserved and estimated cost together are over the tenant's budget.",
    ),
    Reason(
        code="CAPABILITY_UNAVAILABLE",
        http_status=422,
        retryable=False,
        conditional_on=("required_capabilities",),
        caller_action="Drop the capability that no route has, or wait for a version that has it.",
        description="No route of the policy, healthy or not, has the required capabilities.",
    ),
    Reason(
        code="QUALITY_FLOOR_UNMET",
        http_status=422,
        retryable=False,
        conditional_on=("quality_floor", "model"),
        caller_action="Lower the quality floor, or use a model with better evaluation evidence.",
        description="Routes are allowed, and none is known to be at or above the quality floor.",
    ),
    Reason(
        code="POLICY_DENIED",
        http_status=403,
        retryable=False,
        caller_action="Don't work around it with another route; ask the policy's owner for access.",
        description="Capable routes exist, and region, data boundary or policy forbids them all.",
    ),
    Reason(
        code="NO_CAPABLE_ROUTE",
        http_status=422,
        retryable=False,
        conditional_on=("model", "input_tokens", "max_output_tokens"),
        caller_action="Shorten the request or use another model; wait where all are unhealthy.",
        description="Health and the routes' own token limits leave no candidate.",
    ),
    Reason(
        code="CAPACITY_SHED",
        http_status=503,
        retryable=True,
        caller_action="Back off for Retry-After, queue the work, or accept a degraded model.",
        description="No capable route has KV room, a short and young queue and a fresh snapshot.",
    ),
    Reason(
        code="DEADLINE_INSUFFICIENT",
        http_status=422,
        retryable=False,
        conditional_on=("deadline", "model"),
        caller_action="Allow a longer deadline, lower the output cap, or use a faster model.",
        description="The conservative finish time is past the deadline on every route left.",
    ),
    Reason(
        code="COST_BUDGET_EXCEEDED",
        http_status=422,
        retryable=False,
        conditional_on=("max_cost", "max_output_tokens", "model"),
        caller_action="Raise the cost budget, lower the output cap, or use a cheaper model.",
        description="The estimated cost is over the request's budget on every route left.",
    ),
    Reason(
        code="UNPRICED_MODEL",
        http_status=422,
        retryable=False,
        conditional_on=("max_cost", "model"),
        caller_action="Use a priced model; its operator can publish a rate for this one.",
        description="A cost budget applies, and no route left has a price.",
    ),
    Reason(
        code="IDEMPOTENCY_CONFLICT",
        http_status=422,
        retryable=False,
        conditional_on=("idempotency_key",),
        caller_action="Use a new Idempotency-Key for another body or another budget.",
        description="The Idempotency-Key was used with another body or other budget headers.",
    ),
    Reason(
        code="LEDGER_UNAVAILABLE",
        http_status=503,
        retryable=True,
        caller_action="Back off for Retry-After and retry; nothing was run or charged.",
        description="The ledger can't record the request, so nothing is run.",
    ),
)

REASONS: Mapping[str, Reason] = MappingProxyType({reason.code: reason for reason in _ALL})

UNHEALTHY_HTTP_STATUS = 503
"""The status of NO_CAPABLE_ROUTE where health alone emptied the set: it may pass later."""
