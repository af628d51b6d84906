"""A report that can't be read is refused whole, with a code and its place (REC-1)."""

import gzip
import json

import pytest

from ledger.invoices.formats import FORMATS, read
from ledger.invoices.values import Refusal, Report

RESULT = {
    "object": "organization.costs.result",
    "amount": {"value": 0.5, "currency": "usd"},
    "line_item": "gpt-5, input",
    "project_id": "p",
    "api_key_id": None,
    "quantity": 10,
    "quantity_unit": "tokens",
}
FIRST = {"start_time": 1788220800, "end_time": 1788307200, "results": [RESULT]}
SECOND = {"start_time": 1788307200, "end_time": 1788393600, "results": []}


def page(*buckets: object, more: bool = False) -> bytes:
    return json.dumps({"object": "page", "data": buckets, "has_more": more}, indent=1).encode()


def changed(**fields: object) -> dict[str, object]:
    return {**FIRST, "results": [{**RESULT, **fields}]}


def refused(*files: bytes, **options: str) -> Refusal:
    found = read(files, **options)
    assert isinstance(found, Refusal), found
    return found


def whole(*files: bytes, **options: str) -> Report:
    found = read(files, **options)
    assert isinstance(found, Report), found
    return found


@pytest.mark.parametrize(
    ("content", "code", "line", "column"),
    [
        (b"", "EMPTY_FILE", 1, 1),
        (b"a,b\n1,2\n", "UNKNOWN_FORMAT", 1, 1),
        (b'{"data": [1,]}', "JSON", 1, 13),
        (b'{\n "data": [\n  {"results" 1}]}', "JSON", 3, 14),
        (b'{"nothing": 1}', "UNKNOWN_FORMAT", 1, 1),
        (b'{"a": 1, "a": 2, "data": []}', "DUPLICATE_KEY", 1, 1),
        (b"caf\xe9,b\n", "ENCODING", 1, 4),
        (b"\x1f\x8bnothing", "COMPRESSION", None, None),
        (page(changed(amount={"value": "0.5", "currency": "usd"})), "WRONG_TYPE", 10, 16),
        (page(changed(amount={"value": 0.5, "currency": "dollars"})), "CURRENCY", 10, 16),
        (page(changed(amount={"value": float("nan"), "currency": "usd"})), "NOT_A_NUMBER", 11, 16),
        (page(changed(quantity=1.5)), "NOT_A_NUMBER", 8, 5),
        (page({**FIRST, "end_time": 1788220800}), "TIME", 4, 1),
        (page(FIRST, more=True), "INCOMPLETE_PAGES", None, None),
        (page(SECOND), "AMBIGUOUS_FORMAT", 1, 1),
    ],
)
def test_what_can_not_be_read_is_refused_with_its_place(content, code, line, column):
    found = refused(content)
    assert (found.code, found.line, found.column) == (code, line, column)


def test_a_currency_that_iso_4217_does_not_have_is_refused_with_its_line():
    found = refused(page(changed(amount={"value": 0.5, "currency": "xbt"})))
    assert (found.code, found.line) == ("CURRENCY", 10)
    assert "'XBT' is no currency code of ISO 4217" in found.message
    for text in ("usd", "CHF", "x" * 3):
        whole(page(changed(amount={"value": 0.5, "currency": text})))


def test_use_that_costs_money_is_not_counted_below_zero():
    for quantity, unit in ((-100, "tokens"), (-3, "images")):
        found = refused(page(changed(quantity=quantity, quantity_unit=unit)))
        assert (found.code, found.line) == ("NEGATIVE", 8)
        assert f"a quantity of {quantity}" in found.message
    amount = {"value": -0.5, "currency": "usd"}
    credit = whole(page(changed(quantity=-100, amount=amount))).lines
    assert [(one.kind, one.tokens) for one in credit] == [("credit", -100)]


def test_an_amount_beyond_the_limit_is_refused():
    whole(page(changed(amount={"value": 10**18, "currency": "usd"})))
    found = refused(page(changed(amount={"value": 10**18 + 1, "currency": "usd"})))
    assert (found.code, found.line) == ("OUT_OF_RANGE", 10)


@pytest.mark.parametrize(
    ("end", "seconds"),
    [
        ("2026-09-01T23:59:60Z", 86_400),
        ("2026-09-01T23:59:60.5Z", 86_400.5),
        ("2026-09-02T05:29:60+05:30", 86_400),
        ("2026-09-01 23:59:60", 86_400),
        ("2026-09-01T22:59:60Z", None),
        ("2026-09-01T23:58:60Z", None),
        ("2026-09-01T23:59:61Z", None),
    ],
)
def test_a_leap_second_is_the_second_after_it(end, seconds):
    heading = (
        "identity/LineItemId,lineItem/LineItemType,lineItem/UsageStartDate,lineItem/UsageEndDate,"
        "lineItem/CurrencyCode,lineItem/UnblendedCost"
    )
    content = f"{heading}\na,Usage,2026-09-01T00:00:00Z,{end},USD,1\n".encode()
    if seconds is None:
        assert (refused(content).code, refused(content).line) == ("TIME", 2)
    else:
        (line,) = whole(content).lines
        assert line.end_us - line.start_us == seconds * 10**6


@pytest.mark.parametrize(
    "day", ["9999-12-31", "9999-12-31T23:59:60Z", "3000-01-01", "0001-01-01", "1969-12-31"]
)
def test_a_time_that_no_calendar_would_show_is_refused_with_its_place(day):
    """REC-1: a day after 9999-12-31 has no name, and no page could show its line."""
    heading = "usage_date_utc,model,cost_usd,token_type\n"
    found = refused(f"{heading}{day},m,1.00,output\n".encode())
    assert (found.code, found.line, found.column) == ("TIME", 2, 1)
    assert len(whole(f"{heading}2999-12-31,m,1.00,output\n".encode()).lines) == 1


def test_a_row_names_its_line_and_column():
    heading = b"usage_date_utc,model,cost_usd,token_type\n"
    good = b'2026-09-01,"a model, of\ntwo lines",0.10,output\n'
    assert len(whole(heading + good).lines) == 1
    found = refused(heading + good + b"2026-09-01,m,ten,output\n")
    assert (found.code, found.line, found.column) == ("NOT_A_NUMBER", 4, 3)
    assert "'ten' is no decimal number" in found.message
    short = refused(heading + b"2026-09-01,m\n")
    assert (short.code, short.line, short.column) == ("ROW_LENGTH", 2, 3)
    unquoted = refused(heading + b'2026-09-01,"m"x,0.1,output\n')
    assert (unquoted.code, unquoted.line) == ("CSV", 2)
    twice = refused(b"usage_date_utc,cost_usd,cost_usd,token_type\n")
    assert (twice.code, twice.line, twice.column) == ("COLUMNS", 1, 3)


def test_a_jsonl_row_names_its_line():
    row = {"cost_type": "new", "sku": {"description": "x"}}
    first = b'{"sku": 1, "cost_type": "regular"}\n'
    found = refused(first + json.dumps(row).encode())
    assert (found.code, found.line) == ("WRONG_TYPE", 1)
    found = refused(json.dumps(row).encode())
    assert (found.code, found.line, found.column) == ("UNKNOWN_KIND", 1, 1)


def test_anthropics_cents_must_be_a_text():
    """An amount that is a number could be dollars: nothing is guessed."""
    result = {"amount": 450.0369, "cost_type": "tokens", "currency": "USD", "workspace_id": None}
    bucket = {"starting_at": "2026-09-01T00:00:00Z", "ending_at": "2026-09-02T00:00:00Z"}
    assert refused(page({**bucket, "results": [result]})).code == "WRONG_TYPE"
    found = whole(page({**bucket, "results": [{**result, "amount": "450.0369"}]}))
    assert found.lines[0].amount_pico == 4_500_369_000_000


def test_pages_make_one_report_and_are_checked_against_each_other():
    first, last = page(FIRST, more=True), page(SECOND)
    found = whole(first, last)
    assert (len(found.lines), len(found.buckets)) == (1, 2)
    assert refused(first, first).code == "REPEATED_FILE"
    assert refused(page(FIRST), page(changed(quantity=1))).code == "AFTER_LAST_PAGE"
    again = page(changed(quantity=1))
    assert (refused(first, again).code, refused(first, again).file) == ("REPEATED_BUCKET", 1)
    usage = page({**SECOND, "results": [{"object": "organization.usage.completions.result",
        "input_tokens": 0, "input_cached_tokens": 0, "output_tokens": 0}]})  # fmt: skip
    assert refused(first, usage).code == "MIXED_FORMATS"


def test_a_named_format_is_held_to_its_heading():
    assert refused(b"a,b\n1,2\n", format_name="focus").code == "WRONG_FORMAT"
    assert refused(b"a,b\n", format_name="xls").code == "UNKNOWN_FORMAT"
    assert refused(b"a,b\n", provider="").code == "PROVIDER"
    assert read(()).code == "FILES"
    assert "openai_costs" in FORMATS


def test_a_byte_order_mark_utf_16_and_gzip_are_read():
    text = "usage_date_utc,model,cost_usd,token_type\r\n2026-09-01 13:00,m,0.10,output\r\n"
    plain = whole(text.encode()).lines
    assert plain[0].end_us - plain[0].start_us == 3_600_000_000
    for content in (text.encode("utf-8-sig"), text.encode("utf-16"), gzip.compress(text.encode())):
        assert whole(content).lines == plain


def test_tokens_that_contradict_each_other_are_refused():
    usage = {"object": "organization.usage.completions.result", "input_tokens": 10,
             "input_cached_tokens": 4, "output_tokens": 1}  # fmt: skip

    def of(**fields: object) -> bytes:
        return page({**FIRST, "results": [{**usage, **fields}]})

    assert whole(of()).lines[0].tokens == 6
    assert refused(of(input_cached_tokens=11)).code == "INCONSISTENT_TOKENS"
    assert refused(of(input_uncached_tokens=7)).code == "INCONSISTENT_TOKENS"
    assert refused(of(output_tokens=-1)).code == "NEGATIVE"
    assert refused(of(output_tokens=None)).code == "MISSING"


def test_an_amount_finer_than_a_pico_unit_is_rounded_and_said_to_be():
    found = whole(page(changed(amount={"value": 0.30000000000000004, "currency": "usd"})))
    assert (found.lines[0].amount_pico, found.lines[0].rounded) == (300_000_000_000, True)
    exact = whole(page(changed(amount={"value": 6e-07, "currency": "usd"})))
    assert (exact.lines[0].amount_pico, exact.lines[0].rounded) == (600_000, False)


def test_lines_beyond_the_limit_are_refused():
    rows = b"2026-09-01,m,0.10,output\n" * 50_001
    found = refused(b"usage_date_utc,model,cost_usd,token_type\n" + rows)
    assert found.code == "TOO_MANY_LINES"


TIMES = '"usage_start_time": "2026-09-01", "usage_end_time": "2026-09-02"'
FOCUS = (
    "BilledCost,ChargeCategory,ChargePeriodStart,ChargePeriodEnd,BillingCurrency,ProviderName,Tags"
)
CHARGE = "1,Usage,2026-09-01,2026-09-02,USD,Acme"
TAGGED = "identity/LineItemId,lineItem/LineItemType,lineItem/UnblendedCost,resourceTags/user:a"


@pytest.mark.parametrize(
    ("content", "line", "column"),
    [
        (page(changed(line_item="half \ud800")), 8, 5),
        (page(changed(project_id="a\0b")), 8, 5),
        (page(changed(project_id="\x9b31m")), 8, 5),
        (page(changed(object="\udfff")), 8, 5),
        (b"usage_date_utc,model,cost_usd,token_type\n2026-09-01,m\0,1,x\n", 2, 2),
        (b"usage_date_utc,model,cost_usd,token_type\n2026-09-01,m,1,\x1b[2J\n", 2, 4),
        (f'{{{TIMES}, "cost_type": "\\udc00", "sku": {{}}}}'.encode(), 1, 1),
        (f'{FOCUS}\n{CHARGE},"{{""a"": ""\\ud800""}}"\n'.encode(), 2, 7),
        (f'{FOCUS}\n{CHARGE},"{{""\\u0000"": 1}}"\n'.encode(), 2, 7),
        (f"{TAGGED}\x7f\n".encode(), 1, 4),
    ],
)
def test_control_characters_and_half_ones_are_refused_in_the_texts_of_every_format(
    content, line, column
):
    """REC-1: in any text that is kept; each with its place."""
    found = refused(content)
    assert (found.code, found.line, found.column) == ("CHARACTER", line, column), found
    assert "U+" in found.message
    str(found).encode()


def test_tabs_and_line_ends_are_characters_of_a_text():
    assert whole(page(changed(line_item="two\nlines\tand a tab"))).lines[0].description == (
        "two\nlines\tand a tab"
    )


def test_a_providers_name_has_no_control_characters():
    assert refused(page(FIRST), provider="acme\ud800").code == "PROVIDER"
    assert refused(page(FIRST), provider="acme\0").code == "PROVIDER"


def test_tags_that_are_nested_too_deeply_are_refused():
    found = refused(f"{FOCUS}\n{CHARGE},{'[' * 8_000}\n".encode())
    assert (found.code, found.line, found.column) == ("WRONG_TYPE", 2, 7)
