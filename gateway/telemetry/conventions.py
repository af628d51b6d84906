"""The names that OpenTelemetry's conventions for generative AI have for our facts. Pure.

https://github.com/open-telemetry/semantic-conventions-genai (development), where they moved from
semantic conventions 1.42. What the conventions have no name for is under `weighbridge.`.
"""

from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

from gateway.ids import completion_id
from gateway.policy.reasons import REASONS
from gateway.policy.values import Route
from gateway.providers.outcomes import Completed, error_code
from gateway.telemetry.facts import AttemptFacts, RequestFacts
from ledger.receipt_cost import read_meters, unpriced
from ledger.records import Receipt

Value = str | bool | int | float | list[str]
Attributes = dict[str, Value]

OPERATION: Final = "chat"  # what every endpoint becomes: a completion's prompt is a user's message

# `openai` says whose protocol is spoken; which server it is stands in server.address.
PROVIDERS: Final[Mapping[str | None, str]] = {
    "openai": "openai",
    "kserve": "kserve",
    "simulator": "weighbridge.simulator",
    None: "weighbridge",  # refused before a provider was chosen
}

DURATION: Final = "gen_ai.server.request.duration"
FIRST_TOKEN: Final = "gen_ai.server.time_to_first_token"  # noqa: S105  no password, a metric
PER_TOKEN: Final = "gen_ai.server.time_per_output_token"  # noqa: S105  no password, a metric
CALL: Final = "gen_ai.client.operation.duration"
USAGE: Final = "gen_ai.client.token.usage"

_DURATIONS = (
    0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92,
)  # fmt: skip
BUCKETS: Final[Mapping[str, tuple[float, ...]]] = {
    DURATION: _DURATIONS,
    CALL: _DURATIONS,
    FIRST_TOKEN: (
        0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
    ),
    PER_TOKEN: (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5),
    USAGE: tuple(4.0**power for power in range(14)),
}  # fmt: skip
UNITS: Final[Mapping[str, str]] = {
    DURATION: "s", CALL: "s", FIRST_TOKEN: "s", PER_TOKEN: "s", USAGE: "{token}",
}  # fmt: skip

_SERVER_ERROR = 500


def span_name(receipt: Receipt) -> str:
    """Return `chat MODEL`: there are as many names as logical models."""
    return f"{OPERATION} {receipt.logical_model}"


def request_error(receipt: Receipt) -> str | None:
    """Return the class of what a request ended with; None where it completed."""
    if receipt.status == "completed":
        return None
    return receipt.terminal_error_code or receipt.status


def is_fault(receipt: Receipt) -> bool:
    """Return whether a request's span is an error: a refusal of the caller's own making isn't."""
    if receipt.status == "rejected":
        reason = REASONS.get(receipt.terminal_error_code or "")
        return reason is None or reason.http_status >= _SERVER_ERROR
    return receipt.status in ("failed", "unknown")


def request_attributes(facts: RequestFacts) -> Attributes:
    """Return a request's span attributes."""
    receipt = facts.receipt
    found: Attributes = {
        "gen_ai.operation.name": OPERATION,
        "gen_ai.provider.name": PROVIDERS[facts.provider_kind],
        "gen_ai.request.model": receipt.logical_model,
        "gen_ai.request.max_tokens": receipt.max_output_tokens,
        "gen_ai.request.stream": facts.stream,
        "weighbridge.request.id": receipt.request_id,
        "weighbridge.tenant.id": receipt.tenant_id,
        "weighbridge.status": receipt.status,
        "weighbridge.priority": receipt.priority,
        "weighbridge.user_path": receipt.user_path,
        "weighbridge.task_type": receipt.task_type,
        "weighbridge.policy.revision": receipt.policy_revision,
        "weighbridge.route.reason": receipt.route_reason,
        "weighbridge.attempts": receipt.attempts,
        "weighbridge.cost.pico_units": receipt.cost_total_pico,
    }
    found |= {f"gen_ai.request.{name}": value for name, value in facts.settings}
    _put(found, "gen_ai.conversation.id", facts.session_id)
    _put(found, "weighbridge.degraded_from", receipt.degraded_from)
    _put(found, "weighbridge.unpriced", unpriced(receipt))
    _put(found, "error.type", request_error(receipt))
    if receipt.route_id is None:
        return found
    found["weighbridge.route.id"] = receipt.route_id
    found["gen_ai.response.id"] = completion_id(receipt.request_id)
    found["gen_ai.usage.input_tokens"] = receipt.input_tokens
    found["gen_ai.usage.output_tokens"] = receipt.output_tokens
    _put(found, "gen_ai.response.model", receipt.identity_id)
    _put(found, "gen_ai.usage.cache_read.input_tokens", receipt.cached_input_tokens)
    reasoning = dict(read_meters(receipt.usage_json)).get("reasoning", 0)
    _put(found, "gen_ai.usage.reasoning.output_tokens", reasoning)
    if facts.finish_reason is not None:
        found["gen_ai.response.finish_reasons"] = [facts.finish_reason]
    if facts.stream and receipt.first_token_us is not None:
        found["gen_ai.response.time_to_first_chunk"] = receipt.first_token_us / 1e6
    return found


def attempt_attributes(facts: RequestFacts, attempt: AttemptFacts) -> Attributes:
    """Return an attempt's span attributes: a client's call to a provider."""
    route, outcome = attempt.route, attempt.outcome
    timings = outcome.timings
    found: Attributes = {
        **call_attributes(facts, attempt),
        "gen_ai.request.max_tokens": facts.receipt.max_output_tokens,
        "weighbridge.attempt.id": attempt.attempt_id,
        "weighbridge.attempt.kind": attempt.kind,
        "weighbridge.route.id": route.route_id,
        "weighbridge.status": outcome.status,
        "gen_ai.usage.input_tokens": outcome.usage.input_tokens,
        "gen_ai.usage.output_tokens": outcome.usage.output_tokens,
        "weighbridge.usage.source": outcome.usage_source,
    }
    _put(found, "gen_ai.response.id", outcome.provider_request_id)
    _put(found, "gen_ai.usage.cache_read.input_tokens", outcome.usage.cached_input_tokens)
    if isinstance(outcome, Completed):
        found["gen_ai.response.finish_reasons"] = [outcome.finish_reason]
    for name, value_us in (
        ("queue", timings.queue_us),
        ("prefill", timings.prefill_us),
        ("decode", timings.decode_us),
        ("cancel_ack", timings.cancel_ack_us),
    ):
        if value_us is not None:
            found[f"weighbridge.{name}_us"] = value_us
    if attempt.first_piece_us is not None and attempt.started_us is not None:
        waited_us = attempt.first_piece_us - attempt.started_us
        found["gen_ai.response.time_to_first_chunk"] = waited_us / 1e6
    return found


def call_attributes(facts: RequestFacts, attempt: AttemptFacts) -> Attributes:
    """Return what the duration of a call to a provider is counted under."""
    found: Attributes = {
        **common_attributes(facts, attempt.route.provider_kind),
        "gen_ai.response.model": attempt.route.identity_id,
        **_server(attempt.route),
    }
    _put(found, "error.type", error_code(attempt.outcome))
    return found


def common_attributes(facts: RequestFacts, provider_kind: str | None) -> Attributes:
    """Return what every metric is counted under."""
    return {
        "gen_ai.operation.name": OPERATION,
        "gen_ai.provider.name": PROVIDERS[provider_kind],
        "gen_ai.request.model": facts.receipt.logical_model,
    }


def _server(route: Route) -> Attributes:
    """Return where a route's backend is; nothing for one that is no server."""
    try:
        url = urlsplit(route.address.partition(":")[2])
        host, port = url.hostname, url.port
    except ValueError:
        return {}
    if not host:
        return {}
    return {"server.address": host, "server.port": port or (443 if url.scheme == "https" else 80)}


def _put(attributes: Attributes, name: str, value: str | int | None) -> None:
    if value:
        attributes[name] = value
