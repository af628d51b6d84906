"""The API's reports: the pages' numbers, each tenant its own, exact to the pico unit."""

import csv
import io
import json
import shutil
from urllib.parse import parse_qs

import pytest
from django.http import QueryDict

from gateway.api.reports import PATHS, answer
from gateway.pages.cost_view import export
from gateway.pages.periods import asked
from gateway.reporting import read_costs
from gateway.submission import Caller
from ledger.money import parse_units
from ledger.queries.costs import costs
from ledger.reading import connect_read_only
from tests.ledger.receipts import HOUR_US, T0_US
from tests.ledger.seeded import Plans, fill, seeded_receipts
from tests.ledger.test_unpriced import without_rates

RECEIPTS = without_rates(seeded_receipts(400), every=7)
NOW_US = T0_US + 5 * 24 * HOUR_US + 4 * HOUR_US
TENANT = Caller(tenant_id="acme", key_id="key_1", scopes=frozenset({"inference", "receipts"}))
FLEET = Caller(tenant_id="acme", key_id="key_2", scopes=frozenset({"reports"}))
WEEK = {"within": ["7d"]}
QUERIES = {
    "/api/v1/costs": WEEK,
    "/api/v1/costs/bridge": WEEK,
    "/api/v1/slo": {},
    "/api/v1/releases": WEEK,
}


@pytest.fixture(scope="module")
def filled(ledger_template, tmp_path_factory):
    path = tmp_path_factory.mktemp("reports") / "ledger.sqlite3"
    shutil.copyfile(ledger_template, path)
    fill(path, RECEIPTS)
    return path


@pytest.fixture
def connection(filled):
    opened = connect_read_only(filled)
    yield opened
    opened.close()


def total_pico(receipts):
    return sum(one.cost_total_pico for one in receipts)


def test_costs_add_up_to_the_receipts_and_money_is_given_exactly_twice(connection):
    found = answer("/api/v1/costs", WEEK, FLEET, connection, NOW_US)
    assert found.status == 200
    assert found.body["total"]["cost"]["total_pico"] == total_pico(RECEIPTS)
    assert sum(row["cost"]["total_pico"] for row in found.body["rows"]) == total_pico(RECEIPTS)
    for row in found.body["rows"]:
        assert parse_units(row["cost"]["total"]) == row["cost"]["total_pico"]


@pytest.mark.parametrize(
    "query",
    [
        "within=7d&by=tenant&then=route",
        "within=7d&by=priority&then=day&zone=%2B05:30",
        "within=7d&by=status&then=",
        "first=2025-06-15&last=2025-06-17&by=path&then=logical_model&zone=Asia/Kolkata",
        "last=2025-06-16&by=hour&then=&zone=Asia/Kathmandu",
    ],
)
def test_page_api_and_csv_agree_on_the_same_query(connection, query):
    ask = read_costs(asked(QueryDict(query)), NOW_US)
    page = costs(connection, ask.when.period, ask.dimensions, zone=ask.when.zone)
    exported = list(csv.DictReader(io.StringIO(export(page).text)))
    parsed = parse_qs(query, keep_blank_values=True)
    body = answer("/api/v1/costs", parsed, FLEET, connection, NOW_US).body

    assert page.total.receipts > 0
    rows = [*body["rows"], body["total"]]
    assert [tuple(row["values"].values()) for row in body["rows"]] == [
        row.values for row in page.rows
    ]
    assert [row["cost"]["total_pico"] for row in rows] == [
        *(row.sums.cost_total_pico for row in page.rows),
        page.total.cost_total_pico,
    ]
    assert [(str(row["requests"]["receipts"]), row["cost"]["total"]) for row in rows] == [
        (row["requests"], row["cost_units"]) for row in exported
    ]
    assert [str(row["cost"]["unpriced_requests"]) for row in rows] == [
        row["unpriced_requests"] for row in exported
    ]


def test_CST_4_the_bridge_by_api_ends_at_the_costs_of_its_periods(connection):
    days = {"first": ["2025-06-17"], "last": ["2025-06-18"], "zone": ["+05:30"]}
    body = answer("/api/v1/costs/bridge", days, FLEET, connection, NOW_US).body
    effects = sum(one["cost_pico"] for one in body["effects"])
    assert body["after_cost_pico"] - body["before_cost_pico"] == effects != 0
    whole = answer("/api/v1/costs", days, FLEET, connection, NOW_US).body
    assert body["after_cost_pico"] == whole["total"]["cost"]["total_pico"]
    versus = {"versus_first": ["2025-06-15"], "versus_last": ["2025-06-16"], **days}
    assert answer("/api/v1/costs/bridge", versus, FLEET, connection, NOW_US).body == body


def test_the_bridge_of_a_tenants_key_is_its_own_and_bad_periods_are_named(connection):
    own = answer("/api/v1/costs/bridge", WEEK, TENANT, connection, NOW_US).body
    assert own["filters"] == {"tenant": ["acme"]}
    other = {**WEEK, "tenant": ["globex"]}
    assert answer("/api/v1/costs/bridge", other, TENANT, connection, NOW_US).status == 403
    wrong = {**WEEK, "versus_first": ["soon"]}
    refused = answer("/api/v1/costs/bridge", wrong, FLEET, connection, NOW_US)
    assert refused.status == 400
    assert "versus_first" in json.dumps(refused.body)


def test_a_tenants_key_sees_its_own_costs_alone(connection):
    body = answer("/api/v1/costs", WEEK, TENANT, connection, NOW_US).body
    own = [one for one in RECEIPTS if one.tenant_id == "acme"]
    assert body["total"]["cost"]["total_pico"] == total_pico(own)
    assert {row["values"]["tenant"] for row in body["rows"]} == {"acme"}
    asked = {**WEEK, "tenant": ["acme"]}
    assert answer("/api/v1/costs", asked, TENANT, connection, NOW_US).body == {**body}


@pytest.mark.parametrize("tenants", [["globex"], ["acme", "globex"]])
def test_a_tenants_key_that_asks_for_another_tenant_is_refused(connection, tenants):
    query = {**WEEK, "tenant": tenants}
    found = answer("/api/v1/costs", query, TENANT, connection, NOW_US)
    assert (found.status, found.body["code"]) == (403, "SCOPE_MISSING")


@pytest.mark.parametrize("path", ["/api/v1/slo", "/api/v1/releases"])
def test_reports_of_the_fleet_name_no_tenant_and_are_the_same_for_every_key(connection, path):
    query = QUERIES[path]
    found = answer(path, query, TENANT, connection, NOW_US)
    assert found == answer(path, query, FLEET, connection, NOW_US)
    assert found.status == 200
    assert not any(tenant in found.encoded() for tenant in (b"acme", b"globex", b"initech"))


def test_slo_burn_comes_with_numerators_and_denominators(connection):
    body = answer("/api/v1/slo", {}, FLEET, connection, NOW_US).body
    one = next(one for one in body["objectives"] if one["slo_id"] == "valid-completion")
    assert one["period"]["bad"] + one["period"]["good"] == one["period"]["valid"] > 0
    assert [rule["factor"]["exact"] for rule in one["rules"]] == ["72/5", "6", "3"]
    assert {rule["state"] for rule in one["rules"]} <= {"ALERT", "QUIET", "NO_DATA"}
    assert one["budget_left"]["exact"]


def test_releases_left_open_compare_the_busiest_identities_of_one_model(connection):
    body = answer("/api/v1/releases", WEEK, FLEET, connection, NOW_US).body
    comparison = body["comparison"]
    sides = [comparison[side]["requests"]["receipts"] for side in ("baseline", "candidate")]
    assert sides == sorted(sides, reverse=True)
    assert comparison["baseline"]["side"] != comparison["candidate"]["side"]
    assert set(comparison["baseline"]["latencies"]["ttft"]["quantiles"]) == {"p50", "p95", "p99"}
    assert comparison["completion_test"]["verdict"] in {"PASS", "FAIL", "INCONCLUSIVE"}


def test_arms_can_be_compared_by_name(connection):
    query = {
        **WEEK,
        "model": ["chat-large"],
        "baseline": ["release-1/stable"],
        "candidate": ["release-1/canary"],
    }
    comparison = answer("/api/v1/releases", query, FLEET, connection, NOW_US).body["comparison"]
    canary = [one for one in RECEIPTS if (one.logical_model, one.arm) == ("chat-large", "canary")]
    assert comparison["candidate"]["requests"]["receipts"] == len(canary)
    assert comparison["candidate"]["cost"]["total_pico"] == total_pico(canary)


def test_a_ledger_without_traffic_has_empty_reports(reader):
    found = answer("/api/v1/costs", {}, FLEET, reader, NOW_US).body
    assert found["rows"] == []
    assert found["total"]["cost"]["per_completed"] is None
    assert answer("/api/v1/releases", {}, FLEET, reader, NOW_US).body["comparison"] is None
    objectives = answer("/api/v1/slo", {}, FLEET, reader, NOW_US).body["objectives"]
    assert {one["state"] for one in objectives} == {"NO_DATA"}


@pytest.mark.parametrize("path", ["/api/v1/costs", "/api/v1/releases"])
def test_a_query_that_can_not_be_read_names_its_parameter(connection, path):
    found = answer(path, {"zone": ["Mars"]}, FLEET, connection, NOW_US)
    assert (found.status, found.body["code"]) == (400, "INVALID_REQUEST")
    assert found.body["detail"].startswith("zone: ")
    assert "Mars" not in found.body["detail"]


@pytest.mark.parametrize("path", PATHS)
def test_a_misspelt_parameter_is_refused_by_its_name(connection, path):
    found = answer(path, {"tennant": ["acme"]}, FLEET, connection, NOW_US)
    assert (found.status, found.body["code"]) == (400, "INVALID_REQUEST")
    assert found.body["detail"].startswith("tennant: no such parameter")


@pytest.mark.parametrize(
    ("path", "query", "said"),
    [
        ("/api/v1/releases", {"priority": ["nope"]}, "priority: there are interactive"),
        ("/api/v1/releases", {"model": ["nope"]}, "model: it had no traffic"),
        ("/api/v1/releases", {"baseline": ["nope"]}, "baseline: it had no traffic"),
        ("/api/v1/releases", {"candidate": ["re/nope"]}, "candidate: it had no traffic"),
        ("/api/v1/costs", {"priority": ["nope"]}, "priority: there are interactive"),
        ("/api/v1/costs", {"status": ["nope"]}, "status: there are completed"),
    ],
)
def test_a_value_that_there_is_not_is_refused_and_not_compared(connection, path, query, said):
    found = answer(path, {**WEEK, **query}, FLEET, connection, NOW_US)
    assert found.status == 400
    assert found.body["detail"].startswith(said)


def test_sums_of_more_than_64_bits_are_written_whole(connection):
    found = answer("/api/v1/costs", WEEK, FLEET, connection, NOW_US)
    assert found.body["total"]["cost"]["total_pico"] > 2**64
    assert json.loads(found.encoded()) == found.body


@pytest.mark.parametrize("path", PATHS)
def test_no_report_scans_a_large_table(connection, path):
    with Plans(connection) as plans:
        answer(path, QUERIES[path], FLEET, connection, NOW_US)
    assert plans.steps()
    assert plans.scans_of_large_tables() == []
