"""Operations: refused without a trace, done with an audit row, the same wherever they run."""

import json
import os
import pwd
import stat

import msgspec
import pytest

from gateway.api.auth import ALL_SCOPES, KEY_RANDOM_BYTES, SCOPE_ADMINISTER, SCOPE_OPERATE, mint_key
from gateway.operations import anywhere
from gateway.operations.base import Actor, Done, Refused
from gateway.operations.keys import CreateKey, RevokeKey
from gateway.operations.local_socket import socket_path
from gateway.operations.registry import OPERATIONS, described, read
from gateway.operations.tenants import SetTenant
from gateway.quota import Quota
from ledger.errors import LedgerNotReady
from ledger.queries import configuration as stored
from ledger.reading import read_head
from ledger.records import ControlAction
from ledger.rows import record_of, select
from ledger.store import Store
from tests.server_fixtures import Fleet
from tests.system.watching import until

ADMIN = Actor(name="ada", role="admin", via="console")
COMMAND = anywhere.command_actor().label  # the kernel names who asks over the socket
VIEWER = Actor(name="vera", role="viewer", via="console")
TENANT = "support-desk"


def actions(fleet: Fleet) -> list[ControlAction]:
    connection = fleet.reader()
    rows = connection.execute(f"{select(ControlAction)} ORDER BY seq").fetchall()
    connection.close()
    return [record_of(ControlAction, row) for row in rows]


def size(fleet: Fleet) -> int:
    connection = fleet.reader()
    head = read_head(connection)
    connection.close()
    assert head is not None
    return head.size


def quota(in_flight: int) -> Quota:
    return Quota(in_flight_limit=in_flight)


def test_without_a_server_an_operation_takes_the_ledger_and_leaves_an_audit_row(fleet):
    asked = SetTenant(tenant_id="new-team", quota=quota(7), reason="they start on Monday")
    done = anywhere.perform(fleet.ledger, asked, ADMIN)
    assert isinstance(done, Done)
    assert done.summary == "Set the quota of new-team, revision 1."
    (action,) = actions(fleet)
    assert (action.action, action.subject, action.actor) == (
        "set_tenant",
        "new-team",
        "console:ada",
    )
    assert action.reason == "they start on Monday"
    assert action.before_json == "{}"
    assert json.loads(action.after_json)["in_flight_limit"] == 7
    assert not socket_path(fleet.ledger).exists()


@pytest.mark.parametrize(
    ("asked", "actor", "code"),
    [
        (SetTenant(tenant_id="t", quota=quota(1), reason="r"), VIEWER, "ROLE_MISSING"),
        (SetTenant(tenant_id="t", quota=quota(1)), ADMIN, "REASON_MISSING"),
        (SetTenant(tenant_id="t", quota=quota(1), reason="  "), ADMIN, "REASON_MISSING"),
        (SetTenant(tenant_id="t", quota=quota(1), reason="r" * 501), ADMIN, "REASON_TOO_LONG"),
        (SetTenant(tenant_id="t", quota=quota(0), reason="r"), ADMIN, "INVALID_QUOTA"),
        (SetTenant(tenant_id="a b", quota=quota(1), reason="r"), ADMIN, "INVALID_QUOTA"),
        (CreateKey(tenant_id="nobody", reason="r"), ADMIN, "NO_SUCH_TENANT"),
        (CreateKey(tenant_id=TENANT, scopes=("all",), reason="r"), ADMIN, "UNKNOWN_SCOPE"),
        (CreateKey(tenant_id=TENANT, scopes=(), reason="r"), ADMIN, "UNKNOWN_SCOPE"),
        (CreateKey(tenant_id=TENANT, expires_at_us=1, reason="r"), ADMIN, "EXPIRY_PAST"),
        (RevokeKey(key_id="key_none", reason="r"), ADMIN, "NO_SUCH_KEY"),
    ],
)  # fmt: skip
def test_a_refused_operation_says_why_and_writes_nothing(fleet, asked, actor, code):
    before = size(fleet)
    refused = anywhere.perform(fleet.ledger, asked, actor)
    assert isinstance(refused, Refused)
    assert refused.code == code
    assert size(fleet) == before


def test_a_time_zone_that_does_not_exist_is_named(fleet):
    asked = SetTenant(
        tenant_id="t", quota=Quota(in_flight_limit=1, time_zone="Mars/Base"), reason="r"
    )
    refused = anywhere.perform(fleet.ledger, asked, ADMIN)
    assert isinstance(refused, Refused)
    assert refused.problems == ("time_zone 'Mars/Base' is no IANA time zone",)


def test_the_same_quota_again_changes_nothing(fleet):
    first = SetTenant(tenant_id="t", quota=quota(3), reason="r")
    assert isinstance(anywhere.perform(fleet.ledger, first, ADMIN), Done)
    before = size(fleet)
    again = anywhere.perform(fleet.ledger, first, ADMIN)
    assert isinstance(again, Refused)
    assert again.code == "NO_CHANGE"
    assert size(fleet) == before


def test_a_key_is_shown_once_and_is_nowhere_in_the_ledger(fleet):
    done = anywhere.perform(fleet.ledger, CreateKey(tenant_id=TENANT, reason="a test"), ADMIN)
    assert isinstance(done, Done)
    assert done.shown_once is not None
    assert done.shown_once.startswith("wb_")
    for path in fleet.ledger.parent.iterdir():
        if path.is_file():
            assert done.shown_once.encode() not in path.read_bytes()


def test_over_the_socket_the_running_server_does_it_and_follows_at_once(fleet):
    with fleet.serving() as server:
        assert server.chat("hello", key=server.keys[TENANT], max_tokens=4)[0] == 200
        made = anywhere.perform(
            fleet.ledger, CreateKey(tenant_id=TENANT, reason="a second one"), ADMIN
        )
        assert isinstance(made, Done)
        assert server.chat("hello", key=made.shown_once, max_tokens=4)[0] == 200
        revoked = anywhere.perform(
            fleet.ledger, RevokeKey(key_id=made.subject, reason="lost"), ADMIN
        )
        assert isinstance(revoked, Done)
        assert server.chat("hello", key=made.shown_once, max_tokens=4)[0] == 401
        limited = Quota(in_flight_limit=4, max_output_tokens=2)
        asked = SetTenant(tenant_id=TENANT, quota=limited, reason="tighter")
        assert isinstance(anywhere.perform(fleet.ledger, asked, ADMIN), Done)
        status, _, body = server.chat("hello", key=server.keys[TENANT], max_tokens=4)
        assert status == 400
        assert json.loads(body)["error"]["code"] == "TOKEN_BUDGET_EXCEEDED"
        mode = socket_path(fleet.ledger).stat().st_mode
        assert stat.S_ISSOCK(mode)
        assert stat.S_IMODE(mode) == 0o600
    assert not socket_path(fleet.ledger).exists()
    assert [action.action for action in actions(fleet)] == [
        "create_key",
        "revoke_key",
        "set_tenant",
    ]
    assert all(action.actor == COMMAND for action in actions(fleet))


def test_the_socket_is_reached_however_long_the_ledger_s_path_is(fleet, tmp_path):
    deep = tmp_path.joinpath(*["a-folder-with-a-long-name"] * 6)
    deep.mkdir(parents=True)
    moved = fleet.copy_to(deep)
    assert len(str(socket_path(moved.ledger))) > 107
    with moved.serving():
        asked = SetTenant(tenant_id="deep", quota=quota(1), reason="r")
        # The server needs no more than this to be up: it answers once it has started.
        status = _until_served(moved, asked)
    assert isinstance(status, Done)


def _until_served(fleet: Fleet, asked: SetTenant) -> Done | Refused:
    until(lambda: socket_path(fleet.ledger).exists(), "the server listens beside its ledger")
    return anywhere.perform(fleet.ledger, asked, ADMIN)


def test_a_socket_left_behind_by_a_killed_server_is_no_obstacle(fleet):
    with fleet.serving() as server:
        assert server.chat("hello", key=server.keys[TENANT], max_tokens=4)[0] == 200
        server.process.kill()
        server.process.wait()
    assert socket_path(fleet.ledger).exists()
    asked = SetTenant(tenant_id="t", quota=quota(3), reason="r")
    assert isinstance(anywhere.perform(fleet.ledger, asked, ADMIN), Done)
    with fleet.serving() as server:
        assert server.chat("hello", key=server.keys[TENANT], max_tokens=4)[0] == 200


def test_without_a_ledger_the_caller_is_told_what_to_run(tmp_path):
    asked = SetTenant(tenant_id="t", quota=quota(3), reason="r")
    with pytest.raises(LedgerNotReady, match="migrate"):
        anywhere.perform(tmp_path / "none.sqlite3", asked, ADMIN)


def test_by_api_a_scope_is_a_role(fleet):
    texts = {}
    with Store.open(fleet.ledger) as store:
        for scope in (*ALL_SCOPES, SCOPE_OPERATE, SCOPE_ADMINISTER):
            texts[scope], record = mint_key(
                os.urandom(KEY_RANDOM_BYTES), tenant_id="controller", created_at_us=0,
                created_by="tests", scopes=(scope,),
            )  # fmt: skip
            store.append((record,)).result()
    body = msgspec.json.encode({"tenant_id": "api-team", "quota": {"in_flight_limit": 2},
                                "reason": "by API"})  # fmt: skip
    path = "/api/v1/operations/set_tenant"
    with fleet.serving() as server:
        for scope in ALL_SCOPES:
            assert server.call(path, key=texts[scope], body=body)[0] == 403
        status, _, problem = server.call(path, key=texts[SCOPE_OPERATE], body=body)
        assert (status, json.loads(problem)["code"]) == (403, "ROLE_MISSING")
        status, _, done = server.call(path, key=texts[SCOPE_ADMINISTER], body=body)
        assert (status, json.loads(done)["subject"]) == (200, "api-team")
        status, _, problem = server.call(path, key=texts[SCOPE_ADMINISTER], body=b"[]")
        assert (status, json.loads(problem)["code"]) == (400, "INVALID_REQUEST")
        status, _, problem = server.call(
            "/api/v1/operations/none", key=texts[SCOPE_ADMINISTER], body=b"{}"
        )
        assert status == 404
        status, _, listed = server.call("/api/v1/operations", key=texts[SCOPE_OPERATE])
        assert set(json.loads(listed)["operations"]) == set(OPERATIONS)
    connection = fleet.reader()
    assert stored.tenant(connection, "api-team") is not None
    connection.close()


def test_every_operation_says_what_it_does_and_travels_as_json():
    for name, facts in described().items():
        assert facts["summary"].endswith((".", ","))
        assert facts["role"] in {"viewer", "operator", "admin"}
        assert isinstance(read(name, b'{"no_such_field": 1}'), Refused)


def test_who_runs_a_command_is_named_by_the_system_and_not_by_the_environment(monkeypatch):
    """A second person's signature is worth something only if a name can't be chosen (REC-3)."""
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.setenv(name, "somebody-else")
    assert anywhere.command_actor().name == pwd.getpwuid(os.geteuid()).pw_name
