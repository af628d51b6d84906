"""Idempotency-Key on a call that runs something: one execution, however often sent (LED-5)."""

from dataclasses import replace

from gateway.api import errors
from gateway.api.errors import Failure
from gateway.api.native import dossier_receipt_json
from gateway.api.ports import Ports, Run
from gateway.api.problems import Problem
from gateway.idempotency import KEY_LIMIT_CHARS, Conflict, Past
from gateway.policy.reasons import REASONS
from gateway.submission import Refusal, Submission
from ledger.errors import LedgerUnavailable
from ledger.queries.dossier import dossier

HEADER = "idempotency-key"


async def admitted_once(
    ports: Ports, submission: Submission, key: str | None, body: bytes
) -> Refusal | Run | Failure:
    """Return what became of the request: of the first caller with this key, for all of them.

    Raises LedgerUnavailable where it could not be recorded; the key is free again then.
    """
    if key is None:
        return await ports.journey.admit(submission)
    if not 0 < len(key) <= KEY_LIMIT_CHARS:
        return errors.of_problem(
            Problem(
                code="INVALID_REQUEST",
                message=f"An Idempotency-Key has 1 to {KEY_LIMIT_CHARS} characters.",
                param="Idempotency-Key",
            )
        )
    tenant_id = submission.caller.tenant_id
    claimed = ports.claims.claim(tenant_id, key, body)
    if isinstance(claimed, Conflict):
        return errors.of_reason("IDEMPOTENCY_CONFLICT")
    if isinstance(claimed, Past):
        return _not_retained(ports, claimed.request_id)
    if not claimed.first:
        joined: Refusal | Run = await claimed.admitted
        return joined
    try:
        admitted = await ports.journey.admit(replace(submission, claim=claimed.claim))
    except BaseException as fault:
        shared = fault if isinstance(fault, Exception) else LedgerUnavailable("the call was broken")
        ports.claims.abandon(tenant_id, claimed, shared)
        raise
    if isinstance(admitted, Refusal):
        keep = not REASONS[admitted.reason_code].retryable
        ports.claims.settle(tenant_id, claimed, admitted, lambda: (True, 0), keep=keep)
    else:
        ports.claims.settle(tenant_id, claimed, admitted, admitted.kept_output, keep=True)
    return admitted


def _not_retained(ports: Ports, request_id: str) -> Failure:
    found = dossier(ports.reader(), request_id)
    failure = errors.of_http(
        "OUTPUT_NOT_RETAINED", "The request of this Idempotency-Key is over; its output isn't kept."
    )
    receipt = dossier_receipt_json(found) if found else None
    return replace(failure, request_id=request_id, receipt=receipt)
