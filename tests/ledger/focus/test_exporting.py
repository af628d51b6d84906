"""Receipts as FOCUS 1.2 charges: they conform, add up, and can be reconciled again (CST-9)."""

import csv
import hashlib
import io
import json
import tracemalloc

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.focus.charges import NO_CURRENCY, Issuer, components
from ledger.focus.checking import check
from ledger.focus.exporting import Exported, chunks, write
from ledger.invoices.formats import read
from ledger.money import parse_units
from ledger.queries.charges import ChargeFilter
from ledger.reading import connect_read_only
from ledger.store import Store
from ledger.zones import parse_zone
from tests import factories
from tests.ledger.receipts import receipt

DAY_US = 86_400_000_000
START_US = 1_788_220_800_000_000  # 2026-09-01T00:00:00Z
PICO = st.integers(0, 10**15)


@pytest.fixture
def store(ledger_path):
    with Store.open(ledger_path) as opened:
        opened.append([factories.rate_table()]).result()
        yield opened


def exported(path, wanted: ChargeFilter, **options) -> tuple[Exported, list[dict[str, str]], str]:
    connection = connect_read_only(path)
    out = io.BytesIO()
    written = write(connection, wanted, out, **options)
    connection.close()
    text = out.getvalue().decode()
    assert written.sha256 == hashlib.sha256(out.getvalue()).hexdigest()
    return written, list(csv.DictReader(io.StringIO(text))), text


def day(number: int = 0, days: int = 1, **options: str) -> ChargeFilter:
    start = START_US + number * DAY_US
    return ChargeFilter(start_us=start, end_us=start + days * DAY_US, **options)


def test_each_component_of_a_cost_is_a_charge_with_its_unit_price(store):
    one = factories.receipt(
        1, accepted_at_us=START_US + 1, cached_input_tokens=400, cost_input_pico=1_200_000_000,
        cost_cached_input_pico=200_000_000, cost_fixed_pico=7, cost_retry_and_hedge_pico=5,
        cost_total_pico=3_000_000_012, attempts=3, tags_json='{"team":"a"}',
    )  # fmt: skip
    store.append([one, factories.attempt_event(1)]).result()
    written, rows, text = exported(store.path, day())
    assert check(text).counts == {}
    assert written.rows == 5
    shown = [
        (r["SkuMeter"], r["PricingQuantity"], r["PricingUnit"], r["BilledCost"], r["ListUnitPrice"])
        for r in rows
    ]
    assert shown == [
        ("Input Tokens", "600", "Tokens", "0.0012", "0.000002"),
        ("Cached Input Tokens", "400", "Tokens", "0.0002", "0.0000005"),
        ("Output Tokens", "200", "Tokens", "0.0016", "0.000008"),
        ("Fixed Price", "1", "Requests", "0.000000000007", "0.000000000007"),
        ("Retries and Hedges", "2", "Requests", "0.000000000005", ""),  # 2.5 is no pico unit
    ]
    assert sum(parse_units(row["BilledCost"]) for row in rows) == one.cost_total_pico
    first = rows[0]
    assert first["BillingCurrency"] == NO_CURRENCY  # abstract units
    assert first["ChargePeriodStart"] == "2026-09-01T00:00:00Z"
    assert first["ChargePeriodEnd"] == "2026-09-01T00:15:00Z"
    assert (first["Tags"], first["x_ProviderRequestId"]) == ('{"team":"a"}', "prov-1")
    assert (first["AvailabilityZone"], first["InvoiceId"], first["ChargeClass"]) == ("", "", "")


def test_cst_7_tokens_of_a_meter_with_its_own_price_are_priced_there_and_no_price_is_no_zero(store):
    """400 of 1,000 tokens were written to a cache, at 5; and 3 searches, of which none is priced.

    The input's unit price is its rate's, also beside what has another; all tokens were consumed.
    """
    rate = msgspec.structs.replace(factories.RATE_TABLE.rates[0], meters=(("cache_write_5m", 5),))
    table = msgspec.structs.replace(factories.RATE_TABLE, version="rates-2", rates=(rate,))
    one = factories.receipt(
        1, accepted_at_us=START_US, usage_json='{"cache_write_5m":400,"web_search":3}',
        rate_table_version="rates-2", cost_input_pico=1_200_000_000, cost_other_pico=2_000,
        cost_total_pico=2_800_002_000,
    )  # fmt: skip
    store.append([factories.rate_table(table), one]).result()
    written, rows, text = exported(store.path, day())
    assert (check(text).counts, written.rows) == ({}, 4)
    names = ("SkuMeter", "ConsumedQuantity", "PricingQuantity", "BilledCost", "ListUnitPrice",
             "x_Unpriced")  # fmt: skip
    assert [tuple(row[name] for name in names) for row in rows] == [
        ("Input Tokens", "1000", "600", "0.0012", "0.000002", "false"),
        ("Output Tokens", "200", "200", "0.0016", "0.000008", "false"),
        ("Other Meters", "1", "1", "0.000000002", "0.000000002", "false"),
        ("Unpriced Meters", "1", "1", "0", "", "true"),
    ]
    assert json.loads(rows[2]["SkuPriceDetails"])["x_cache_write_5m"] == 400
    assert json.loads(rows[3]["SkuPriceDetails"])["x_web_search"] == 3


def test_cst_7_what_ran_without_a_rate_has_no_unit_price_and_what_never_ran_lacks_none(store):
    """A zero beside "unpriced" and no price; the retries of it cost what they cost."""
    nothing = {"rate_key": None, "cost_input_pico": 0, "cost_output_pico": 0}
    store.append(
        [
            factories.receipt(1, accepted_at_us=START_US, **nothing, attempts=2,
                              cost_retry_and_hedge_pico=7, cost_total_pico=7),
            factories.receipt(2, accepted_at_us=START_US + 1, **nothing, cost_total_pico=0,
                              status="failed", usage_source=None, output_tokens=0),
        ]
    ).result()  # fmt: skip
    _, rows, text = exported(store.path, day())
    assert check(text).counts == {}
    names = ("SkuMeter", "BilledCost", "ListUnitPrice", "ContractedUnitPrice", "x_Unpriced")
    assert [tuple(row[name] for name in names) for row in rows] == [
        ("Input Tokens", "0", "", "", "true"),
        ("Output Tokens", "0", "", "", "true"),
        ("Retries and Hedges", "0.000000000007", *["0.000000000007"] * 2, "false"),
        ("Input Tokens", "0", "0", "0", "false"),
    ]


def test_rejected_requests_are_no_charge_and_a_resolved_unknown_is_charged_once(store):
    first = factories.receipt(1, accepted_at_us=START_US, status="unknown")
    resolved = factories.receipt(1, accepted_at_us=START_US, revision=1, resolves_hash=b"x" * 32)
    refused = factories.rejected_receipt(2, accepted_at_us=START_US)
    store.append([first, refused, resolved]).result()
    _, rows, _ = exported(store.path, day())
    assert [(row["x_RequestId"], row["x_Status"]) for row in rows] == [
        (factories.request_id(1), "completed")
    ] * 2


def test_days_add_up_to_their_range_in_any_zone(store):
    """CST-9: each row once, whatever the zone; the export is the whole filtered set."""
    zone = parse_zone("+05:30")
    store.append(
        [factories.receipt(n, accepted_at_us=START_US + n * 5 * 3_600_000_000) for n in range(30)]
    ).result()
    shift_us = 19_800_000_000
    parts: list[dict[str, str]] = []
    for number in range(-1, 8):
        start = START_US - shift_us + number * DAY_US
        wanted = ChargeFilter(start_us=start, end_us=start + DAY_US)
        parts += exported(store.path, wanted, zone=zone)[1]
    _, whole, _ = exported(store.path, day(-2, 10), zone=zone)
    assert parts == whole
    assert len(whole) == 60
    assert whole[0]["BillingPeriodStart"] == "2026-08-31T18:30:00Z"


def test_a_tenant_is_a_filter_and_a_formula_is_a_text(store):
    store.append(
        [
            factories.receipt(1, accepted_at_us=START_US, tenant_id="=cmd()"),
            factories.receipt(2, accepted_at_us=START_US),
        ]
    ).result()
    _, rows, _ = exported(store.path, day(tenant_id="=cmd()"), issuer=Issuer(name="@us"))
    assert {row["SubAccountId"] for row in rows} == {"'=cmd()"}
    assert {row["ProviderName"] for row in rows} == {"'@us"}


def test_what_we_export_is_imported_again_to_the_last_digit(store):
    """Our own charges, read as a provider's: same amounts, same request ids."""
    records = []
    for number in range(1, 4):
        records += [factories.receipt(number, accepted_at_us=START_US + number, rate_key=None),
                    factories.attempt_event(number)]  # fmt: skip
    store.append(records).result()
    _, _, text = exported(store.path, day(), issuer=Issuer(name="Acme AI"))
    report = read([text.encode()])
    assert (report.provider, report.format, len(report.lines)) == ("acme-ai", "focus", 6)
    assert sum(line.amount_pico or 0 for line in report.lines) == 3 * 3_600_000_000
    assert [(line.provider_request_id, line.meter, line.tokens) for line in report.lines[:2]] == [
        ("prov-1", "input", 1_000),
        ("prov-1", "output", 200),
    ]


@given(
    counts=st.tuples(st.integers(0, 5_000), st.integers(0, 5_000), st.integers(0, 5_000)),
    costs=st.tuples(PICO, PICO, PICO, PICO, PICO, PICO),
    attempts=st.integers(1, 4),
)
def test_the_components_add_up_to_the_total(counts, costs, attempts):
    names = ("input", "cached_input", "output", "fixed", "retry_and_hedge", "other")
    one = receipt(
        input_tokens=counts[0] + counts[1],
        cached_input_tokens=counts[1],
        output_tokens=counts[2],
        attempts=attempts,
        cost_total_pico=sum(costs),
        **{f"cost_{name}_pico": pico for name, pico in zip(names, costs, strict=True)},
    )
    parts = list(components(one))
    assert sum(part.pico for part in parts) == one.cost_total_pico
    assert all(part.quantity >= 0 for part in parts)


def test_memory_does_not_grow_with_the_export(store):
    """CST-9: streaming: three times the rows, the same peak."""
    for start in range(0, 4_500, 1_500):
        store.append(
            [factories.receipt(n, accepted_at_us=START_US + n) for n in range(start, start + 1_500)]
        ).result()
    connection = connect_read_only(store.path)
    peaks = []
    for last in (1_500, 4_500):
        wanted = ChargeFilter(start_us=START_US, end_us=START_US + last)
        tracemalloc.start()
        rows = sum(count for _, count in chunks(connection, wanted))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert rows == 2 * last
    connection.close()
    assert peaks[1] < 1.3 * peaks[0]
