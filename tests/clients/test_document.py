"""schemathesis over the OpenAPI document: no server error, no undocumented status or content.

CLIENT_EXAMPLES says how many cases each endpoint gets; `make test-clients` asks for more.
"""

import os

import pytest
from hypothesis import HealthCheck, given, settings

from gateway.api.openapi import document
from tests.clients.conftest import EVERYTHING
from tests.gateway.api.client import SmallGateway
from tests.server import Server

schemathesis = pytest.importorskip("schemathesis", reason="schemathesis isn't installed")
from schemathesis import GenerationMode  # noqa: E402  (skipped where it is absent)
from schemathesis.checks import not_a_server_error  # noqa: E402
from schemathesis.specs.openapi.checks import (  # noqa: E402
    content_type_conformance,
    ignored_auth,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
)

EXAMPLES = int(os.environ.get("CLIENT_EXAMPLES", "3"))
CHECKS = [
    not_a_server_error, status_code_conformance, content_type_conformance,
    response_headers_conformance, response_schema_conformance, unsupported_method, ignored_auth,
]  # fmt: skip
SCHEMA = schemathesis.openapi.from_dict(document(SmallGateway().application().table.endpoints))
OPERATIONS = {
    operation.label: operation
    for operation in (result.ok() for result in SCHEMA.get_all_operations())
}


@pytest.mark.parametrize("mode", list(GenerationMode), ids=lambda mode: mode.value)
@pytest.mark.parametrize("label", OPERATIONS)
def test_every_answer_is_as_the_document_says(open_server: Server, label: str, mode):
    if mode is GenerationMode.NEGATIVE and label.startswith("GET") and "{id}" not in label:
        pytest.skip("nothing of this request can be wrong but its query, which is any text")
    headers = {"Authorization": f"Bearer {open_server.keys[EVERYTHING]}"}

    @given(case=OPERATIONS[label].as_strategy(generation_mode=mode))
    @settings(
        max_examples=EXAMPLES, deadline=None, derandomize=True,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    def answered(case):
        if mode is GenerationMode.POSITIVE and isinstance(case.body, dict) and "model" in case.body:
            case.body["model"] = "assist"  # else each would end at a model that doesn't exist
        case.call_and_validate(
            base_url=open_server.base_url, headers=headers, checks=CHECKS, timeout=60
        )

    answered()
