"""Invoices imported, compared, signed and closed, each write whole or refused (REC-1..3)."""

import contextlib
import hashlib
import io
import json
import sqlite3
from pathlib import Path

import msgspec
import pytest

from gateway.operations.reconciliation import ImportInvoice, Reconcile, RecordCurrencyRate
from gateway.operations.registry import read
from gateway.reconciling import resolution_of
from ledger.focus.charges import NO_CURRENCY, Issuer
from ledger.focus.exporting import write
from ledger.queries import invoices as reports
from ledger.queries import reconciliation as stored
from ledger.queries.charges import ChargeFilter
from ledger.reading import connect_read_only
from ledger.reconcile import running
from ledger.reconcile.exports import rows, write_csv, write_sqlite
from ledger.reconcile.overview import overview
from ledger.reconcile.reports import Proposed
from ledger.reconcile.values import Binding, Plan, Tokens
from ledger.reconcile.values import Refused as NotCompared
from ledger.records import CurrencyRate, InvoiceLine
from tests import factories
from tests.gateway.operations.books import (
    BOB,
    DAY_US,
    OCTOBER_US,
    PLAN,
    START_US,
    WHOLE_MONTH,
    append,
    compare,
    computed,
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


def lines(path: Path) -> list[InvoiceLine]:
    with contextlib.closing(connect_read_only(path)) as connection:
        return list(reports.lines_of_period(connection, "openai", 0, 2**62, 2**62))


def test_a_report_imported_twice_adds_no_row(books):
    """REC-1: idempotent by file hash."""
    content = costs(*WHOLE_MONTH)
    done = perform(books, ImportInvoice(files=(content,)))
    assert done.after["new_lines"] == 4
    assert done.after["totals"] == {"USD": "0.0072"}
    again = refused(books, ImportInvoice(files=(content,)), BOB)
    assert again.code == "IMPORTED_BEFORE"
    assert done.subject in again.message


def test_a_later_export_adds_what_is_new_and_revises_what_changed(books):
    """REC-1: idempotent by line id; a changed amount is a new revision, in force at once."""
    perform(books, ImportInvoice(files=(costs((0, usual(1))),)))
    changed = [("gpt-5, input", 0.0025, 1_000), usual(1)[1]]
    done = perform(books, ImportInvoice(files=(costs((0, changed), (1, usual(1))),)))
    assert done.after["new_lines"] == 3
    found = lines(books)
    assert len(found) == 4
    assert [(one.revision, one.amount) for one in found if one.revision] == [(1, "0.0025")]
    same = costs((1, usual(1)), (0, changed))  # other bytes, nothing new: the import alone is kept
    assert perform(books, ImportInvoice(files=(same,))).after["new_lines"] == 0


def test_an_export_that_returns_to_an_earlier_amount_is_imported_again(books):
    """REC-1: A, B, A: the amount of A is in force; then the same files change nothing."""
    first, second = (costs((0, [("gpt-5, input", dollars, 1_000)])) for dollars in (0.002, 0.0025))
    ids = [perform(books, ImportInvoice(files=(one,))).subject for one in (first, second)]
    for number, one in enumerate((first, second, first), start=2):
        done = perform(books, ImportInvoice(files=(one,)))
        assert done.after["new_lines"] == 1
        ids.append(done.subject)
        amount = "0.002" if one is first else "0.0025"
        assert [(each.revision, each.amount) for each in lines(books)] == [(number, amount)]
    assert len(set(ids)) == 5
    again = refused(books, ImportInvoice(files=(first,)))
    assert (again.code, ids[-1] in again.message) == ("IMPORTED_BEFORE", True)


def test_a_bad_report_writes_nothing_and_names_its_place(books):
    bad = costs((0, [("gpt-5, input", "ten", 1_000)]))
    found = refused(books, ImportInvoice(files=(bad,)))
    assert found.code == "WRONG_TYPE"
    assert "line 1, column " in found.message
    assert refused(books, ImportInvoice(files=(costs((0, usual(1)), more=True),))).code == (
        "INCOMPLETE_PAGES"
    )


def test_a_month_that_agrees_is_exact_and_counts_the_simulated_apart(books):
    """REC-2, REC-3: ours + differences = theirs; opening + movements = closing."""
    perform(books, ImportInvoice(files=(costs(*WHOLE_MONTH),)))
    found = reported(books, perform(books, compare()).subject)
    assert movements(found) == [("matched", "", False, 2, 4, 0)]
    assert (found.ours_pico, found.theirs_pico) == (7_200_000_000, 7_200_000_000)
    assert (found.verdict, found.opening_pico, found.closing_pico) == ("exact", 0, 0)
    assert found.apart["simulated"] == 1
    assert found.found == ()


def test_a_run_made_again_is_the_same_to_the_byte(books, tmp_path):
    """REC-2: the same inputs give the same rows, whatever else the ledger has got since."""
    perform(
        books,
        ImportInvoice(
            files=(
                costs(
                    *WHOLE_MONTH,
                ),
            )
        ),
    )
    first = perform(books, compare())
    written = []
    for number in (1, 2):
        run = computed(books, first.subject)
        out = io.BytesIO()
        exported = write_csv(run, out)
        file = tmp_path / f"report-{number}.sqlite3"
        write_sqlite(run, file)
        written.append((run.run_id, run.digest, out.getvalue(), exported, file.read_bytes()))
        append(books, [factories.control_action(subject=f"other {number}")])
        append(books, request(10 + number, OCTOBER_US + number))
    assert written[0] == written[1]
    assert written[0][0] == first.subject
    assert refused(books, compare(), BOB).code == "SAME_RUN"


def test_a_run_that_comes_out_otherwise_now_is_not_exported(books):
    """REC-2: a report is what was recorded, or nothing."""
    perform(books, ImportInvoice(files=(costs(*WHOLE_MONTH),)))
    run_id = perform(books, compare()).subject
    with contextlib.closing(connect_read_only(books)) as connection:
        recorded = stored.run(connection, run_id)
        assert recorded is not None
        other = msgspec.structs.replace(recorded.record, run_id="rec_another")
        again = running.again(connection, other)
        assert isinstance(again, NotCompared)
        assert again.code == "NOT_REPRODUCED"
        found = running.outdated(connection, other)
        assert found is not None and found.code == "RUN_OUTDATED"


def test_the_exports_hold_every_attempt_and_line_and_add_up(books, tmp_path):
    """REC-3, CST-9: row count, hash, exact decimals, nothing that a spreadsheet would run."""
    evil = [("=cmd(), input", 0.002, 1_000), ("gpt-5, output", 0.0016, 200)]
    perform(books, ImportInvoice(files=(costs((0, evil), (1, usual(1))),)))
    done = perform(books, compare())
    run = computed(books, done.subject)
    out = io.BytesIO()
    exported = write_csv(run, out)
    text = out.getvalue().decode()
    assert exported.rows == len(list(rows(run))) == text.count("\r\n") - 1 == 6
    assert exported.sha256 == hashlib.sha256(out.getvalue()).hexdigest()
    assert ",'=cmd()," in text
    file = tmp_path / "report.sqlite3"
    assert write_sqlite(run, file).rows == 6
    with pytest.raises(FileExistsError):
        write_sqlite(run, file)
    connection = sqlite3.connect(file)
    facts = dict(connection.execute("SELECT name, value FROM report"))
    assert facts["difference"] == done.after["difference"]
    assert connection.execute("SELECT count(*) FROM rows").fetchone() == (6,)
    assert connection.execute("SELECT count(*) FROM units").fetchone()[0] == len(
        run.comparison.units
    )
    connection.close()


def test_what_differs_is_found_with_its_requests_and_the_largest_first(books):
    changed = [("gpt-5, input", 0.05, 1_000), usual(1)[1]]
    month = [(0, changed), (1, []), *[(day, []) for day in range(2, 30)]]
    perform(books, ImportInvoice(files=(costs(*month),)))
    found = reported(books, perform(books, compare()).subject)
    assert movements(found) == [
        ("differing", "price", False, 1, 2, 48_000_000_000),
        ("only_ours", "empty_bucket", False, 1, 0, -3_600_000_000),
    ]
    assert [one.request_ids for one in found.found] == [
        (factories.request_id(1),),
        (factories.request_id(2),),
    ]
    assert (found.verdict, found.material, found.unexplained_pico) == (
        "differs", 1, 51_600_000_000,
    )  # fmt: skip
    tolerant = msgspec.structs.replace(PLAN, total_tolerance_pico=10**11)
    assert reported(books, perform(books, compare(plan=tolerant)).subject).verdict == (
        "within_tolerance"
    )


def test_days_of_which_the_report_says_nothing_are_missing(books):
    perform(books, ImportInvoice(files=(costs((0, usual(1)), (3, [])),)))
    found = reported(books, perform(books, compare()).subject)
    assert ("only_ours", "missing_bucket", False, 1, 0, -3_600_000_000) in movements(found)


def test_an_unknown_on_the_invoice_gets_a_proposal_and_stays_unsettled(books):
    """REC-2: unknown now resolved: by the group that ties out without it."""
    append(books, request(4, START_US + 9, outcome="unknown", input_tokens=0, output_tokens=0,
                          cost_pico=0))  # fmt: skip
    perform(books, ImportInvoice(files=(costs(*WHOLE_MONTH),)))
    found = reported(books, perform(books, compare()).subject)
    resolved = [one for one in found.found if one.class_name == "unknown_resolved"]
    assert [one.request_ids for one in resolved] == [(factories.request_id(4),)]
    proposal = resolved[0].proposal
    assert proposal is not None
    assert (proposal.ran, proposal.cost, len(proposal.evidence)) == (False, "0", 2)
    asked = resolution_of(found.run_id, proposal)
    assert asked is not None
    assert (asked.attempt_id, asked.became) == (factories.attempt(4).attempt_id, "not_run")
    assert asked.evidence.startswith(f"reconciliation {found.run_id}: line_")
    ran = Proposed(
        request_id="r", attempt_id="r.0", ran=True, cost="1", evidence=("line_1",),
        tokens=Tokens(uncached=7, cached=3, output=2),
    )  # fmt: skip
    charged = resolution_of("rec_1", ran)
    assert charged is not None
    counted = (charged.input_tokens, charged.cached_input_tokens, charged.output_tokens)
    assert (charged.became, counted) == ("completed", (10, 3, 2))
    assert resolution_of("rec_1", msgspec.structs.replace(ran, tokens=None)) is None


def test_usage_alone_and_two_reports_of_the_same_are_refused(books):
    assert refused(books, compare()).code == "NO_COST_REPORT"
    perform(books, ImportInvoice(files=(costs(*WHOLE_MONTH),)))
    console = b"usage_date_utc,model,cost_usd,token_type\n2026-09-01,gpt-5,0.01,output\n"
    perform(books, ImportInvoice(files=(console,), provider="openai"))
    found = refused(books, compare())
    assert found.code == "SEVERAL_SOURCES"
    chosen = msgspec.structs.replace(PLAN, formats=("openai_costs",))
    assert perform(books, compare(plan=chosen)).after["difference"] == "0"


def test_reports_of_one_time_that_are_grouped_by_different_things_would_count_twice(books):
    perform(books, ImportInvoice(files=(costs((0, usual(1))),)))
    whole = costs((0, [("gpt-5, input", 0.0036, None)])).replace(b'"gpt-5, input"', b"null")
    perform(books, ImportInvoice(files=(whole,)))
    assert refused(books, compare()).code == "MIXED_GROUPING"
    perform(books, ImportInvoice(files=(whole,), provider="openai-total"))
    plan = Plan(
        provider="openai-total", bindings=(Binding(route_id="route-a", model="any"),), group_by=()
    )
    done = perform(books, Reconcile(provider="openai-total", period="2026-09", matching=plan))
    assert movements(reported(books, done.subject))[0] == ("matched", "", False, 1, 1, 0)


def test_another_currency_needs_a_dated_rate_and_the_run_keeps_it(books):
    """REC-2: the rate is part of the record."""
    euros = costs((0, usual(1)), (1, usual(1))).replace(b'"usd"', b'"eur"')
    perform(books, ImportInvoice(files=(euros,)))
    missing = refused(books, compare())
    assert (missing.code, "EUR" in missing.message) == ("NO_CURRENCY_RATE", True)
    rate = {"from_currency": "EUR", "to_currency": "USD", "source": "the bank's daily rate"}
    perform(books, RecordCurrencyRate(on_day="2026-08-01", rate="9", **rate))
    assert refused(books, compare()).code == "NO_CURRENCY_RATE"  # a month old
    perform(books, RecordCurrencyRate(on_day="2026-08-31", rate="1.5", **rate))
    found = reported(books, perform(books, compare()).subject)
    assert found.theirs_pico == 10_800_000_000
    assert [(one["on_day"], one["rate"]) for one in found.rates] == [
        ("2026-08-31", "1.5"),
    ]
    assert refused(books, RecordCurrencyRate(on_day="2026-08-31", rate="1.5", **rate)).code == (
        "NO_CHANGE"
    )
    for bad in ({"rate": "-1"}, {"rate": "x"}, {"on_day": "today"}, {"source": ""},
                {"to_currency": "EUR"}, {"from_currency": "euro"}, {"from_currency": "EUT"},
                {"on_day": "2026-02-31"}, {"on_day": "2026-13-01"}, {"on_day": "0000-01-01"},
                {"on_day": "20260831"}, {"rate": "1000000000001"}, {"rate": "9" * 64},
                {"source": "a bank\x00"}):  # fmt: skip
        wrong = {**rate, "on_day": "2026-08-31", "rate": "2"} | bad
        assert refused(books, RecordCurrencyRate(**wrong)).code == "INVALID_RATE"


def test_our_costs_are_never_taken_for_another_currency(books):
    """REC-2: costs of a ledger in euros are no dollars, whatever plan a form was sent with."""
    table = msgspec.structs.replace(factories.RATE_TABLE, currency="EUR")
    append(books, [factories.rate_table(table)])
    perform(books, ImportInvoice(files=(costs((0, usual(1)), (1, usual(1))),)))
    said = refused(books, compare())
    assert (said.code, "Our costs are in EUR and the plan compares in USD" in said.message) == (
        "OTHER_CURRENCY", True
    )  # fmt: skip
    rate = {"from_currency": "USD", "to_currency": "EUR", "source": "a bank", "rate": "0.5"}
    perform(books, RecordCurrencyRate(on_day="2026-09-01", **rate))
    euros = compare(plan=msgspec.structs.replace(PLAN, currency="EUR"))
    found = reported(books, perform(books, euros).subject)
    assert (found.currency, found.theirs_pico) == ("EUR", 3_600_000_000)


def test_a_day_that_no_calendar_has_hides_no_rate_and_stops_no_run(books):
    """REC-2: older versions recorded such days, and what is recorded stays."""
    euros = costs((0, usual(1))).replace(b'"usd"', b'"eur"')
    perform(books, ImportInvoice(files=(euros,)))
    rate = {"from_currency": "EUR", "to_currency": "USD", "source": "the bank's daily rate"}
    rates = [
        CurrencyRate(on_day=day, rate=number, revision=0, recorded_at_us=1, recorded_by="x", **rate)
        for day, number in (
            ("2026-08-31", "1.5"),
            ("2026-08-32", "9"),
            ("2026-08-", "9"),
            ("2026-02-31", "9"),
        )
    ]
    append(books, rates[1:])
    assert refused(books, compare()).code == "NO_CURRENCY_RATE"
    append(books, rates[:1])
    found = reported(books, perform(books, compare()).subject)
    assert [one["on_day"] for one in found.rates] == ["2026-08-31"]
    with contextlib.closing(connect_read_only(books)) as connection:
        assert reports.currency_rate(connection, "EUR", "USD", "2026-03-01", 2**62) is None


def test_periods_are_of_the_reporting_zone(books):
    """CST-9: a month in +05:30 begins 5.5 hours before that of UTC."""
    india = running.period_of("2026-09", "+05:30")
    assert START_US - india.start_us == 19_800_000_000
    december = running.period_of("2026-12")
    assert december.end_us - december.start_us == 31 * DAY_US
    wrong = (
        ("2026-13", "UTC"),
        ("september", "UTC"),
        ("2026-09", "Mars/Base"),
        ("2026-09-07..2026-09-01", "UTC"),
        ("2026-02-30..2026-03-01", "UTC"),
    )
    for name, zone in wrong:
        assert running.period_of(name, zone).code == "PERIOD"
    week = running.period_of("2026-09-01..2026-09-07")
    assert week.end_us - week.start_us == 7 * DAY_US


def test_no_route_and_another_provider_are_refused(books):
    assert refused(books, Reconcile(provider="openai", period="2026-09")).code == "BINDINGS"
    other = msgspec.structs.replace(PLAN, provider="other")
    assert refused(books, compare(plan=other)).code == "OTHER_PROVIDER"
    twice = Binding(route_id="route-a", model="gpt-5-mini")
    for bindings in ((), (*PLAN.bindings, twice)):
        plan = msgspec.structs.replace(PLAN, bindings=bindings)
        assert refused(books, compare(plan=plan)).code == "BINDINGS"


def test_the_largest_amounts_at_the_largest_rate_are_shown(books):
    """REC-3: what a run says can be read again, whatever its lines and rates are."""
    most = [("gpt-5, input", 1e18, 1)] * 3
    euros = costs((0, most), (1, most)).replace(b'"usd"', b'"eur"')
    perform(books, ImportInvoice(files=(euros,)))
    rate = {"from_currency": "EUR", "to_currency": "USD", "source": "a bank", "rate": "1e12"}
    perform(books, RecordCurrencyRate(on_day="2026-09-01", **rate))
    run_id = perform(books, compare()).subject
    with contextlib.closing(connect_read_only(books)) as connection:
        (found,) = overview(connection)
    assert found.runs[0].difference_pico == reported(books, run_id).difference_pico > 10**42


def test_an_import_travels_as_json():
    operation = ImportInvoice(files=(b"\x00bytes",), provider="p")
    again = read("import_invoice", msgspec.json.encode(operation))
    assert again == operation
    assert json.loads(msgspec.json.encode(operation))["files"] == ["AGJ5dGVz"]


def test_charges_with_request_ids_are_matched_one_by_one(books):
    """REC-2: a report in FOCUS that names the provider's request ids."""
    with contextlib.closing(connect_read_only(books)) as connection:
        out = io.BytesIO()
        period = ChargeFilter(start_us=START_US, end_us=OCTOBER_US)
        write(connection, period, out, issuer=Issuer(name="OpenAI"))
    text = out.getvalue().decode().replace(f",{NO_CURRENCY},", ",USD,")
    twice = text + text.split("\r\n")[1] + "\r\n"
    perform(books, ImportInvoice(files=(twice.encode(),)))
    found = reported(books, perform(books, compare()).subject)
    assert movements(found) == [
        ("duplicate_charge", "line", False, 0, 1, 2_000_000_000),
        ("matched", "", False, 2, 4, 0),
        ("only_theirs", "no_attempt", False, 0, 2, 3_600_000_000),  # the simulated one
    ]
