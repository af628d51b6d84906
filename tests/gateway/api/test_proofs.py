"""GET /api/v1/requests/{id}/proof: a tenant proves its receipt without the ledger (LED-7)."""

import json

from ledger import offline_proof
from ledger.chain import checkpoint_of
from ledger.reading import read_head
from tests.server import Server
from tests.server_fixtures import Fleet

TENANT, OTHER = "support-desk", "small-team"


def receipt_of(server: Server):
    return json.loads(server.chat("Hello", key=server.keys[TENANT], max_tokens=2)[2])["receipt"]


def proof(server: Server, request_id: str, query: str = "", tenant: str = TENANT):
    path = f"/api/v1/requests/{request_id}/proof{query}"
    status, _, body = server.call(path, key=server.keys[tenant])
    return status, json.loads(body)


def test_a_proof_of_a_receipt_holds_offline_and_continues_a_checkpoint(
    server: Server, shared_fleet: Fleet
):
    reader = shared_fleet.reader()
    head = read_head(reader)
    assert head is not None
    kept = checkpoint_of(head)
    reader.close()
    receipt = receipt_of(server)
    status, made = proof(server, receipt["request_id"], f"?size={kept.size}&root={kept.root}")
    assert (status, made["seq"]) == (200, receipt["seq"])
    assert offline_proof.problems(made, {"size": kept.size, "root": kept.root}) == []
    assert json.loads(made["row"])[3] == receipt["request_id"]


def test_another_tenants_proof_and_one_of_nothing_are_told_apart_by_nothing(server: Server):
    request_id = receipt_of(server)["request_id"]
    theirs = proof(server, request_id, tenant=OTHER)
    nothing = proof(server, "req_none", tenant=OTHER)
    assert theirs[0] == nothing[0] == 404
    assert theirs[1]["detail"] == nothing[1]["detail"]


def test_a_checkpoint_that_can_not_be_or_is_another_is_refused(server: Server):
    request_id = receipt_of(server)["request_id"]
    for query in ("?size=1", "?size=x&root=" + "0" * 64, "?size=1&root=0", "?size=1&other=2"):
        assert proof(server, request_id, query)[0] == 400
    status, body = proof(server, request_id, f"?size=1&root={'0' * 64}")
    assert (status, "CHECKPOINT_DIFFERS" in body["detail"]) == (400, True)
