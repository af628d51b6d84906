"""The one way from an operation to the rows that it appends: checks, plan, audit row."""

from dataclasses import dataclass

from gateway.auth_roles import includes
from gateway.fleet_file.secrets import looks_like_credential
from gateway.operations.base import (
    REASON_LIMIT_CHARS,
    Done,
    Operation,
    Plan,
    Refused,
    Seen,
    audit,
)
from ledger.records import Record


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """Rows to be appended in one commit, and what to say once they are durable."""

    records: tuple[Record, ...]
    done: Done


def prepare(operation: Operation, seen: Seen) -> Prepared | Refused:
    """The rows of an operation with its audit row last, or why it is refused."""
    if not includes(seen.actor.role, operation.ROLE):
        return Refused(
            code="ROLE_MISSING",
            message=f"{operation.NAME} needs the role {operation.ROLE}; "
            f"{seen.actor.name} has {seen.actor.role}. Ask an admin.",
        )
    reason = operation.reason.strip()
    if operation.NEEDS_REASON and not reason:
        return Refused(code="REASON_MISSING", message=f"{operation.NAME} needs a reason: say why.")
    if len(reason) > REASON_LIMIT_CHARS:
        message = f"The reason has {len(reason)} characters; {REASON_LIMIT_CHARS} are allowed."
        return Refused(code="REASON_TOO_LONG", message=message)
    if looks_like_credential(reason):
        message = "The reason looks like it holds a credential; say it without."
        return Refused(code="CREDENTIAL", message=message)
    plan = operation.plan(seen)
    if isinstance(plan, Refused):
        return plan
    audited = (audit(operation, plan, seen),) if operation.AUDITED else ()
    records = (*plan.records, *audited)
    return Prepared(records=records, done=_done(plan, len(records)))


def conflict(operation: Operation) -> Refused:
    """What to say where the ledger refused the rows: someone else was first, or a value is off."""
    return Refused(
        code="CONFLICT",
        message=f"{operation.NAME} was not done: the ledger has changed in the meantime, or has "
        "such a row already. Look again and repeat.",
    )


def _done(plan: Plan, records: int) -> Done:
    return Done(
        summary=plan.summary,
        subject=plan.subject,
        records=records,
        after=dict(plan.after),
        shown_once=plan.shown_once,
    )
