"""What is published, over HTTP: policies and rate tables with what differs, the fleet as a file."""

import contextlib
import json

import pytest

from gateway.api.auth import SCOPE_ADMINISTER, SCOPE_OPERATE
from gateway.demo.fleet import policy
from gateway.fleet_file.document import read_fleet
from gateway.fleet_file.named import named
from gateway.operations.keys import CreateKey
from gateway.operations.policies import DraftPolicy, PublishPolicy
from gateway.operations.rates import DraftRates
from tests.gateway.operations.publishing import done
from tests.policy_factories import replaced

FIRST = "route-policy-v1"


@pytest.fixture
def served(fleet):
    """(the server, a key that may operate) over the demonstration's fleet with a second policy."""
    second = named(replaced(policy(), revision="v2", retry_after_ms=7))
    done(fleet, PublishPolicy(revision="v2", policy=second, based_on=FIRST, reason="calmer"))
    done(fleet, DraftPolicy(revision="v3", policy=second | {"revision": "v3"}, note="again"))
    made = CreateKey(tenant_id="support-desk", scopes=(SCOPE_OPERATE,), reason="a test")
    key = done(fleet, made).shown_once
    with fleet.serving() as server:
        yield server, key


def got(served, path: str) -> tuple[int, dict]:
    server, key = served
    status, _, body = server.call(path, key=key)
    return status, json.loads(body)


def test_policies_are_listed_shown_and_compared(served, fleet):
    status, listed = got(served, "/api/v1/policies")
    assert status == 200
    assert (listed["in_force"], listed["declared"]) == ("v2", "v2")
    assert [each["revision"] for each in listed["published"]] == [FIRST, "v2"]
    (draft,) = listed["drafts"]
    assert (draft["name"], draft["based_on"], draft["note"]) == ("v3", "v2", "again")

    status, one = got(served, "/api/v1/policies?revision=v2")
    assert (status, one["revision"], one["fields"]["retry_after_ms"]) == (200, "v2", 7)
    assert one["fields"]["routes"][0]["route_id"] == "fast-v2"

    status, compared = got(served, f"/api/v1/policies?revision=v2&compared_with={FIRST}")
    assert compared["differences"] == [
        {"path": "retry_after_ms", "kind": "changed", "before": 1000, "after": 7},
        {"path": "revision", "kind": "changed", "before": FIRST, "after": "v2"},
    ]
    for path, expected in (
        ("/api/v1/policies?revision=v9", 404),
        ("/api/v1/policies?revision=v2&compared_with=v9", 404),
        ("/api/v1/policies?compared_with=v2", 400),
        ("/api/v1/policies?revison=v2", 400),
    ):
        assert got(served, path)[0] == expected

    table = named_rates(served)
    done(fleet, DraftRates(version="rates-2", table=table))
    status, tables = got(served, "/api/v1/rate-tables")
    assert [each["version"] for each in tables["published"]] == ["rates-1"]
    assert [each["name"] for each in tables["drafts"]] == ["rates-2"]
    status, compared = got(served, "/api/v1/rate-tables?version=rates-2&compared_with=rates-1")
    assert {each["path"] for each in compared["differences"]} == {
        "currency",
        "effective_from_us",
        "version",
    }


def named_rates(served) -> dict:
    """The published rates in another currency."""
    fields = got(served, "/api/v1/rate-tables?version=rates-1")[1]["fields"]
    del fields["version"], fields["effective_from_us"]
    return fields | {"currency": "EUR"}


def test_the_fleet_is_a_file_that_changes_nothing_and_needs_a_key_that_operates(served, fleet):
    server, key = served
    status, headers, body = server.call("/api/v1/fleet", key=key)
    assert (status, headers["content-type"]) == (200, "application/toml")
    assert read_fleet(body.decode()).problems == ()
    for path in ("/api/v1/fleet", "/api/v1/policies", "/api/v1/rate-tables"):
        status, _, body = server.call(path, key=server.keys["support-desk"])
        assert (status, json.loads(body)["code"]) == (403, "SCOPE_MISSING")
    admin = CreateKey(tenant_id="support-desk", scopes=(SCOPE_ADMINISTER,), reason="a test")
    text = json.dumps({"text": server.call("/api/v1/fleet", key=key)[2].decode(), "reason": "r"})
    asked = {"key": done(fleet, admin).shown_once, "body": text.encode()}
    status, _, body = server.call("/api/v1/operations/apply_fleet", **asked)
    assert (status, json.loads(body)["code"]) == (422, "NO_CHANGE")
    with contextlib.closing(fleet.reader()) as connection:
        assert connection.execute("SELECT count(*) FROM route_policy").fetchone()[0] == 2
