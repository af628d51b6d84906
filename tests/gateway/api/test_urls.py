"""The API's URLs: what each asks for, and what any other gets."""

import re

import pytest

from gateway.api.application import handles
from gateway.api.asked import MAY_BE_EMPTY, parameters
from gateway.reporting import TAG_FILTER
from tests.gateway.api.client import Client, SmallGateway

URLS = {
    ("POST", "/v1/chat/completions"): "inference",
    ("POST", "/v1/completions"): "inference",
    ("POST", "/v1/responses"): "inference",
    ("GET", "/v1/responses/{id}"): "inference",
    ("DELETE", "/v1/responses/{id}"): "inference",
    ("POST", "/v1/responses/{id}/cancel"): "inference",
    ("POST", "/v1/embeddings"): "inference",
    ("GET", "/v1/models"): "inference",
    ("GET", "/v1/models/{id}"): "inference",
    ("POST", "/api/v1/decide"): "inference",
    ("POST", "/api/v1/requests"): "inference",
    ("GET", "/api/v1/requests/{id}/output"): "inference",
    ("GET", "/api/v1/requests/{id}/trace"): "receipts",
    ("GET", "/api/v1/receipts"): "receipts",
    ("GET", "/api/v1/snapshots"): "receipts",
    ("GET", "/api/v1/requests/{id}"): "receipts",
    ("POST", "/api/v1/requests/{id}/cancel"): "inference",
    ("GET", "/api/v1/requests/{id}/receipt"): "receipts",
    ("GET", "/api/v1/requests/{id}/decision"): "receipts",
    ("GET", "/api/v1/requests/{id}/proof"): "receipts",
    ("GET", "/api/v1/costs"): "receipts reports",
    ("GET", "/api/v1/costs/bridge"): "receipts reports",
    ("GET", "/api/v1/slo"): "receipts reports",
    ("GET", "/api/v1/releases"): "receipts reports",
    ("POST", "/api/v1/requests/{id}/outcome"): "inference receipts",
    ("POST", "/api/v1/outcomes"): "inference receipts",
    ("GET", "/api/v1/capabilities"): "receipts",
    ("GET", "/api/v1/policies"): "operate administer",
    ("GET", "/api/v1/rate-tables"): "operate administer",
    ("GET", "/api/v1/fleet"): "operate administer",
    ("GET", "/api/v1/unknowns"): "receipts",
    ("GET", "/api/v1/slo/evaluations"): "reports operate administer",
    ("GET", "/api/v1/actions"): "reports operate administer",
    ("GET", "/api/v1/rollouts"): "reports operate administer",
    ("GET", "/api/v1/diagnosis"): "reports operate administer",
    ("GET", "/api/v1/reconciliations"): "reports operate administer",
    ("GET", "/api/v1/reconciliations/{id}"): "reports operate administer",
    ("GET", "/api/v1/operations"): "operate administer",
    ("POST", "/api/v1/operations/{id}"): "operate administer",
    ("GET", "/v2"): "inference",
    ("GET", "/v2/health/live"): "",
    ("GET", "/v2/health/ready"): "",
    **{
        (method, f"/v2/models/{{model}}{version}{rest}"): "inference"
        for version in ("", "/versions/{version}")
        for method, rest in (
            ("GET", ""),
            ("GET", "/ready"),
            ("POST", "/infer"),
            ("POST", "/generate"),
            ("POST", "/generate_stream"),
        )
    },
    ("GET", "/healthz"): "",
    ("GET", "/readyz"): "",
    ("GET", "/metrics"): "",
    ("GET", "/api/openapi.json"): "",
    ("GET", "/api/docs"): "",
}


@pytest.fixture
def client():
    return Client(SmallGateway())


def test_every_url_is_listed_here_with_the_scopes_that_it_asks_for(client):
    listed = {(e.method, e.path): " ".join(e.scopes) for e in client.application.table.endpoints}
    assert listed == URLS
    assert all((e.access == "key") == bool(e.scopes) for e in client.application.table.endpoints)


@pytest.mark.parametrize(("method", "path"), [url for url, scope in URLS.items() if scope])
def test_no_url_that_asks_for_a_key_answers_without_one(method, path):
    reply = Client(SmallGateway(), tenant=None).call(method, re.sub(r"{[a-z]+}", "x", path))
    assert reply.status == 401
    assert b"UNAUTHENTICATED" in reply.body
    assert reply.headers["x-request-id"].startswith("xch_")


NATIVE_GETS = [path for method, path in URLS if method == "GET" and path.startswith("/api/v1/")]
EVERY_SCOPE = tuple(sorted({scope for scopes in URLS.values() for scope in scopes.split()}))


def test_cst_9_an_unknown_parameter_of_any_native_get_is_a_400_that_names_it():
    client = Client(SmallGateway(scopes=EVERY_SCOPE))
    for path in NATIVE_GETS:
        reply = client.get(re.sub(r"{[a-z]+}", "x", path) + "?surplus=1")
        assert (reply.status, reply.json["code"]) == (400, "INVALID_REQUEST"), path
        assert reply.json["detail"].startswith("surplus: no such parameter"), path


def test_cst_9_an_empty_parameter_of_any_native_get_is_a_400_that_names_it():
    """`?tenant=` of a variable that isn't set would else be every tenant's costs."""
    client = Client(SmallGateway(scopes=EVERY_SCOPE))
    tried = [
        (path, "tag:team" if name == TAG_FILTER else name, value)
        for path in NATIVE_GETS
        for name in parameters(path)
        for value in ("", "%20", "x&{name}=")
        if name not in MAY_BE_EMPTY
    ]
    assert len(tried) > 200
    for path, name, value in tried:
        query = f"{name}={value.format(name=name)}"
        reply = client.get(f"{re.sub(r'{[a-z]+}', 'x', path)}?{query}")
        assert reply.status == 400, (path, query)
        assert reply.json["detail"].startswith(f"{name}: it is empty"), (path, query)


def test_openais_own_urls_take_what_clients_send_beside_what_is_known(client):
    assert client.get("/v1/models?api-version=2024-10-21&empty=").status == 200


@pytest.mark.parametrize("path", ["/v1/", "/v1", "/v1/nothing", "/v1/models/a/b", "/v1/models/"])
def test_an_unknown_url_of_openais_api_is_a_404_in_its_error_format(client, path):
    reply = client.get(path)
    assert (reply.status, reply.error["code"]) == (404, "NOT_FOUND")


@pytest.mark.parametrize(
    "path",
    [
        "/chat/completions",
        "//v1/chat/completions",
        "/v1/v1/chat/completions",
        "/openai/deployments/assist/chat/completions",
        "/completions",
        "/responses",
        "//v1/models",
    ],
)
def test_a_client_with_a_mistaken_base_url_is_told_so_in_its_own_format(client, path):
    assert handles(path)
    reply = client.get(path)
    assert (reply.status, reply.headers["content-type"]) == (404, "application/json")
    assert b"/v1 as base URL" in reply.body


def test_an_unknown_url_of_the_native_api_is_a_problem(client):
    reply = client.get("/api/v1/nothing")
    assert reply.headers["content-type"] == "application/problem+json"
    assert (reply.status, reply.json["code"]) == (404, "NOT_FOUND")


def test_a_method_that_a_url_has_not_is_a_405_that_lists_what_it_has(client):
    reply = client.get("/v1/chat/completions")
    assert (reply.status, reply.headers["allow"]) == (405, "POST")
    assert client.call("DELETE", "/v1/models").headers["allow"] == "GET, HEAD"


def test_head_is_get_without_the_body(client):
    got, head = client.get("/v1/models"), client.call("HEAD", "/v1/models")
    assert (head.status, head.body) == (200, b"")
    assert head.headers["content-length"] == str(len(got.body)) == got.headers["content-length"]


def test_the_api_takes_its_own_paths_and_leaves_the_rest_to_the_console():
    assert all(handles(re.sub(r"{[a-z]+}", "x", path)) for _, path in URLS)
    assert not any(map(handles, ("/", "/receipts", "/v10/models", "/apis", "/healthz/x")))


def test_models_are_those_of_the_policy(client):
    listed = client.get("/v1/models").json
    assert [model["id"] for model in listed["data"]] == ["assistant-large", "assistant-small"]
    assert client.get("/v1/models/assistant-small").json["id"] == "assistant-small"
    assert client.get("/v1/models/other").error["code"] == "MODEL_NOT_FOUND"


def test_health_is_alive_while_readiness_gives_its_reasons(client):
    assert client.get("/readyz").status == 200
    client.gateway.problems = ("the ledger can't be written",)
    reply = client.get("/readyz")
    assert reply.json == {"ready": False, "problems": ["the ledger can't be written"]}
    assert reply.status == 503
    assert client.get("/healthz").json == {"status": "ok"}


def test_metrics_count_by_endpoint_and_never_by_path(client):
    client.get("/v1/models/canary-1")
    exposition = client.get("/metrics").body.decode()
    assert 'weighbridge_http_responses_total{endpoint="model",status="404"}' in exposition
    assert "canary-1" not in exposition
