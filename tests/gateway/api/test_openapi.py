"""The OpenAPI document: every URL, every code, and real answers held against its types."""

import json

import msgspec
import pytest

from gateway.api import shapes
from gateway.api.described import DESCRIBED
from gateway.api.errors import http_codes
from gateway.api.openapi import document
from gateway.policy.reasons import REASONS
from tests.gateway.api.client import Client, SmallGateway


@pytest.fixture(scope="module")
def endpoints():
    return SmallGateway().application().table.endpoints


@pytest.fixture(scope="module")
def made(endpoints):
    return document(endpoints)


def test_every_url_of_the_table_is_in_the_document_and_no_other(endpoints, made):
    listed = {
        (method.upper(), path) for path, methods in made["paths"].items() for method in methods
    }
    assert listed == {(each.method, each.path) for each in endpoints} == set(DESCRIBED)
    names = [op["operationId"] for methods in made["paths"].values() for op in methods.values()]
    assert len(set(names)) == len(names)


def test_every_reason_code_is_listed_with_its_status(made):
    listed = {row["code"]: row["status"] for row in made["x-reason-codes"]}
    assert listed == {
        **{reason.code: reason.http_status for reason in REASONS.values()},
        **{code: status for code, status, _ in http_codes()},
    }


def test_an_endpoint_with_a_key_names_its_scope_and_what_it_may_be_refused_with(endpoints, made):
    for each in endpoints:
        operation = made["paths"][each.path][each.method.lower()]
        assert (operation["security"] == [{"key": []}]) == (each.access == "key")
        assert all(scope in operation.get("description", "") for scope in each.scopes)
        if each.access == "key":
            assert {"400", "401", "403", "500"} <= set(operation["responses"])


def test_each_reference_leads_to_a_schema_of_the_document(made):
    text = json.dumps(made)
    schemas = made["components"]["schemas"]
    for part in text.split('"$ref": "#/components/schemas/')[1:]:
        assert part.split('"')[0] in schemas


def test_the_document_is_served_to_whoever_asks(ledger_path):
    reply = Client(SmallGateway(ledger_path), tenant=None).get("/api/openapi.json")
    assert (reply.status, reply.json["openapi"]) == (200, "3.1.0")


def test_a_chat_answer_is_of_the_documents_type(ledger_path):
    reply = Client(SmallGateway(ledger_path)).chat()
    answer = msgspec.json.decode(reply.body, type=shapes.ChatCompletionShape)
    assert answer.receipt is not None
    assert set(reply.json["receipt"]) == set(shapes.ReceiptShape.__struct_fields__)


def test_failures_are_of_the_documents_types(ledger_path):
    client = Client(SmallGateway(ledger_path))
    error = msgspec.json.decode(client.chat(b"{").body, type=shapes.OpenAIError)
    problem = msgspec.json.decode(
        client.get("/api/v1/requests/none").body, type=shapes.ProblemShape
    )
    assert (error.error.code, problem.code) == ("INVALID_REQUEST", "NOT_FOUND")


def test_a_body_that_is_too_large_is_a_problem_on_the_native_api(ledger_path):
    client = Client(SmallGateway(ledger_path))
    reply = client.call("POST", "/api/v1/outcomes", body=b" " * 20_000)
    assert reply.headers["content-type"] == "application/problem+json"
    assert (reply.status, reply.json["code"]) == (413, "BODY_TOO_LARGE")


def test_the_page_names_every_url_and_code_and_loads_nothing_from_elsewhere(made, ledger_path):
    reply = Client(SmallGateway(ledger_path), tenant=None).get("/api/docs")
    page = reply.body.decode()
    assert all(path in page for path in made["paths"])
    assert all(row["code"] in page for row in made["x-reason-codes"])
    assert "<script" not in page and "http://" not in page and "https://" not in page
    assert reply.headers["content-security-policy"].startswith("default-src 'none'")
