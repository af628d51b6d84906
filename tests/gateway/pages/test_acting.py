"""Forms that change something: roles, reasons, refusals, secrets shown once, and no other host."""

import re

import pytest
from django.http import QueryDict
from django.test import Client

from gateway.operations.registry import OPERATIONS
from gateway.pages.acting import tree_of
from ledger.queries.actions import actions_page
from ledger.queries.configuration import tenants
from ledger.queries.people import keys_of, tenant_revisions
from ledger.reading import connect_read_only
from tests.gateway.pages.conftest import LogIn

QUOTA = {"tenant_id": "new-team", "quota.in_flight_limit": "3", "reason": "they start"}


def state(ledger):
    connection = connect_read_only(ledger)
    try:
        return (
            [one.tenant_id for one in tenants(connection)],
            [item.record for item in actions_page(connection).actions],
        )
    finally:
        connection.close()


def test_an_admin_makes_a_tenant_and_the_log_says_who_and_why(own_ledger, log_in: LogIn):
    client = log_in("admin")
    answer = client.post("/act/set_tenant", {**QUOTA, "next": "/tenants"})
    assert (answer.status_code, answer["Location"]) == (302, "/tenants")
    names, (action,) = state(own_ledger)
    assert "new-team" in names
    assert (action.action, action.subject, action.reason) == (
        "set_tenant", "new-team", "they start",
    )  # fmt: skip
    assert action.actor.startswith("console:")
    page = client.get("/tenants").content.decode()
    assert "Set the quota of new-team, revision 1." in page
    assert client.get("/tenants/new-team").status_code == 200
    assert "they start" in client.get("/audit-log").content.decode()


@pytest.mark.parametrize(("role", "status"), [(None, 403), ("viewer", 403), ("operator", 422)])
def test_a_lower_role_changes_nothing(own_ledger, log_in: LogIn, role, status):
    before = state(own_ledger)
    assert log_in(role).post("/act/set_tenant", QUOTA).status_code == status
    assert state(own_ledger) == before


@pytest.mark.parametrize(
    ("form", "said"),
    [
        ({**QUOTA, "reason": ""}, "REASON_MISSING"),
        ({**QUOTA, "quota.in_flight_limit": "many"}, "INVALID_REQUEST"),
        ({**QUOTA, "quota.in_flight_limit": "0"}, "INVALID_QUOTA"),
        ({**QUOTA, "no_such_field": "1"}, "INVALID_REQUEST"),
        ({**QUOTA, "quota:json": "{"}, "INVALID_REQUEST"),
    ],
)
def test_a_refused_form_says_why_and_writes_nothing(own_ledger, log_in: LogIn, form, said):
    before = state(own_ledger)
    answer = log_in("admin").post("/act/set_tenant", form)
    assert answer.status_code == 422
    assert said in answer.content.decode()
    assert state(own_ledger) == before


def test_an_unknown_operation_is_refused(own_ledger, log_in: LogIn):
    answer = log_in("admin").post("/act/no_such_thing", {"reason": "r"})
    assert (answer.status_code, "NO_SUCH_OPERATION" in answer.content.decode()) == (422, True)


def test_a_new_key_is_shown_once_and_can_be_revoked_from_its_row(own_ledger, log_in: LogIn):
    client = log_in("admin")
    made = client.post(
        "/act/create_key",
        {"tenant_id": "support-desk", "scopes[]": ["inference", "receipts"], "reason": "app"},
    )
    key = re.search(r"wb_[0-9A-Za-z]{30,}", made.content.decode())
    assert key is not None
    assert key.group() not in client.get("/tenants/support-desk").content.decode()
    connection = connect_read_only(own_ledger)
    newest = keys_of(connection, "support-desk")[0]
    assert newest.key.scopes == "inference receipts"
    revoked = client.post(
        "/act/revoke_key",
        {"key_id": newest.key.key_id, "reason": "lost", "next": "/tenants/support-desk"},
    )
    assert revoked.status_code == 302
    assert keys_of(connection, "support-desk")[0].revocation is not None
    connection.close()


@pytest.mark.parametrize("elsewhere", ["https://evil.example/", "//evil.example", "javascript:x"])
def test_an_action_goes_back_to_this_host_only(own_ledger, log_in: LogIn, elsewhere):
    answer = log_in("admin").post("/act/set_tenant", {**QUOTA, "next": elsewhere})
    assert answer["Location"] == "/"


def test_a_form_from_another_site_is_refused(own_ledger, log_in: LogIn):
    client = log_in("admin")
    strict = Client(enforce_csrf_checks=True)
    strict.cookies = client.cookies
    before = state(own_ledger)
    assert strict.post("/act/set_tenant", QUOTA).status_code == 403
    assert state(own_ledger) == before


def test_a_quota_is_changed_as_a_new_revision_and_both_stay(own_ledger, log_in: LogIn):
    client = log_in("admin")
    for limit in ("3", "4"):
        assert client.post("/act/set_tenant", {**QUOTA, "quota.in_flight_limit": limit})
    connection = connect_read_only(own_ledger)
    assert [one.revision for one in tenant_revisions(connection, "new-team")] == [2, 1]
    connection.close()


def test_a_forms_fields_become_those_of_its_operation():
    form = QueryDict("quota.in_flight_limit=3&quota.time_zone=&tenant_id=+a+&next=/x&reason=r")
    assert tree_of(form, "set_tenant")["tenant_id"] == "a"
    assert tree_of(form, "set_tenant")["quota"]["in_flight_limit"] == 3


@pytest.mark.parametrize("whole", ["quota", "quota.budget_pico"])
def test_a_field_that_came_with_and_without_fields_of_its_own_is_refused_by_name(whole: str):
    form = QueryDict(f"{whole}=1&{whole}.in_flight_limit=3")
    with pytest.raises(ValueError, match=whole.rpartition(".")[2]):
        tree_of(form, "set_tenant")


def test_what_a_viewer_sees_holds_no_form_that_would_be_refused(own_ledger, log_in: LogIn):
    client = log_in("viewer")
    for path in ("/tenants", "/tenants/support-desk", "/audit-log"):
        page = client.get(path).content.decode()
        assert not any(f"/act/{name}" in page for name in OPERATIONS)
