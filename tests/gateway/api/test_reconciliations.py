"""Reconciliations over HTTP: the runs, and one run's sums to the pico unit (REC-3)."""

import json

import pytest

from gateway.api.auth import ALL_SCOPES, SCOPE_INFERENCE, SCOPE_RECEIPTS, SCOPE_REPORTS
from gateway.operations.reconciliation import ImportInvoice
from tests.gateway.api.client import Client, SmallGateway
from tests.gateway.operations import books


@pytest.fixture
def ledger(ledger_path):
    """Two requests of September, and an invoice that has a third one's money."""
    for number in (1, 2):
        books.append(ledger_path, books.request(number, books.START_US + number))
    report = books.costs((0, books.usual(3)), *((day, []) for day in range(1, 30)))
    books.perform(ledger_path, ImportInvoice(files=(report,)))
    books.perform(ledger_path, books.compare())
    return ledger_path


def test_a_run_is_listed_and_its_sums_tie_out(ledger):
    client = Client(SmallGateway(ledger, scopes=(*ALL_SCOPES, SCOPE_REPORTS)))
    (provider,) = client.get("/api/v1/reconciliations").json["providers"]
    (listed,) = provider["runs"]
    assert (provider["provider"], len(provider["invoices"]), listed["newest"]) == (
        "openai",
        1,
        True,
    )
    reply = client.get(f"/api/v1/reconciliations/{listed['run_id']}")
    shown = reply.json
    assert (reply.status, shown["currency"], shown["verdict"]) == (200, "USD", "differs")
    assert shown["ours_pico"] + shown["difference_pico"] == shown["theirs_pico"]
    assert shown["difference_pico"] == sum(each["difference_pico"] for each in shown["movements"])
    assert shown["difference_units"] == listed["difference_units"] == "0.0036"
    assert (shown["signed"], shown["lock"]) == (None, None)
    assert reply.headers["etag"]
    assert client.get("/api/v1/reconciliations/none").status == 404


def test_rec_3_reconciliations_are_those_of_the_provider_and_period_asked_for(ledger):
    client = Client(SmallGateway(ledger, scopes=(*ALL_SCOPES, SCOPE_REPORTS)))
    (every,) = client.get("/api/v1/reconciliations").json["providers"]
    period = every["runs"][0]["period"]
    for query, shown in (
        ("provider=openai", [(1, 1)]),
        (f"provider=openai&period={period}", [(1, 1)]),
        (f"period={period}-01..{period}-02", [(1, 0)]),  # a part of the import; no run of that name
        ("period=1999-01", []),
        ("provider=other", []),
    ):
        found = client.get(f"/api/v1/reconciliations?{query}").json["providers"]
        assert [(len(one["invoices"]), len(one["runs"])) for one in found] == shown, query
    reply = client.get("/api/v1/reconciliations?period=autumn")
    assert (reply.status, reply.json["detail"][:13]) == (400, "period: write")


def test_whoever_reads_one_tenant_alone_may_not_read_everybodys_books(ledger):
    client = Client(SmallGateway(ledger, scopes=(SCOPE_INFERENCE, SCOPE_RECEIPTS)))
    reply = client.get("/api/v1/reconciliations")
    assert (reply.status, json.loads(reply.body)["code"]) == (403, "SCOPE_MISSING")
