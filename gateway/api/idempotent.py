"""Idempotency-Key on a call that runs something: one execution, however often sent (LED-5)."""

from collections.abc import Mapping, Sequence

import msgspec
from msgspec.structs import replace

from gateway.api import errors
from gateway.api.budget import is_budget_header
from gateway.api.errors import Failure
from gateway.api.native import dossier_receipt_json
from gateway.api.ports import Ports, Run
from gateway.api.problems import invalid
from gateway.idempotency import KEY_LIMIT_CHARS, Conflict, Past
from gateway.submission import Refusal, Submission
from ledger.errors import LedgerUnavailable
from ledger.queries.dossier import dossier

HEADER = "idempotency-key"


class Admitted(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a request: a run for each of its answers, or none at all.

    `replayed` where an earlier call with the same key made it.
    """

    outcome: Refusal | tuple[Run, ...] | Failure
    replayed: bool = False


def fingerprint(body: bytes, headers: Mapping[str, str]) -> bytes:
    """Returns what has to be the same under one key: the body and the budget headers sent.

    The headers follow a NUL, which no JSON has, sorted by name, one a line. Without any it is the
    body alone.
    """
    sent = sorted(
        (name, value.strip()) for name, value in headers.items() if is_budget_header(name)
    )
    if not sent:
        return body
    return body + b"\x00" + "\n".join(f"{name}:{value}" for name, value in sent).encode()


async def admitted_once(
    ports: Ports,
    submissions: Sequence[Submission],
    key: str | None,
    body: bytes,
    headers: Mapping[str, str],
) -> Admitted:
    """Return what became of the request: of the first caller with this key, for all of them.

    What has to be the same under one key is the `fingerprint` of body and headers. Only an accepted
    request keeps its key: after a refusal nothing ran, so the corrected request may come under the
    same key. Of several answers the ledger knows the first one's request by the key.

    Raises LedgerUnavailable where it could not be recorded; the key is free again then.
    """
    if key is None:
        return Admitted(outcome=await ports.journey.admit_together(submissions))
    if not 0 < len(key) <= KEY_LIMIT_CHARS:
        message = f"An Idempotency-Key has 1 to {KEY_LIMIT_CHARS} characters."
        return Admitted(outcome=errors.of_problem(invalid(message, "Idempotency-Key")))
    tenant_id = submissions[0].caller.tenant_id
    claimed = ports.claims.claim(tenant_id, key, fingerprint(body, headers))
    if isinstance(claimed, Conflict):
        return Admitted(outcome=errors.of_reason("IDEMPOTENCY_CONFLICT"))
    if isinstance(claimed, Past):
        return Admitted(outcome=_not_retained(ports, claimed.request_id))
    if not claimed.first:
        joined: Refusal | tuple[Run, ...] = await claimed.admitted
        return Admitted(outcome=joined, replayed=True)
    try:
        first = replace(submissions[0], claim=claimed.claim)
        admitted = await ports.journey.admit_together((first, *submissions[1:]))
    except BaseException as fault:
        shared = fault if isinstance(fault, Exception) else LedgerUnavailable("the call was broken")
        ports.claims.abandon(tenant_id, claimed, shared)
        raise
    if isinstance(admitted, Refusal):
        ports.claims.settle(tenant_id, claimed, admitted, lambda: (True, 0), keep=False)
    else:
        ports.claims.settle(tenant_id, claimed, admitted, lambda: _kept(admitted), keep=True)
    return Admitted(outcome=admitted)


def _kept(runs: Sequence[Run]) -> tuple[bool, int]:
    """Returns whether all answers are over, and how many characters of them memory holds."""
    kept = [run.kept_output() for run in runs]
    return all(over for over, _ in kept), sum(size for _, size in kept)


def _not_retained(ports: Ports, request_id: str) -> Failure:
    found = dossier(ports.reader(), request_id)
    receipt = dossier_receipt_json(found) if found else None
    message = "The request of this Idempotency-Key is over; its output isn't kept."
    return errors.not_retained(message, request_id, receipt)
