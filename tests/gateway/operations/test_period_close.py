"""A period signed by a second person, locked, and adjusted in the next one (REC-3)."""

import contextlib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway.operations.base import Actor
from gateway.operations.reconciliation import (
    ImportInvoice,
    LockPeriod,
    SignReconciliation,
)
from ledger.archiving import ArchiveManifest, Request, archive
from ledger.reading import connect_read_only, fetch
from ledger.reconcile.overview import overview
from ledger.records import Record
from tests import factories
from tests.gateway.operations.books import (
    ANN,
    BOB,
    DAY_US,
    NOW_US,
    OCTOBER_US,
    PLAN,
    START_US,
    WHOLE_MONTH,
    append,
    compare,
    costs,
    movements,
    opened,
    perform,
    refused,
    reported,
    request,
    usual,
)


@pytest.fixture
def books(ledger_path: Path) -> Path:
    return opened(ledger_path)


def closed(books: Path) -> str:
    """September imported and run by ann, signed and locked by bob."""
    perform(books, ImportInvoice(files=(costs((0, usual(1)), *WHOLE_MONTH[2:]),)))
    run_id = perform(books, compare()).subject
    perform(books, SignReconciliation(run_id=run_id, reason="looked at it"), BOB)
    perform(books, LockPeriod(run_id=run_id, reason="month end"), BOB)
    return run_id


def test_only_a_second_person_signs_and_only_a_signed_period_is_locked(books):
    """REC-3."""
    perform(books, ImportInvoice(files=(costs(*WHOLE_MONTH),)), ANN)
    run_id = perform(books, compare(), ANN).subject
    sign, lock = (
        SignReconciliation(run_id=run_id, reason="looked at it"),
        LockPeriod(run_id=run_id, reason="month end"),
    )
    assert refused(books, lock, BOB).code == "NOT_SIGNED"
    assert refused(books, sign, ANN).code == "SECOND_PERSON"
    key = Actor(name="key_4711", role="admin", via="api")
    assert "A key is no person" in refused(books, sign, key).message
    again = msgspec.structs.replace(PLAN, materiality_pico=1)
    newer = perform(books, compare(plan=again), BOB).subject
    of_newer = SignReconciliation(run_id=newer, reason="looked at it")
    assert refused(books, of_newer, BOB).code == "SECOND_PERSON"  # bob ran this one
    assert refused(books, of_newer, ANN).code == "SECOND_PERSON"  # ann imported
    carl = Actor(name="carl", role="operator", via="console")
    perform(books, of_newer, carl)
    assert refused(books, of_newer, carl).code == "ALREADY_SIGNED"
    early = LockPeriod(run_id=newer, reason="month end")
    assert refused(books, early, carl, at_us=OCTOBER_US - 1).code == "PERIOD_NOT_OVER"
    perform(books, early, carl)
    assert refused(books, early, carl).code == "PERIOD_LOCKED"
    assert refused(books, sign, carl).code == "PERIOD_LOCKED"
    assert refused(books, compare()).code == "PERIOD_LOCKED"
    found = reported(books, newer)
    assert (found.signed.signed_by, found.lock.locked_by) == ("console:carl", "console:carl")
    assert refused(books, SignReconciliation(run_id="rec_none", reason="r")).code == "NO_SUCH_RUN"


def test_the_first_plan_can_be_signed_after_a_second_one_was_tried(books):
    """REC-3: any run of an open period, while it would come out the same now."""
    perform(books, ImportInvoice(files=(costs(*WHOLE_MONTH),)))
    first = perform(books, compare()).subject
    tolerant = msgspec.structs.replace(PLAN, total_tolerance_pico=1)
    second = perform(books, compare(plan=tolerant)).subject
    asked_again = refused(books, compare())
    assert (asked_again.code, first in asked_again.message) == ("SAME_RUN", True)
    perform(books, SignReconciliation(run_id=first, reason="the plan we agreed on"), BOB)
    perform(books, LockPeriod(run_id=first, reason="month end"), BOB)
    assert reported(books, first).lock.run_id == first
    found = refused(books, SignReconciliation(run_id=second, reason="this too"), BOB)
    assert found.code == "PERIOD_LOCKED"


def test_a_run_that_is_outdated_is_not_signed_and_one_made_again_is(books):
    perform(books, ImportInvoice(files=(costs((0, usual(1))),)))
    run_id = perform(books, compare()).subject
    perform(books, ImportInvoice(files=(costs((1, usual(1))),)))
    sign = SignReconciliation(run_id=run_id, reason="looked at it")
    assert refused(books, sign, BOB).code == "RUN_OUTDATED"
    again = perform(books, compare()).subject
    perform(books, SignReconciliation(run_id=again, reason="looked at it"), BOB)


def test_amounts_that_went_elsewhere_and_came_back_are_run_again(books):
    """REC-3: a run's exports name each line's revision, so its bytes are others then."""
    first, other = costs((0, usual(1))), costs((0, usual(2)))
    perform(books, ImportInvoice(files=(first,)))
    run_id = perform(books, compare()).subject
    for one in (other, first):
        perform(books, ImportInvoice(files=(one,)))
    sign = SignReconciliation(run_id=run_id, reason="looked at it")
    assert refused(books, sign, BOB).code == "RUN_OUTDATED"
    again = perform(books, compare()).subject
    assert reported(books, again).theirs_pico == reported(books, run_id).theirs_pico
    perform(books, SignReconciliation(run_id=again, reason="looked at it"), BOB)


def test_a_run_that_is_outdated_is_not_locked(books):
    perform(books, ImportInvoice(files=(costs((0, usual(1))),)))
    run_id = perform(books, compare()).subject
    perform(books, SignReconciliation(run_id=run_id, reason="looked at it"), BOB)
    perform(books, ImportInvoice(files=(costs((1, usual(1))),)))
    found = refused(books, LockPeriod(run_id=run_id, reason="month end"), BOB)
    assert found.code == "RUN_OUTDATED"


def test_late_lines_adjust_the_next_period_which_opens_where_the_last_closed(books):
    """REC-3: a locked period stays as it is."""
    september = closed(books)
    before = reported(books, september)
    assert before.closing_pico == -3_600_000_000  # the second day is on no line
    late = [("gpt-5, input", 0.0025, 1_000), usual(1)[1]]  # was 0.002
    perform(books, ImportInvoice(files=(costs((0, late), (1, usual(1)), (30, usual(1))),)))
    append(books, request(5, OCTOBER_US + 5))
    october = reported(books, perform(books, compare("2026-10")).subject)
    assert movements(october) == [
        ("matched", "", False, 1, 2, 0),
        ("only_theirs", "late", True, 0, 3, 4_100_000_000),
    ]
    assert (october.opening_pico, october.adjustments_pico, october.closing_pico) == (
        -3_600_000_000, 4_100_000_000, 500_000_000,
    )  # fmt: skip
    after = reported(books, september)
    assert (after.digest, after.closing_pico) == (before.digest, before.closing_pico)


def test_a_late_end_of_an_attempt_adjusts_our_side(books):
    append(books, request(4, START_US + 9, outcome="unknown", cost_pico=0, input_tokens=0,
                          output_tokens=0))  # fmt: skip
    closed(books)
    append(books, [factories.attempt_event(4, at_us=OCTOBER_US, cost_pico=3_600_000_000)])
    perform(books, ImportInvoice(files=(costs((30, [])),), format="openai_costs"))
    october = reported(books, perform(books, compare("2026-10")).subject)
    assert movements(october) == [("only_ours", "late", True, 1, 0, -3_600_000_000)]


NOTHING: dict[str, Any] = {"cost_pico": 0, "input_tokens": 0, "output_tokens": 0}


def decided(number: int, at_us: int) -> list[Record]:
    """As `request`, with its decision: what an audit asks for."""
    return [factories.route_decision(number, decided_at_us=at_us), *request(number, at_us)]


def lost(number: int, at_us: int) -> list[Record]:
    """As `decided`, of a request whose end nobody knows."""
    decision, *records, receipt = (
        factories.route_decision(number, decided_at_us=at_us),
        *request(number, at_us, outcome="unknown", **NOTHING),
    )
    costs_nothing = {"input_tokens": 0, "output_tokens": 0, "cost_input_pico": 0}
    costs_nothing |= {"cost_output_pico": 0, "cost_total_pico": 0}
    return [decision, *records, msgspec.structs.replace(receipt, **costs_nothing)]


@pytest.fixture
def audited(ledger_path: Path) -> Path:
    """Two requests in September, one a day, in a ledger that an audit finds sound."""
    append(ledger_path, [factories.rate_table(), *decided(1, START_US + 1)])
    append(ledger_path, decided(2, START_US + DAY_US + 1))
    return ledger_path


def found_out(books: Path, number: int, at_us: int) -> list[Record]:
    """What settles an unknown of 0.0036: its end, its settlement, the receipt that resolves it."""
    event, settlement, receipt = request(number, START_US + 9)[2:]
    with contextlib.closing(connect_read_only(books)) as connection:
        sql = "SELECT entry_hash FROM receipt WHERE request_id = ?"
        (unknown,) = fetch(connection, sql, (factories.request_id(number),))
    resolves = {"revision": 1, "resolves_hash": unknown[0]}
    return [
        msgspec.structs.replace(event, at_us=at_us),
        msgspec.structs.replace(settlement, settled_at_us=at_us),
        msgspec.structs.replace(receipt, **resolves),
    ]


def archive_september(books: Path, folder: Path) -> tuple[str, ...]:
    """The requests that an archive of September took."""
    asked = Request(before_us=OCTOBER_US, now_us=NOW_US + 90 * DAY_US, actor="ops")
    made = archive(books, folder, asked)
    assert isinstance(made, ArchiveManifest), made
    with contextlib.closing(connect_read_only(books)) as connection:
        rows = fetch(connection, "SELECT request_id FROM archived_request ORDER BY 1")
    return tuple(row[0] for row in rows)


def test_late_lines_and_ends_adjust_the_next_period_when_the_locked_one_is_archived(
    audited, tmp_path
):
    """REC-3, LED-8: what came late for it stays in the ledger until the next period is locked."""
    books = audited
    append(books, lost(4, START_US + 9))
    append(books, decided(5, OCTOBER_US - 5))  # accepted in September, ended in October
    closed(books)
    append(books, found_out(books, 4, OCTOBER_US))
    late = [("gpt-5, input", 0.0025, 1_000), usual(1)[1]]  # was 0.002
    perform(books, ImportInvoice(files=(costs((0, late), (1, usual(1)), (30, usual(1))),)))
    october = reported(books, perform(books, compare("2026-10")).subject)
    assert ("only_ours", "late", True, 1, 0, -3_600_000_000) in movements(october)
    assert archive_september(books, tmp_path / "old") == tuple(
        factories.request_id(number) for number in (1, 2)
    )
    assert refused(books, compare("2026-10")).code == "SAME_RUN"  # to the last byte


def test_a_run_whose_rows_are_archived_is_neither_signed_nor_locked(audited, tmp_path):
    """It can't be made again, so nobody can say whether it is current (REC-3, LED-8)."""
    books = audited
    perform(books, ImportInvoice(files=(costs(*WHOLE_MONTH),)))
    signed = perform(books, compare()).subject
    perform(books, SignReconciliation(run_id=signed, reason="looked at it"), BOB)
    again = msgspec.structs.replace(PLAN, materiality_pico=1)
    unsigned = perform(books, compare(plan=again)).subject
    assert archive_september(books, tmp_path / "old")
    for operation in (
        SignReconciliation(run_id=unsigned, reason="looked at it"),
        LockPeriod(run_id=signed, reason="month end"),
    ):
        found = refused(books, operation, BOB)
        assert found.code == "PERIOD_ARCHIVED"
        assert "archive-before-2026-10" in found.message


def test_an_earlier_period_is_closed_first(books):
    closed(books)
    perform(books, ImportInvoice(files=(costs((30, []), (31, usual(1)), (61, [])),)))
    november = perform(books, compare("2026-11"), ANN, at_us=NOW_US + 60 * DAY_US).subject
    perform(books, SignReconciliation(run_id=november, reason="looked"), BOB)
    lock = LockPeriod(run_id=november, reason="month end")
    assert refused(books, lock, BOB, at_us=NOW_US + 60 * DAY_US).code == "EARLIER_PERIOD_OPEN"


def test_the_books_of_a_provider_say_how_far_each_period_got(books):
    """REC-3: imports, runs, sign-off and lock, newest first."""
    september = closed(books)
    perform(books, ImportInvoice(files=(costs((30, usual(1))),)))
    october = perform(books, compare("2026-10")).subject
    with contextlib.closing(connect_read_only(books)) as connection:
        (found,) = overview(connection)
    assert (found.provider, len(found.invoices), found.lock.period) == ("openai", 2, "2026-09")
    assert [(one.run.run_id, one.signed_by, one.locked_by, one.newest) for one in found.runs] == [
        (october, None, None, True),
        (september, "console:bob", "console:bob", True),
    ]
    assert [one.difference_pico for one in found.runs] == [3_600_000_000, -3_600_000_000]
