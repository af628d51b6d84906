"""POST /api/v1/decide: what would be decided on a request now, explained; nothing is held or kept.

The body and headers are those of a chat completion. The answer has every candidate with the filter
at which it falls or its estimates, the tenant's own limits, the choice and its reasons (RTE-2).
"""

from typing import Any

import orjson

from gateway.api import errors
from gateway.api.budget import read_budget
from gateway.api.decisions import decision_view, optional_units, tenant_view
from gateway.api.headers import encoding_problem
from gateway.api.http import Request, Response
from gateway.api.ports import Ports
from gateway.api.problems import Problem
from gateway.api.receipts import iso_time
from gateway.api.replies import failed_natively
from gateway.api.submitting import no_such_model, submissions
from gateway.api.wire import read_chat_request
from gateway.desk import Considered
from gateway.policy.reasons import REASONS
from gateway.policy.replay import CODE_REVISION
from gateway.submission import Caller

DECIDE = "/api/v1/decide"


class Deciding:
    """Answers dry runs."""

    def __init__(self, ports: Ports, body_limit_bytes: int) -> None:
        self._ports = ports
        self._body_limit_bytes = body_limit_bytes

    async def __call__(self, request: Request, caller: Caller) -> Response:
        body = await request.body(self._body_limit_bytes)
        encoded = encoding_problem(request.headers.get("content-encoding"))
        wanted = encoded or read_chat_request(body)
        if isinstance(wanted, Problem):
            return failed_natively(errors.of_problem(wanted))
        asked = read_budget(request.headers, wanted.metadata)
        if isinstance(asked, Problem):
            return failed_natively(errors.of_problem(asked))
        if wanted.model not in self._ports.models():
            return failed_natively(errors.of_problem(no_such_model(self._ports.models())))
        submission = submissions(caller, wanted, asked)[0]
        return Response(
            body=orjson.dumps(considered_json(await self._ports.journey.consider(submission)))
        )


def considered_json(considered: Considered) -> dict[str, Any]:
    """Returns a decision that was not taken, with all that it was made from and looked at."""
    request, decision = considered.request, considered.decision
    reason = REASONS.get(decision.reason_code or "")
    return {
        "dry_run": True,
        "decided_at": iso_time(considered.decided_at_us),
        "policy_revision": considered.policy_revision,
        "rate_table_version": considered.rate_table_version,
        "code_revision": CODE_REVISION,
        "model": request.logical_model,
        "priority": request.priority,
        "budget": {
            "max_input_tokens": request.budget.max_input_tokens,
            "max_output_tokens": request.budget.max_output_tokens,
            "max_total_tokens": request.budget.max_total_tokens,
            "deadline_ms": request.budget.deadline_us / 1_000,
            "max_cost_units": optional_units(request.budget.max_cost_pico),
        },
        "input_tokens": {each.tokenizer_revision: each.tokens for each in request.input_tokens},
        "tenant": tenant_view(considered.tenant),
        **decision_view(decision),
        "retryable": reason.retryable if reason else None,
        "caller_action": reason.caller_action if reason else None,
    }
