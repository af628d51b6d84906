"""Outcomes by API: a tenant's own requests, all or nothing, and the same again is the same."""

import json

import pytest

from ledger.queries.outcomes import reports_of
from ledger.rollups.outcomes import folded

TENANT, OTHER = "support-desk", "research-lab"


def asked(server, text="hello", tenant=TENANT):
    status, headers, _ = server.chat(text, key=server.keys[tenant], max_tokens=4)
    assert status == 200
    return headers["x-request-id"]


def said(server, path, body, tenant=TENANT):
    status, _, answer = server.call(path, key=server.keys[tenant], body=json.dumps(body).encode())
    return status, json.loads(answer)


def reports(shared_fleet, request_id):
    connection = shared_fleet.reader()
    found = reports_of(connection, request_id)
    connection.close()
    return found, folded(found)


def test_an_outcome_is_taken_and_the_same_again_is_known(server, shared_fleet):
    request_id = asked(server)
    path = f"/api/v1/requests/{request_id}/outcome"
    status, first = said(server, path, {"quality_passed": True, "task_id": "t-1"})
    assert (status, first["taken"], first["known"]) == (200, 1, 0)
    status, again = said(server, path, {"quality_passed": True, "task_id": "t-1"})
    assert (status, again["taken"], again["known"]) == (200, 0, 1)
    assert again["outcome_ids"] == first["outcome_ids"]
    status, _ = said(server, path, {"quality_passed": False})
    assert status == 200
    found, outcome = reports(shared_fleet, request_id)
    assert len(found) == 2
    assert (outcome.quality_passed, outcome.task_id) == (0, "t-1")


def test_a_report_that_goes_back_to_an_earlier_value_is_taken(server, shared_fleet):
    """A later report replaces what an earlier one said, also where it was said before."""
    request_id = asked(server)
    path = f"/api/v1/requests/{request_id}/outcome"
    for passed in (True, False, True):
        assert said(server, path, {"quality_passed": passed})[1]["taken"] == 1
    assert said(server, path, {"quality_passed": True})[1]["known"] == 1
    found, outcome = reports(shared_fleet, request_id)
    assert (len(found), outcome.quality_passed) == (3, 1)


def test_a_bulk_is_taken_whole_or_not_at_all(server, shared_fleet):
    mine, theirs = asked(server), asked(server, tenant=OTHER)
    items = [{"request_id": mine, "taken_over": True}, {"request_id": theirs, "taken_over": True}]
    status, problem = said(server, "/api/v1/outcomes", {"outcomes": items})
    assert (status, problem["code"]) == (404, "NOT_FOUND")
    assert reports(shared_fleet, mine) == ([], None)
    status, answer = said(server, "/api/v1/outcomes", {"outcomes": items[:1] * 2})
    assert (status, answer["taken"], answer["known"]) == (200, 1, 1)


def test_an_id_of_one_s_own_can_t_say_two_things(server, shared_fleet):
    request_id = asked(server)
    path = f"/api/v1/requests/{request_id}/outcome"
    assert said(server, path, {"task_completed": True, "outcome_id": "mine-1"})[0] == 200
    status, problem = said(server, path, {"task_completed": False, "outcome_id": "mine-1"})
    assert (status, problem["code"]) == (409, "OUTCOME_CONFLICT")
    assert len(reports(shared_fleet, request_id)[0]) == 1


@pytest.mark.parametrize(
    "body",
    [
        {}, [], {"task_type": "chat"}, {"quality_passed": "yes"}, {"quality_passed": 1},
        {"no_such_field": True}, {"task_completed": True, "task_id": "two words"},
        {"task_completed": True, "task_id": "x" * 129}, {"quality_passed": True, "evidence": ""},
    ],
)  # fmt: skip
def test_what_can_t_be_read_is_refused_and_leaves_nothing(server, shared_fleet, body):
    request_id = asked(server)
    status, problem = said(server, f"/api/v1/requests/{request_id}/outcome", body)
    assert (status, problem["code"]) == (400, "INVALID_REQUEST")
    assert reports(shared_fleet, request_id) == ([], None)


def test_bulks_have_a_limit(server):
    items = [{"request_id": "req_x", "taken_over": True}] * 1_001
    assert said(server, "/api/v1/outcomes", {"outcomes": items})[0] == 400
    assert said(server, "/api/v1/outcomes", {"outcomes": []})[0] == 400


def test_a_request_that_does_not_exist_and_another_tenant_s_are_the_same(server):
    body = {"quality_passed": True}
    theirs = asked(server, tenant=OTHER)
    none = said(server, "/api/v1/requests/req_none/outcome", body)
    assert said(server, f"/api/v1/requests/{theirs}/outcome", body) == none
    assert none[0] == 404
