"""The audit: what must hold in every ledger, as a list of checks with stable codes.

Each check names the rows at fault. A ledger can be audited while it is written: what is still under
way breaks no rule, but where `at_rest` says that nothing is. The hashes themselves are
`ledger.verify`'s, which takes longer; the audit asks only that the chain's head is its last row's.
"""

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from typing import Literal

import msgspec

from ledger import archive_audit, money_checks, state_checks
from ledger.errors import LedgerError
from ledger.findings import Finding, Scope
from ledger.queries import violations as v
from ledger.reading import read_head

Severity = Literal["fault", "warning"]
Find = Callable[[Scope], Iterator[Finding]]
# What a check meets where somebody put a text in place of a number, other bytes in place of sums.
NO_VALUE = (ArithmeticError, LookupError, TypeError, ValueError, msgspec.MsgspecError)


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One rule. `code` is stable: pages, alerts and exports refer to it."""

    code: str
    title: str
    find: Find
    severity: Severity = "fault"
    slow: bool = False  # reads every receipt again: left out of a quick audit


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """What a check found; `findings` name FOUND_LIMIT rows of one kind at most."""

    code: str
    title: str
    severity: Severity
    findings: tuple[Finding, ...]

    @property
    def holds(self) -> bool:
        return not self.findings


def rows(table: str, sql: str, what: str) -> Find:
    """A check of one statement, all rows of which are at fault for one reason."""

    def find(scope: Scope) -> Iterator[Finding]:
        for seq, label in v.violations(scope.connection, sql, scope.size):
            yield Finding(table=table, seq=seq, label=label, what=what)

    return find


def several(*finds: Find) -> Find:
    """A check of several parts."""

    def find(scope: Scope) -> Iterator[Finding]:
        for one in finds:
            yield from one(scope)

    return find


def at_rest(find: Find) -> Find:
    """A check that holds once nothing runs any more."""
    return lambda scope: find(scope) if scope.at_rest else iter(())


CHECKS: tuple[Check, ...] = (
    Check(
        code="DEBITS_EQUAL_CREDITS",
        title="What was reserved is posted, released, written off or pending, to the last digit",
        find=several(
            money_checks.debits_equal_credits,
            rows(
                "settlement",
                v.SETTLEMENT_UNBALANCED,
                "cost and overrun don't follow from its kind and its reservation",
            ),
        ),
    ),
    Check(
        code="PENDING_IS_OPEN_UNKNOWNS",
        title="Money is held by what runs and by open unknowns alone, and is never below nought",
        find=several(
            money_checks.pending_not_negative,
            rows("reservation", v.HELD_BUT_NOT_UNKNOWN, "it is open, but its request has ended"),
            rows("receipt", v.NOT_HELD_BUT_UNKNOWN, "it is unknown, but nothing is held for it"),
        ),
    ),
    Check(
        code="ONE_FINAL_RECEIPT",
        title="Each request has exactly one current final receipt",
        find=several(
            rows(
                "receipt",
                v.RECEIPT_REVISIONS,
                "its request's revisions are not 0, 1, 2 … once each",
            ),
            rows(
                "receipt",
                v.RESOLVES_NO_UNKNOWN,
                "it doesn't resolve its request's receipt before it, or that was no unknown",
            ),
            at_rest(rows("route_decision", v.WITHOUT_RECEIPT, "the request has no receipt")),
        ),
    ),
    Check(
        code="RECEIPT_HAS_DECISION",
        title="Each receipt has its decision",
        find=rows("receipt", v.RECEIPT_WITHOUT_DECISION, "its request has no decision"),
    ),
    Check(
        code="RECEIPT_IS_ITS_ATTEMPTS",
        title="A receipt costs what its attempts cost",
        find=rows("receipt", v.RECEIPT_IS_NOT_ATTEMPTS, "its attempts cost another sum"),
    ),
    Check(
        code="SETTLEMENT_IS_ITS_RECEIPT",
        title="What is posted for a request is what its receipt says",
        find=rows("receipt", v.SETTLEMENT_IS_NOT_RECEIPT, "its settlements are of another sum"),
    ),
    Check(
        code="SETTLED_ONCE",
        title="Every reservation is settled at most once, and every settlement has one",
        find=several(
            rows("settlement", v.SETTLED_TWICE, "its reservation was settled before"),
            rows("settlement", v.SETTLED_WITHOUT_RESERVATION, "there is no such reservation"),
        ),
    ),
    Check(
        code="NO_ORPHANS",
        title="No row is without the row that it belongs to",
        find=several(
            *(
                rows(table, v.orphans(table, fields, parent), f"there is no such {parent}")
                for table, fields, parent in v.ORPHANS
            )
        ),
    ),
    Check(
        code="IDS_UNIQUE",
        title="No key stands for two rows",
        find=several(
            *(
                rows(table, sql, f"another row has its {', '.join(fields)}")
                for table, fields, sql in v.repeated_keys()
            )
        ),
    ),
    Check(
        code="TIME_ORDER",
        title="Nothing ends before it began",
        find=several(
            *(
                rows(table, v.out_of_order(table, condition), f"{condition.replace('<', 'before')}")
                for table, condition in v.ORDERED
            ),
            *(
                rows(row[0], v.too_early(*row), f"its {row[1]} is before the {row[2]}'s {row[3]}")
                for row in v.LATER
            ),
        ),
    ),
    Check(
        code="NOTHING_NEGATIVE",
        title="No amount, count or duration is below nought",
        find=several(
            *(
                rows(table, v.negative(table, fields), "an amount, count or duration is below 0")
                for table, fields in v.NEGATIVE
            )
        ),
    ),
    Check(
        code="IDEMPOTENCY_KEYS_POINT_AT_REQUESTS",
        title="Each Idempotency-Key stands for a request of its tenant",
        find=rows("idempotency_key", v.KEY_WITHOUT_REQUEST, "its tenant has no such request"),
    ),
    Check(
        code="CHAIN_HEAD_IS_ROWS",
        title="The chain's head names the last row, and no row is missing before it",
        find=state_checks.head_is_rows,
    ),
    Check(
        code="TRIGGERS_IN_PLACE",
        title="Every table of records refuses UPDATE, DELETE and REPLACE",
        find=state_checks.triggers_in_place,
    ),
    Check(
        code="OPEN_WORK_IS_ROWS",
        title="What is listed as open is what the rows leave open",
        find=state_checks.open_work_is_rows,
    ),
    Check(
        code="ARCHIVES_ARE_KEPT",
        title="Each archive's action names the rows and requests that are kept of it",
        find=archive_audit.archives_are_kept,
    ),
    Check(
        code="ARCHIVED_SUMS_ARE_REQUESTS",
        title="The sums of archived months are of the requests that were archived",
        find=archive_audit.archived_sums_are_requests,
    ),
    Check(
        code="ROLLUPS_EQUAL_RECEIPTS",
        title="The rollups are the sums of the receipts",
        find=state_checks.rollups_equal_receipts,
        slow=True,
    ),
)


def audit(
    connection: sqlite3.Connection,
    *,
    at_rest: bool = False,
    quick: bool = False,
    checks: Sequence[Check] = CHECKS,
) -> tuple[Result, ...]:
    """The result of every check, in order, on an autocommit connection.

    `at_rest`: no server runs and recovery is done, so that a request without a receipt is at fault.
    `quick`: without the checks that read every receipt again.
    """
    head = read_head(connection)
    scope = Scope(connection=connection, size=0 if head is None else head.size, at_rest=at_rest)
    return tuple(
        Result(
            code=check.code,
            title=check.title,
            severity=check.severity,
            findings=_findings(check, scope),
        )
        for check in checks
        if not (quick and check.slow)
    )


def _findings(check: Check, scope: Scope) -> tuple[Finding, ...]:
    """What the check finds; one finding where a damaged file can't be read for it."""
    try:
        return tuple(check.find(scope))
    except sqlite3.OperationalError:
        raise  # interrupted, or locked: nothing was found out
    except sqlite3.DatabaseError as error:
        what = f"it can't be read: {error}; run verify_ledger, then restore the last backup"
        return (Finding(table="ledger", what=what),)
    except LedgerError as error:
        return (Finding(table="ledger", what=str(error)),)
    except NO_VALUE as error:
        what = (
            f"it holds a value that was never written ({type(error).__name__}): run verify_ledger"
        )
        return (Finding(table="ledger", what=what),)
