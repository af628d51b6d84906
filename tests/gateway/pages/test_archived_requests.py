"""A request whose records are in an archive is not "not found" (LED-8)."""

import msgspec
from django.test import Client
from django.urls import reverse

from gateway.api.absent import absent
from gateway.demo.fleet import policy as demo_policy
from ledger.reading import connect_read_only
from ledger.rollups.projection import Rollups
from ledger.store import Store
from tests import factories
from tests.ledger import archived as made


def test_the_page_of_an_archived_request_names_its_archive(ledger_path, tmp_path, viewer: Client):
    made.fill(ledger_path)
    file = made.archived(ledger_path, tmp_path / "old").archive.file
    answer = viewer.get(reverse("receipt", args=[factories.request_id(1)]))
    assert answer.status_code == 410
    assert f"in the archive {file}." in answer.content.decode()
    assert viewer.get(reverse("receipt", args=[factories.request_id(31)])).status_code == 200
    assert viewer.get(reverse("receipt", args=["req_none"])).status_code == 404
    focus = reverse("focus")
    gone = viewer.get(focus, {"first": "2025-11-01", "last": "2025-11-30"})
    assert (gone.status_code, file in gone.content.decode()) == (410, True)
    body = msgspec.json.encode(demo_policy()).decode()
    with Store.open(ledger_path, projections=(Rollups(),)) as store:
        store.append([factories.route_policy(revision="policy-2", body_json=body)]).result()
    table = reverse("rate-table", args=["rates-1"])
    trial = viewer.get(table, {"first": "2025-11-01", "last": "2025-11-30"}).content.decode()
    assert f"Not tried: requests of this range are in {file}." in trial


def test_a_tenant_learns_of_its_own_archived_requests_alone(ledger_path, tmp_path):
    made.fill(ledger_path)
    file = made.archived(ledger_path, tmp_path / "old").archive.file
    connection = connect_read_only(ledger_path)
    own = absent(connection, "acme", factories.request_id(1))
    assert (own.status, own.code) == (410, "REQUEST_ARCHIVED")
    assert own.message == f"The request is archived in {file}."
    theirs, none = (
        absent(connection, tenant_id, request_id)
        for tenant_id, request_id in (
            ("other-co", factories.request_id(1)),
            ("other-co", "req_none"),
        )
    )
    assert theirs == none
    assert (none.status, none.code) == (404, "NOT_FOUND")
    connection.close()
