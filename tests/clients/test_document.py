"""schemathesis over the OpenAPI document: no server error, no undocumented status or content.

CLIENT_EXAMPLES says how many cases each endpoint gets; `make test-clients` asks for more.
"""

import os
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from gateway.api.openapi import document
from tests.clients.conftest import EVERYTHING
from tests.gateway.api.client import SmallGateway
from tests.server import Server

EXAMPLES = int(os.environ.get("CLIENT_EXAMPLES", "3"))
DOCUMENT = document(SmallGateway().application().table.endpoints)
METHODS = ("get", "put", "post", "delete", "options", "head", "patch", "trace")
LABELS = [
    f"{method.upper()} {path}"
    for path, item in DOCUMENT["paths"].items()
    for method in item
    if method in METHODS
]


@pytest.fixture(scope="module")
def schema():
    """The document as schemathesis reads it, which takes seconds to load: only where it is used."""
    schemathesis = pytest.importorskip("schemathesis", reason="schemathesis isn't installed")
    return schemathesis.openapi.from_dict(DOCUMENT)


@pytest.mark.parametrize("positive", [True, False], ids=["as documented", "otherwise"])
@pytest.mark.parametrize("label", LABELS)
def test_every_answer_is_as_the_document_says(
    open_server: Server, schema: Any, label: str, positive: bool
):
    from schemathesis import GenerationMode
    from schemathesis.checks import not_a_server_error
    from schemathesis.specs.openapi.checks import (
        content_type_conformance,
        ignored_auth,
        response_headers_conformance,
        response_schema_conformance,
        status_code_conformance,
        unsupported_method,
    )

    checks = [
        not_a_server_error, status_code_conformance, content_type_conformance,
        response_headers_conformance, response_schema_conformance, unsupported_method, ignored_auth,
    ]  # fmt: skip
    mode = GenerationMode.POSITIVE if positive else GenerationMode.NEGATIVE
    method, path = label.split(" ", 1)
    operation = schema[path][method]
    if not positive and label.startswith("GET") and "{id}" not in label:
        pytest.skip("nothing of this request can be wrong but its query, which is any text")
    headers = {"Authorization": f"Bearer {open_server.keys[EVERYTHING]}"}

    @given(case=operation.as_strategy(generation_mode=mode))
    @settings(
        max_examples=EXAMPLES, deadline=None, derandomize=True,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    def answered(case):
        if positive and isinstance(case.body, dict) and "model" in case.body:
            case.body["model"] = "assist"  # else each would end at a model that doesn't exist
        case.call_and_validate(
            base_url=open_server.base_url, headers=headers, checks=checks, timeout=60
        )

    answered()
