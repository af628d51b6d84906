"""The audit: every rule has a stable code, holds in a sound ledger, and names what breaks it."""

import json
import shutil
import sqlite3

import pytest

from ledger import records as r
from ledger.balances import balances
from ledger.invariants import CHECKS, audit
from ledger.reading import connect_read_only
from ledger.rollups.projection import Rollups
from tests import factories
from tests.factories import NOW_US
from tests.ledger.commands import run
from tests.ledger.prebuilt import prebuilt
from tests.ledger.tampering import tamper

CODES = [
    "DEBITS_EQUAL_CREDITS", "PENDING_IS_OPEN_UNKNOWNS", "ONE_FINAL_RECEIPT",
    "RECEIPT_HAS_DECISION", "RECEIPT_IS_ITS_ATTEMPTS", "SETTLEMENT_IS_ITS_RECEIPT",
    "SETTLED_ONCE", "NO_ORPHANS", "IDS_UNIQUE", "TIME_ORDER", "NOTHING_NEGATIVE",
    "IDEMPOTENCY_KEYS_POINT_AT_REQUESTS", "CHAIN_HEAD_IS_ROWS", "TRIGGERS_IN_PLACE",
    "OPEN_WORK_IS_ROWS", "ARCHIVES_ARE_KEPT", "ARCHIVED_SUMS_ARE_REQUESTS",
    "ROLLUPS_EQUAL_RECEIPTS",
]  # fmt: skip


def share(store):
    """Requests as the gateway files them, so that their records share rows."""
    store.append([factories.rate_table()]).result()
    for number in range(6):
        for commit in factories.gateway_records(number):
            store.append(commit).result()
    store.append(factories.gateway_records(6)[0]).result()


def live(store):
    """Requests of every fate: completed, refused, unknown, written off, overrun, under way."""
    store.append([factories.rate_table(), factories.api_key()]).result()
    for number in range(6):
        for commit in factories.request_records(number):
            store.append(commit).result()
    refused = (factories.route_decision(10), factories.rejected_receipt(10))
    store.append(refused).result()
    for number in (11, 12):  # unknown, the second written off by a person
        first, _ = factories.request_records(number)
        store.append(first).result()
        store.append(
            [
                factories.attempt_event(number, outcome="unknown"),
                factories.receipt(number, status="unknown"),
            ]
        ).result()
    store.append([factories.settlement(12, kind="written_off", cost_pico=0)]).result()
    first, _ = factories.request_records(13)
    over = 3_600_000_001
    store.append(
        [
            *first,
            factories.attempt_event(13, cost_pico=over),
            factories.settlement(13, cost_pico=over, overrun_pico=1),
            factories.receipt(13, cost_total_pico=over),
        ]
    ).result()
    first, _ = factories.request_records(15)  # a retry: the first attempt cost nothing
    again = factories.reservation(15, reservation_id="res_retry")
    store.append([*first, again, factories.settlement(15, kind="voided", cost_pico=0)]).result()
    lost = factories.attempt_event(15, outcome="unknown")
    store.append([lost, factories.receipt(15, status="unknown")]).result()
    first, _ = factories.request_records(14)
    key = r.IdempotencyKey(
        tenant_id="acme",
        key_mac=b"k" * 32,
        body_mac=b"b" * 32,
        request_id=factories.request_id(14),
        claimed_at_us=NOW_US,
    )
    store.append((*first, key)).result()


@pytest.fixture(scope="module")
def shared_once(ledger_template, tmp_path_factory):
    return prebuilt(ledger_template, tmp_path_factory.mktemp("shared"), share, (Rollups(),))


@pytest.fixture(scope="module")
def lived_once(ledger_template, tmp_path_factory):
    return prebuilt(ledger_template, tmp_path_factory.mktemp("lived"), live, (Rollups(),))


@pytest.fixture
def shared(shared_once, ledger_path):
    return shutil.copyfile(shared_once, ledger_path)


@pytest.fixture
def lived(lived_once, ledger_path):
    return shutil.copyfile(lived_once, ledger_path)


def broken(path, **options):
    """The codes of the rules that don't hold, but that of the triggers the tamperer dropped."""
    connection = connect_read_only(path)
    results = audit(connection, **options)
    connection.close()
    return {one.code: one.findings for one in results if not one.holds} | {}


def tampered(path, *statements):
    tamper(path, *statements)
    found = broken(path)
    assert "TRIGGERS_IN_PLACE" in found
    return {code: findings for code, findings in found.items() if code != "TRIGGERS_IN_PLACE"}


def test_the_codes_are_stable_and_each_has_a_title():
    assert [check.code for check in CHECKS] == CODES
    assert all(check.title and check.severity in ("fault", "warning") for check in CHECKS)


def test_every_rule_holds_whatever_became_of_the_requests(lived):
    assert broken(lived) == {}


def test_at_rest_a_request_without_a_receipt_is_at_fault(lived):
    found = broken(lived, at_rest=True)
    assert list(found) == ["ONE_FINAL_RECEIPT"]
    assert [one.label for one in found["ONE_FINAL_RECEIPT"]] == [factories.request_id(14)]


def test_the_columns_of_a_tenant_are_exact(lived):
    connection = connect_read_only(lived)
    (balance,) = balances(connection)
    connection.close()
    assert balance.reserved_pico == 12 * 3_600_000_000
    assert (balance.overrun_pico, balance.posted_pico) == (1, 7 * 3_600_000_000 + 1)
    assert (balance.released_pico, balance.written_off_pico) == (3_600_000_000, 3_600_000_000)
    assert balance.pending_pico == balance.held_pico == 3 * 3_600_000_000
    assert balance.debits_pico == balance.credits_pico


REQUEST = factories.request_id(1)
RESERVATION = factories.reservation(1).reservation_id
BREAKS = [
    ("DEBITS_EQUAL_CREDITS", "UPDATE settlement SET overrun_pico = 5 WHERE {one}"),
    ("DEBITS_EQUAL_CREDITS", "UPDATE open_hold SET cost_pico = cost_pico + 1"),
    ("PENDING_IS_OPEN_UNKNOWNS", "DELETE FROM open_hold"),
    ("PENDING_IS_OPEN_UNKNOWNS", "UPDATE open_hold SET cost_pico = -1"),
    ("PENDING_IS_OPEN_UNKNOWNS", "UPDATE settlement SET kind = 'voided' WHERE kind LIKE 'w%'"),
    ("PENDING_IS_OPEN_UNKNOWNS", "UPDATE receipt SET status = 'unknown' WHERE {one}"),
    ("ONE_FINAL_RECEIPT", "UPDATE receipt SET revision = 1 WHERE {one}"),
    ("RECEIPT_HAS_DECISION", "DELETE FROM route_decision WHERE {one}"),
    ("RECEIPT_IS_ITS_ATTEMPTS", "UPDATE attempt_event SET cost_pico = 1 WHERE {one}"),
    ("SETTLEMENT_IS_ITS_RECEIPT", "UPDATE settlement SET cost_pico = 1 WHERE {one}"),
    ("SETTLED_ONCE", "DELETE FROM reservation WHERE {one}"),
    ("NO_ORPHANS", "DELETE FROM attempt WHERE {one}"),
    ("NO_ORPHANS", "UPDATE trace_event SET request_id = 'req_x' WHERE {one}"),
    ("TIME_ORDER", "UPDATE receipt SET ended_at_us = 1 WHERE {one}"),
    ("TIME_ORDER", "UPDATE settlement SET settled_at_us = 1 WHERE {one}"),
    ("NOTHING_NEGATIVE", "UPDATE receipt SET output_tokens = -1 WHERE {one}"),
    ("IDEMPOTENCY_KEYS_POINT_AT_REQUESTS", "UPDATE idempotency_key SET tenant_id = 'beta'"),
    ("CHAIN_HEAD_IS_ROWS", "UPDATE chain_head SET size = size - 1"),
    ("CHAIN_HEAD_IS_ROWS", "DELETE FROM chain_head"),
    ("CHAIN_HEAD_IS_ROWS", "DELETE FROM trace_event WHERE {one}"),
    ("OPEN_WORK_IS_ROWS", "DELETE FROM open_request"),
    ("OPEN_WORK_IS_ROWS", "UPDATE tenant_posted SET low = low + 1"),
    ("OPEN_WORK_IS_ROWS", "UPDATE tenant_posted SET low = 'many'"),
    ("ROLLUPS_EQUAL_RECEIPTS", "UPDATE rollup_total SET input_tokens = input_tokens + 1"),
    ("ROLLUPS_EQUAL_RECEIPTS", "INSERT INTO rollup_packed VALUES (15, 0, x'00')"),
    ("ARCHIVED_SUMS_ARE_REQUESTS", "INSERT INTO archived_request VALUES ('r', 't', 9)"),
    ("ARCHIVES_ARE_KEPT", "INSERT INTO archived_row VALUES (9, 1, x'', x'', 8)"),
]


@pytest.mark.parametrize(("code", "statement"), BREAKS)
def test_what_breaks_a_rule_is_found_under_its_code(lived, code, statement):
    found = tampered(lived, statement.format(one=f"request_id = '{REQUEST}'"))
    assert code in found
    assert all(finding.what for finding in found[code])


SECOND = "INSERT INTO settlement VALUES (9, 1, x'', '{id}', '{id}', 'voided', 9, 0, 0, 'x')"
BEGUN = "INSERT INTO attempt VALUES (9, 1, x'', '{id}.0', '{id}', 0, 'p', 'r', 'i', 's', 9)"
SHARED_BREAKS = [
    ("DEBITS_EQUAL_CREDITS", "UPDATE receipt SET cost_estimated_pico = 1 WHERE {one}"),
    ("PENDING_IS_OPEN_UNKNOWNS", "UPDATE receipt SET closes = 0 WHERE {one}"),
    ("RECEIPT_HAS_DECISION", "DELETE FROM route_decision WHERE {one}"),
    ("SETTLED_ONCE", "UPDATE route_decision SET hold_kv_tokens = NULL WHERE {one}"),
    ("SETTLED_ONCE", SECOND),
    ("IDS_UNIQUE", SECOND),
    ("IDS_UNIQUE", BEGUN),
    ("NO_ORPHANS", "UPDATE route_decision SET attempt_kind = NULL WHERE {one}"),
    ("TIME_ORDER", "UPDATE route_decision SET hold_bound_at_us = 1 WHERE {one}"),
    ("TIME_ORDER", "UPDATE receipt SET ended_at_us = 1 WHERE {one}"),
    ("NOTHING_NEGATIVE", "UPDATE route_decision SET hold_kv_tokens = -1 WHERE {one}"),
    ("OPEN_WORK_IS_ROWS", "UPDATE receipt SET cost_total_pico = 1 WHERE {one}"),
    ("OPEN_WORK_IS_ROWS", "DELETE FROM open_hold"),
]  # fmt: skip


def test_every_rule_holds_where_records_share_rows(shared):
    assert broken(shared) == {}
    connection = connect_read_only(shared)
    (balance,) = balances(connection)
    connection.close()
    cost = 3_600_000_000
    assert (balance.reserved_pico, balance.posted_pico) == (7 * cost, 6 * cost)
    assert balance.pending_pico == balance.held_pico == cost


@pytest.mark.parametrize(("code", "statement"), SHARED_BREAKS)
def test_what_breaks_a_rule_in_a_shared_row_is_found_under_its_code(shared, code, statement):
    found = tampered(shared, statement.format(one=f"request_id = '{REQUEST}'", id=REQUEST))
    assert code in found


def test_a_row_at_fault_is_named_by_table_seq_and_id(lived):
    connection = sqlite3.connect(lived)
    sql = f"SELECT seq FROM receipt WHERE request_id = '{REQUEST}'"
    seq = connection.execute(sql).fetchone()[0]
    connection.close()
    found = tampered(lived, f"UPDATE receipt SET cost_total_pico = 1 WHERE seq = {seq}")
    finding = found["RECEIPT_IS_ITS_ATTEMPTS"][0]
    assert str(finding) == f"receipt seq {seq} ({REQUEST}): its attempts cost another sum"


def test_a_key_that_stands_for_two_rows_is_found(lived):
    connection = sqlite3.connect(lived)
    connection.execute("PRAGMA writable_schema = ON")
    connection.execute("UPDATE sqlite_master SET sql = replace(sql, 'UNIQUE', 'CHECK') "
                       "WHERE name = 'settlement' AND 0")  # fmt: skip
    connection.execute("DELETE FROM sqlite_master WHERE name LIKE 'sqlite_autoindex_settlement_1'")
    connection.execute(
        'UPDATE sqlite_master SET sql = replace(sql, \', CONSTRAINT "settlement_u1" '
        "UNIQUE (\"reservation_id\")', '') WHERE name = 'settlement'"
    )
    connection.commit()
    connection.close()
    found = tampered(
        lived,
        "INSERT INTO settlement SELECT 9999, v, entry_hash, reservation_id, request_id, kind, "
        f"settled_at_us, cost_pico, overrun_pico, settled_by FROM settlement "
        f"WHERE reservation_id = '{RESERVATION}'",
        "UPDATE chain_head SET size = 9999",
    )
    assert [one.seq for one in found["IDS_UNIQUE"]] == [9999]
    assert [one.seq for one in found["SETTLED_ONCE"]] == [9999]


def test_the_command_exits_0_or_1_and_tells_every_rule(lived):
    status, out, err = run("audit", "--ledger", str(lived))
    assert (status, err) == (0, "")
    assert [line.split()[1] for line in out.splitlines()] == CODES
    tamper(lived, f"UPDATE settlement SET cost_pico = 1 WHERE request_id = '{REQUEST}'")
    status, out, err = run("audit", "--ledger", str(lived), "--json", "--quick")
    assert status == 1
    results = {one["code"]: one["findings"] for one in json.loads(out)}
    assert list(results) == CODES[:-1]
    assert results["SETTLEMENT_IS_ITS_RECEIPT"][0]["label"] == REQUEST
