"""A tenant's key reads that tenant's alone, at every URL that there is (SEC-2)."""

import contextlib
import http.client
import json
import re

import pytest

from tests.gateway.api.client import SmallGateway
from tests.server import Server

OWNER, OTHER = "support-desk", "research-lab"
NEVER = "req_" + "0" * 27

# What a URL tells to a key: of one request, lists of its own tenant's, the fleet's state without
# any tenant, nothing to a tenant's key; or it runs something for whoever asks.
OF_ONE = {
    ("GET", "/api/v1/requests/{id}"), ("GET", "/api/v1/requests/{id}/receipt"),
    ("GET", "/api/v1/requests/{id}/decision"), ("GET", "/api/v1/requests/{id}/proof"),
    ("GET", "/api/v1/requests/{id}/trace"), ("GET", "/api/v1/requests/{id}/output"),
    ("POST", "/api/v1/requests/{id}/cancel"), ("POST", "/api/v1/requests/{id}/outcome"),
    ("POST", "/api/v1/outcomes"),
    ("GET", "/v1/responses/{id}"), ("POST", "/v1/responses/{id}/cancel"),
    ("DELETE", "/v1/responses/{id}"),
}  # fmt: skip
OWN = {
    "/api/v1/receipts": "tenant", "/api/v1/costs": "tenant", "/api/v1/costs/bridge": "tenant",
    "/api/v1/unknowns": None,
}  # fmt: skip
OF_THE_FLEET = {
    "/api/v1/snapshots", "/api/v1/slo", "/api/v1/releases", "/api/v1/capabilities",
    "/v1/models", "/v1/models/{id}", "/v2",
    *(f"/v2/models/{{model}}{version}{ready}" for version in ("", "/versions/{version}")
      for ready in ("", "/ready")),
}  # fmt: skip
OF_OPERATORS = {
    "/api/v1/policies", "/api/v1/rate-tables", "/api/v1/fleet", "/api/v1/slo/evaluations",
    "/api/v1/actions", "/api/v1/rollouts", "/api/v1/diagnosis", "/api/v1/operations",
    "/api/v1/operations/{id}", "/api/v1/reconciliations", "/api/v1/reconciliations/{id}",
}  # fmt: skip
RUNS = {
    "/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/embeddings",
    "/api/v1/decide", "/api/v1/requests",
    *(f"/v2/models/{{model}}{version}/{kind}" for version in ("", "/versions/{version}")
      for kind in ("infer", "generate", "generate_stream")),
}  # fmt: skip

KEYED = {
    (endpoint.method, endpoint.path)
    for endpoint in SmallGateway().application().table.endpoints
    if endpoint.access == "key"
}


@pytest.fixture(scope="module")
def asked(server: Server) -> list[str]:
    """Ids of the owner's requests: whole, streamed, of the Responses API, refused."""
    key = server.keys[OWNER]
    _, whole, _ = server.chat("Hello", key=key, max_tokens=2)
    _, streamed, _ = server.chat("Hello", key=key, max_tokens=2, stream=True)
    _, refused, _ = server.chat("Hello", key=key, max_tokens=0)
    body = json.dumps({"model": "assist", "input": "Hello", "max_output_tokens": 2}).encode()
    _, _, answered = server.call("/v1/responses", key=key, body=body)
    ids = [headers["x-request-id"] for headers in (whole, streamed, refused)]
    return [*ids, json.loads(answered)["id"]]


def test_every_url_is_listed_by_what_it_tells():
    listed = OF_ONE | {
        (method, path)
        for method, path in KEYED
        if path in {*OWN, *OF_THE_FLEET, *OF_OPERATORS, *RUNS}
    }
    assert listed == KEYED
    rooms = [{path for _, path in OF_ONE}, set(OWN), OF_THE_FLEET, OF_OPERATORS, RUNS]
    assert sum(len(room) for room in rooms) == len(set().union(*rooms)), "one is in two rooms"


def asking(server: Server, method: str, url: str, body: bytes) -> tuple[int, bytes]:
    """(status, body) of an exchange with the other tenant's key, by any method."""
    connection = http.client.HTTPConnection(server.base_url.removeprefix("http://"), timeout=60)
    with contextlib.closing(connection):
        headers = {"authorization": f"Bearer {server.keys[OTHER]}"}
        connection.request(method, url, body=body if method == "POST" else None, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read()


@pytest.mark.parametrize(("method", "path"), sorted(OF_ONE))
def test_anothers_request_is_told_like_one_that_never_was(server: Server, asked, method, path):
    def told(request_id: str) -> tuple[int, bytes]:
        said: dict[str, object] = {"quality_passed": True}
        if "{id}" not in path:
            said = {"outcomes": [{**said, "request_id": request_id}]}
        url = path.replace("{id}", request_id)
        status, answer = asking(server, method, url, json.dumps(said).encode())
        return status, answer.replace(request_id.encode(), b"ID")

    for request_id in asked:
        never = NEVER if request_id.startswith("req_") else "resp_" + NEVER[4:]
        assert told(request_id)[0] in (404, 422)
        assert told(request_id) == told(never)


@pytest.mark.parametrize("path", sorted(OWN))
def test_a_list_has_the_keys_own_tenant_alone(server: Server, asked, path):
    server.chat("Hello", key=server.keys[OTHER], max_tokens=2)
    status, _, body = server.call(path, key=server.keys[OTHER])
    assert status == 200
    assert [one for one in (*asked, OWNER) if one.encode() in body] == []
    if OWN[path] is not None:
        asking = f"{path}?{OWN[path]}={OWNER}"
        status, _, body = server.call(asking, key=server.keys[OTHER])
        assert (status, json.loads(body)["code"]) == (403, "SCOPE_MISSING")


@pytest.mark.parametrize("path", sorted(OF_THE_FLEET))
def test_what_all_may_read_names_no_tenant_and_no_request(server: Server, asked, path):
    url = re.sub(r"{(id|model)}", "assist", path).replace("{version}", "x")
    status, _, body = server.call(url, key=server.keys[OTHER])
    assert status == (404 if "{version}" in path else 200)
    assert [one for one in (*asked, *server.keys) if one.encode() in body] == []


@pytest.mark.parametrize("path", sorted(OF_OPERATORS))
def test_a_tenants_key_reads_nothing_of_the_operators(server: Server, path):
    for method, listed in KEYED:
        if listed == path:
            body = b"{}" if method == "POST" else None
            url = path.replace("{id}", "set_tenant")
            status, _, answer = server.call(url, key=server.keys[OWNER], body=body)
            assert (status, json.loads(answer)["code"]) == (403, "SCOPE_MISSING")
