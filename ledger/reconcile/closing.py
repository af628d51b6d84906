"""Sign-off by a second person, and the lock of a period (REC-3). Pure: values in, a record out."""

from collections.abc import Callable, Sequence

from ledger.reconcile.values import Refused
from ledger.records import Invoice, PeriodLock, Reconciliation, ReconciliationSignOff

NOTE_LIMIT_CHARS = 500


def person(label: str) -> str:
    """Who it was, wherever from: "console:ann" and "command:ann" are one person."""
    return label.rpartition(":")[2].strip().lower()


def signing(
    run: Reconciliation,
    invoices: Sequence[Invoice],
    signed: ReconciliationSignOff | None,
    last: PeriodLock | None,
    *,
    by: str,
    note: str,
    now_us: int,
    outdated: Callable[[], Refused | None],
) -> ReconciliationSignOff | Refused:
    """The sign-off of a run, by someone who neither ran it nor imported what it compares.

    Any run of an open period may be signed, by whichever plan, while it is not `outdated`: made
    again now it would compare the same. That takes as long as a run, so it is asked last. `last`:
    the provider's latest lock.
    """
    if signed is not None:
        return Refused(code="ALREADY_SIGNED", message=f"{signed.signed_by} signed this run")
    if last is not None and run.start_us < last.end_us:
        return _locked(last)
    involved = {person(run.ran_by): "ran it"}
    involved |= {person(one.imported_by): "imported a report that it compares" for one in invoices}
    if person(by) in involved:
        return Refused(
            code="SECOND_PERSON",
            message=f"{person(by)} {involved[person(by)]}: a second person signs it",
        )
    if len(note) > NOTE_LIMIT_CHARS:
        return Refused(code="NOTE_TOO_LONG", message=f"at most {NOTE_LIMIT_CHARS} characters")
    if (why := outdated()) is not None:
        return why
    return ReconciliationSignOff(run_id=run.run_id, signed_at_us=now_us, signed_by=by, note=note)


def locking(
    run: Reconciliation,
    signed: ReconciliationSignOff | None,
    last: PeriodLock | None,
    earlier_line_us: int | None,
    *,
    by: str,
    now_us: int,
    outdated: Refused | None,
) -> PeriodLock | Refused:
    """The lock of a signed run's period. `last`: the provider's latest lock before it.

    `earlier_line_us`: when a line starts that lies between that lock and this period: its period
    has to be closed first. `outdated`: why the run made again now would not compare the same.
    """
    if signed is None:
        return Refused(code="NOT_SIGNED", message="a second person has to sign the run first")
    if last is not None and run.start_us < last.end_us:
        return _locked(last)
    if earlier_line_us is not None:
        return Refused(
            code="EARLIER_PERIOD_OPEN",
            message="there are lines of an earlier period that is not locked: close that one first",
        )
    if now_us < run.end_us:
        return Refused(code="PERIOD_NOT_OVER", message=f"{run.period} is not over yet")
    if outdated is not None:
        return outdated
    return PeriodLock(
        provider=run.provider, period=run.period, start_us=run.start_us, end_us=run.end_us,
        run_id=run.run_id, as_of_seq=run.as_of_seq, closing=run.closing, locked_at_us=now_us,
        locked_by=by,
    )  # fmt: skip


def _locked(last: PeriodLock) -> Refused:
    return Refused(
        code="PERIOD_LOCKED", message=f"{last.period} is locked, and ends after this begins"
    )
