"""The list of receipts and one receipt, as Django's client gets them."""

import random
import re
from pathlib import Path

import msgspec
import pytest
from django.test import Client

from ledger.queries.dossier import dossier
from ledger.queries.means import experiences
from ledger.queries.receipts import (
    Cursor,
    Listed,
    ReceiptFilter,
    filter_options,
    receipt_list,
    receipt_page,
)
from ledger.reading import connect_read_only
from ledger.records import RECORDS
from ledger.slo_defaults import DEFAULT_SLOS
from ledger.store import Store
from tests import factories
from tests.sample_console import base_records, sample_records

HX = {"HX-Request": "true"}


def text_of(answer) -> str:
    return " ".join(re.sub(r"<[^>]+>", " ", answer.content.decode()).split())


@pytest.fixture
def filled(store: Store) -> Store:
    """Six receipts of acme, three at one instant, one rejected; one of other-co."""
    rows = [factories.receipt(number) for number in (1, 2)]
    rows += [factories.receipt(number, accepted_at_us=factories.NOW_US + 9) for number in (3, 4, 5)]
    rows.append(factories.rejected_receipt(6, accepted_at_us=factories.NOW_US + 20))
    rows.append(factories.receipt(7, tenant_id="other-co", degraded_from="route-b"))
    store.append(rows).result()
    return store


def ids(page) -> list[str]:
    return [item.record.request_id for item in page.receipts]


def numbers(page) -> list[int]:
    return [int(one.removeprefix("req_")) for one in ids(page)]


def test_paging_there_and_back_shows_each_receipt_once_in_one_order(filled: Store, reader):
    whole = numbers(receipt_page(reader, ReceiptFilter()))
    assert whole == [6, 5, 4, 3, 7, 2, 1]
    seen, cursor, back = [], None, []
    while True:
        page = receipt_page(reader, ReceiptFilter(), cursor, limit=2)
        seen += numbers(page)
        back.append(page)
        if page.older is None:
            break
        cursor = page.older
    assert seen == whole
    newer = receipt_page(reader, ReceiptFilter(), back[-1].newer, limit=2)
    assert numbers(newer) == numbers(back[-2])
    assert numbers(receipt_page(reader, ReceiptFilter(), newer.older, limit=2)) == [1]


def test_a_receipt_that_a_later_revision_replaced_is_not_listed(filled: Store, reader):
    unknown = factories.receipt(8, status="unknown")
    filled.append([unknown]).result()
    filled.append([factories.receipt(8, revision=1, resolves_hash=b"x" * 32)]).result()
    found = receipt_page(reader, ReceiptFilter(request_id=unknown.request_id))
    assert [(item.record.revision, item.record.status) for item in found.receipts] == [
        (1, "completed")
    ]
    assert numbers(receipt_page(reader, ReceiptFilter())).count(8) == 1


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (ReceiptFilter(tenant_id="other-co"), [7]),
        (ReceiptFilter(status="rejected"), [6]),
        (ReceiptFilter(status="rejected", tenant_id="acme"), [6]),
        (ReceiptFilter(status="rejected", tenant_id="other-co"), []),
        (ReceiptFilter(status="completed", tenant_id="other-co"), [7]),
        (ReceiptFilter(status="completed"), [5, 4, 3, 7, 2, 1]),
        (ReceiptFilter(reason_code="DEADLINE_INSUFFICIENT", tenant_id="acme"), [6]),
        (ReceiptFilter(route_id=""), [6]),
        (ReceiptFilter(degraded=True), [7]),
        (ReceiptFilter(since_us=factories.NOW_US + 9, until_us=factories.NOW_US + 20), [5, 4, 3]),
        (ReceiptFilter(route_id="route-a", priority="batch"), []),
        (ReceiptFilter(tenant_id="' OR 1=1 --"), []),
    ],
)
def test_each_filter_keeps_what_matches(filled: Store, reader, wanted, expected):
    assert numbers(receipt_page(reader, wanted)) == expected


def test_a_list_shows_of_each_receipt_what_the_receipt_says(filled: Store, reader):
    filled.append([factories.receipt(8, task_type='"\\é\n', tenant_id='"\\é\n')]).result()
    for wanted in (
        ReceiptFilter(),
        ReceiptFilter(tenant_id='"\\é\n'),
        ReceiptFilter(tenant_id="x"),
    ):
        whole, listed = receipt_page(reader, wanted, limit=5), receipt_list(reader, wanted, limit=5)
        assert (listed.newer, listed.older) == (whole.newer, whole.older)
        fields = Listed.__struct_fields__[1:]
        assert [(one.seq, *(getattr(one, name) for name in fields)) for one in listed.receipts] == [
            (one.seq, *(getattr(one.record, name) for name in fields)) for one in whole.receipts
        ]


def test_a_rare_match_is_searched_for_in_bounded_steps(filled: Store, reader, monkeypatch):
    monkeypatch.setattr("ledger.queries.receipts.SCAN_LIMIT", 3)
    first = receipt_page(reader, ReceiptFilter(degraded=True))
    assert (ids(first), first.searched_to_us) == ([], factories.NOW_US + 9)
    second = receipt_page(reader, ReceiptFilter(degraded=True), first.older)
    assert numbers(second) == [7]


def test_no_query_of_the_receipts_pages_scans_or_sorts_a_table(filled: Store, ledger_path: Path):
    plans: list[str] = []
    connection = connect_read_only(ledger_path)
    statements: list[str] = []
    connection.set_trace_callback(statements.append)
    cursor = Cursor(accepted_at_us=factories.NOW_US + 9, seq=4, towards="older")
    for wanted in (
        ReceiptFilter(),
        ReceiptFilter(tenant_id="acme", since_us=1, until_us=factories.NOW_US * 2),
        ReceiptFilter(reason_code="X", degraded=False),
        ReceiptFilter(route_id="route-a"),
        ReceiptFilter(status="completed", priority="normal"),
        ReceiptFilter(status="failed"),
        ReceiptFilter(status="failed", tenant_id="acme"),
        ReceiptFilter(status="completed", tenant_id="acme"),
        ReceiptFilter(logical_model="assistant-large"),
        ReceiptFilter(request_id="req_x"),
    ):
        receipt_page(connection, wanted, cursor)
    filter_options(connection)
    dossier(connection, factories.request_id(1))
    experiences(connection, 0, factories.NOW_US, DEFAULT_SLOS)
    connection.set_trace_callback(None)
    sorts = []
    for statement in statements:
        found = connection.execute("EXPLAIN QUERY PLAN " + statement).fetchall()
        plans += [str(row[3]) for row in found]
        if "request_id = " not in statement:  # one request's few rows may be sorted
            sorts += [str(row[3]) for row in found if "TEMP B-TREE" in row[3]]
    assert plans
    tables = "|".join(record_type.TABLE for record_type in RECORDS)
    scans = [plan for plan in plans if re.search(rf"SCAN ({tables})\b(?!.*USING)", plan)]
    assert scans == []
    assert sorts == []


def test_the_filters_offer_the_values_that_occur(filled: Store, reader):
    offered = filter_options(reader)
    assert offered.tenants == ("acme", "other-co")
    assert offered.reason_codes == ("DEADLINE_INSUFFICIENT",)
    assert offered.routes == ("route-a",)


def test_the_same_url_serves_the_page_and_its_partial(filled: Store, viewer: Client):
    whole = viewer.get("/receipts?tenant=acme")
    part = viewer.get("/receipts?tenant=acme", headers=HX)
    restored = viewer.get(
        "/receipts?tenant=acme", headers=HX | {"HX-History-Restore-Request": "true"}
    )
    assert "<html" in whole.content.decode()
    assert part.content.decode().lstrip().startswith('<section id="results"')
    assert "<html" in restored.content.decode()
    assert "HX-Request" in whole["Vary"]
    assert "HX-Request" in part["Vary"]
    rows = re.findall(r"req_\d+", part.content.decode())
    assert sorted(set(rows)) == [factories.request_id(n) for n in range(1, 7)]


def test_an_empty_ledger_says_what_to_do(viewer: Client):
    assert "make demo" in text_of(viewer.get("/receipts"))


def test_filters_that_match_nothing_say_what_to_do(filled: Store, viewer: Client):
    said = text_of(viewer.get("/receipts?tenant=nobody"))
    assert "Widen the time, or drop the narrowest filter" in said


@pytest.mark.parametrize(
    "query",
    [
        "older=x",
        "older=1.-2",
        "newer=9",
        "older=9999999999999999999999.1",
        "older=1.99999999999999999999999999",
        "newer=9223372036854775808.1",
        f"older=1.{'0' * 60}1",
        "since=yesterday",
        "status=exploded",
        "within=9y",
        "tennant=acme",
    ],
)
def test_a_url_that_cant_be_read_is_said_and_lists_nothing(filled: Store, viewer: Client, query):
    answer = viewer.get(f"/receipts?{query}")
    assert answer.status_code == 400
    assert query.partition("=")[0] in text_of(answer)
    assert "That can't be listed" in text_of(answer).replace("&#x27;", "'")
    assert factories.request_id(1) not in answer.content.decode()


def test_the_largest_number_that_the_ledger_can_hold_is_a_place(filled: Store, viewer: Client):
    answer = viewer.get(f"/receipts?older={2**63 - 1}.{2**63 - 1}")
    assert answer.status_code == 200
    assert factories.request_id(1) in answer.content.decode()


def test_a_value_with_markup_is_shown_as_text(filled: Store, viewer: Client):
    body = viewer.get("/receipts?tenant=<script>alert(1)</script>").content.decode()
    assert "<script>alert" not in body


def test_a_post_to_a_page_is_refused(viewer: Client):
    assert viewer.post("/receipts").status_code == 405


@pytest.fixture
def whole_request(store: Store) -> str:
    """One completed and one refused request with all of their records."""
    dice, found = random.Random(4), {}
    store.append(base_records()).result()
    number = 0
    while set(found) != {"completed", "rejected"}:
        number += 1
        records = sample_records(number, factories.NOW_US + number, dice)
        status = records[-1].status  # type: ignore[attr-defined]
        if status in ("completed", "rejected") and status not in found:
            store.append(records).result()
            found[status] = records[-1].request_id  # type: ignore[attr-defined]
    return f"{found['completed']} {found['rejected']}"


def test_a_receipt_shows_time_decision_cost_identity_and_chain(whole_request, viewer, reader):
    request_id = whole_request.split()[0]
    answer = viewer.get(f"/receipts/{request_id}")
    said = text_of(answer)
    record = receipt_page(reader, ReceiptFilter(request_id=request_id)).receipts[0]
    assert "Accepted, and sent to" in said
    assert "fell at cost" in said
    assert "Computed again from usage and rate table: the same to the pico unit." in said
    assert record.entry_hash.hex() in said
    assert '<svg class="plot plot-waterfall"' in answer.content.decode()
    assert "bf16" in said or "fp8" in said
    assert f"&quot;seq&quot;: {record.seq}" in answer.content.decode()


def test_a_refused_request_shows_its_reason_its_limits_and_the_advice(whole_request, viewer):
    said = text_of(viewer.get(f"/receipts/{whole_request.split()[1]}"))
    assert "Nothing ran, nothing is owed." in said
    assert "What the caller can do:" in said
    assert "Allowed Observed" in said


def test_a_receipt_whose_cost_is_wrong_says_so(store: Store, viewer: Client):
    wrong = factories.receipt(1, cost_input_pico=1, cost_total_pico=1_600_000_001)
    store.append([factories.rate_table(), wrong]).result()
    said = text_of(viewer.get(f"/receipts/{wrong.request_id}"))
    assert "Computed again it differs: input is 0.000000000001, computed 0.002" in said


def test_cst_7_a_receipt_says_what_its_rate_has_no_price_for(store: Store, viewer: Client):
    """3 searches are no cost of nothing; 400 tokens written to a cache are none of the input's."""
    rate = msgspec.structs.replace(factories.RATE_TABLE.rates[0], meters=(("cache_write_5m", 5),))
    table = msgspec.structs.replace(factories.RATE_TABLE, rates=(rate,))
    one = factories.receipt(
        1, usage_json='{"cache_write_5m":400,"web_search":3}', cost_input_pico=1_200_000_000,
        cost_other_pico=2_000, cost_total_pico=2_800_002_000,
    )  # fmt: skip
    store.append([factories.rate_table(table), one]).result()
    said = text_of(viewer.get(f"/receipts/{one.request_id}"))
    assert "Input 600 2" in said
    assert "web_search 3 no price" in said
    assert "the same to the pico unit" in said


def test_a_receipt_without_any_other_record_is_still_shown(filled: Store, viewer: Client):
    said = text_of(viewer.get(f"/receipts/{factories.request_id(1)}"))
    assert "No decision of this request can be shown" in said


def test_an_unknown_request_is_not_found_and_says_why(viewer: Client):
    answer = viewer.get("/receipts/req_unknown")
    assert answer.status_code == 404
    assert "gets its receipt when it ends" in text_of(answer)


@pytest.mark.parametrize(
    ("valid", "chip", "fact"),
    [
        (0, "schema broken", "asked for, and the answer breaks it"),
        (1, "schema kept", "asked for, and the answer keeps it"),
        (None, "", "none was asked for"),
    ],
)
def test_a_receipt_says_whether_the_answer_keeps_its_schema(
    store: Store, viewer: Client, valid: int | None, chip: str, fact: str
):
    """DLV-4."""
    store.append([factories.receipt(1, schema_valid=valid)]).result()
    said = text_of(viewer.get(f"/receipts/{factories.request_id(1)}"))
    assert fact in said
    assert chip in said
    listed = text_of(viewer.get("/receipts"))
    assert ("schema broken" in listed) == (valid == 0)


@pytest.mark.parametrize(
    ("wished", "said"),
    [
        ({"ttft_objective_us": 500_000}, "x-slo-ttft-ms 500.0 440.0 kept"),
        ({"tpot_objective_us": 9_000}, "x-slo-tpot-ms 9.0 25.0 missed"),
        ({"tpot_objective_us": 9_000, "itl_mean_us": None}, "x-slo-tpot-ms 9.0 – not known"),
    ],
)
def test_a_receipt_says_whether_its_callers_own_objectives_were_kept(
    store: Store, viewer: Client, wished: dict[str, int | None], said: str
):
    """RTE-1: as the API's `objectives`; without one the page has no word of them."""
    store.append(
        [factories.receipt(1, first_token_us=440_000, **{"itl_mean_us": 25_000} | wished)]
    ).result()
    assert said in text_of(viewer.get(f"/receipts/{factories.request_id(1)}"))


def test_a_receipt_without_objectives_of_its_caller_has_no_word_of_them(filled, viewer):
    assert "own objectives" not in text_of(viewer.get(f"/receipts/{factories.request_id(1)}"))
