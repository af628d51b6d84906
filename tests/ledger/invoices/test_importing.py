"""Line ids: the same in any order and any export; a revision where an amount changed (REC-1)."""

import json
import random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ledger.invoices.fields import rounded_to
from ledger.invoices.formats import read
from ledger.invoices.importing import Import, gaps, importing, invoice_id
from ledger.invoices.values import Bucket, Line, Report
from ledger.money import parse_scaled
from ledger.records import InvoiceLine

DAY_US = 86_400_000_000


def line(day: int, model: str, pico: int, **changes: Any) -> Line:
    values: dict[str, Any] = {
        "role": "cost", "kind": "usage", "start_us": day * DAY_US, "end_us": (day + 1) * DAY_US,
        "meter": "input", "line_number": 1, "model": model, "tokens": 10, "currency": "USD",
        "amount_pico": pico,
    }  # fmt: skip
    return Line(**(values | changes))


def report(lines: list[Line], name: str = "a") -> Report:
    return Report(
        provider="acme", format="openai_costs", role="cost", files_sha256=(name * 64,),
        lines=tuple(lines), buckets=(),
    )  # fmt: skip


def made_of(one: Report, known: dict[str, InvoiceLine], before: int = 0) -> Import:
    made = importing(one, known=known, imported_before=before, now_us=1, by="x")
    assert isinstance(made, Import), made
    return made


def imported(lines: list[Line], known: dict[str, InvoiceLine], name: str) -> list[InvoiceLine]:
    made = made_of(report(lines, name), known)
    known.update({one.line_id: one for one in made.lines})
    return list(made.lines)


LINES = st.lists(
    st.builds(line, st.integers(0, 2), st.sampled_from("mn"), st.integers(-3, 3)), max_size=8
)


@given(lines=LINES, seed=st.integers(0, 2**32))
def test_the_order_of_a_file_is_no_part_of_its_lines_ids(lines, seed):
    shuffled = list(lines)
    random.Random(seed).shuffle(shuffled)
    known: dict[str, InvoiceLine] = {}
    assert len(imported(lines, known, "a")) == len(lines)
    assert len(known) == len(lines)
    assert imported(shuffled, known, "b") == []


@given(lines=LINES, more=LINES)
def test_a_longer_export_adds_lines_and_forgets_none(lines, more):
    """What is in force after an export holds every line of it."""
    known: dict[str, InvoiceLine] = {}
    imported(lines, known, "a")
    later = [*lines, *[one for one in more if one.start_us == 2 * DAY_US]]
    imported(later, known, "b")
    kept = sorted((one.start_us, one.model, one.amount) for one in known.values())
    again: dict[str, InvoiceLine] = {}
    imported(later, again, "c")
    assert kept == sorted((one.start_us, one.model, one.amount) for one in again.values())


def test_a_changed_amount_is_a_revision_and_the_same_amount_is_none():
    known: dict[str, InvoiceLine] = {}
    assert [one.revision for one in imported([line(0, "m", 5)], known, "a")] == [0]
    assert imported([line(0, "m", 5)], known, "b") == []
    revised = imported([line(0, "m", 6)], known, "c")
    assert [(one.revision, one.amount) for one in revised] == [(1, "0.000000000006")]
    assert [one.revision for one in imported([line(0, "m", 5)], known, "d")] == [2]


def test_files_imported_before_are_imported_again_where_a_line_of_theirs_was_revised():
    """REC-1: what a provider goes back to is in force again; the same ledger gives the same ids."""
    one, other, known = report([line(0, "m", 5)], "a"), report([line(0, "m", 6)], "b"), {}
    for each, before in ((one, 0), (other, 0)):
        made = made_of(each, known, before)
        known.update({line.line_id: line for line in made.lines})
    back = made_of(one, known, 1)
    assert back == made_of(one, known, 1)
    assert [(each.revision, each.amount) for each in back.lines] == [(2, "0.000000000005")]
    assert {each.invoice_id for each in back.lines} == {back.invoice.invoice_id}
    assert back.invoice.invoice_id == invoice_id(one, 1) != invoice_id(one)
    known.update({line.line_id: line for line in back.lines})
    again = made_of(one, known, 2)
    assert (again.repeated, again.records) == (True, ())
    assert again.invoice.invoice_id == back.invoice.invoice_id


def test_a_line_that_a_file_has_twice_is_marked_and_one_with_another_amount_is_not():
    twice = made_of(report([line(0, "m", 5), line(0, "m", 5), line(0, "m", 6)]), {})
    assert [(one.amount, one.repeats) for one in twice.lines] == [
        ("0.000000000005", 0), ("0.000000000005", 1), ("0.000000000006", 0),
    ]  # fmt: skip
    native = [line(0, "m", 5, native_id="1"), line(0, "m", 5, native_id="2")]
    assert [one.repeats for one in made_of(report(native), {}).lines] == [0, 0]


def test_an_import_is_known_by_provider_and_bytes():
    one = report([line(0, "m", 5)])
    assert invoice_id(one) == invoice_id(report([]))
    assert invoice_id(one) != invoice_id(report([line(0, "m", 5)], "b"))


def test_totals_may_outgrow_64_bits():
    """Ten million won a line: exact text, whatever its size."""
    big = 10**25
    made = made_of(report([line(0, "m", big), line(1, "m", big)]), {})
    assert json.loads(made.invoice.totals_json) == {"USD": "20000000000000"}
    assert made.lines[0].amount == "10000000000000"


def test_time_between_buckets_is_a_gap():
    def bucket(start: int, end: int) -> Bucket:
        return Bucket(start_us=start, end_us=end, empty=False)

    assert gaps([bucket(0, 10), bucket(10, 20)]) == []
    assert gaps([bucket(0, 10), bucket(5, 30), bucket(40, 50)]) == [[30, 40]]


@given(digits=st.integers(-(10**18), 10**18), places=st.integers(0, 20), to=st.integers(0, 14))
def test_rounding_is_half_to_even_and_says_whether_it_changed_anything(digits, places, to):
    text = f"{digits}e-{places}"
    value, changed = rounded_to(text, to)
    exact = parse_scaled(text, 40)
    step = 10 ** (40 - to)
    assert abs(2 * (value * step - exact)) <= step
    assert changed == (value * step != exact)
    if abs(2 * (value * step - exact)) == step:
        assert value % 2 == 0


@given(st.binary(max_size=200))
def test_whatever_the_bytes_the_answer_is_a_report_or_a_refusal(content):
    read([content])


@given(st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from(["data", "results", "object", "amount", "start_time", "end_time", "value",
                         "currency", "starting_at", "cost_type", "uncached_input_tokens"]),
        inner, max_size=5),
    max_leaves=25,
))  # fmt: skip
def test_whatever_the_document_nothing_is_raised(value):
    read([json.dumps(value).encode()])
    for name in ("openai_usage", "openai_costs", "anthropic_usage", "anthropic_cost",
                 "gcp_billing"):  # fmt: skip
        read([json.dumps(value).encode()], format_name=name)


CELL = st.sampled_from(
    ["", "1", "-1", "1.5", "2026-09-01", "x", "=1", "NULL", "{}", "USD", "1e999"]
)


@given(st.sampled_from([
    "usage_date_utc,model,cost_usd,token_type",
    "usage_date_utc,usage_input_tokens_no_cache,usage_output_tokens",
    "start_time,end_time,start_time_iso,end_time_iso,num_model_requests,input_tokens",
    "BilledCost,ChargeCategory,ChargePeriodStart,BillingCurrency,ProviderName,Tags",
    "identity/LineItemId,lineItem/LineItemType,lineItem/UnblendedCost,lineItem/UsageStartDate",
]), st.lists(st.lists(CELL, min_size=1, max_size=7), max_size=3))  # fmt: skip
def test_whatever_the_cells_nothing_is_raised(heading, rows):
    text = "\n".join([heading, *(",".join(row) for row in rows)])
    read([text.encode()])
