"""The fault server as a process of its own, as load and fault runs use it."""

import http.client
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.plan import Plan, body_of

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def upstream():
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.faults.server", "0"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process.stdout.readline().strip().removeprefix("http://").removesuffix("/v1")
    finally:
        process.kill()
        process.communicate()


def call(upstream, method, path, body=None):
    connection = http.client.HTTPConnection(upstream, timeout=30)
    try:
        connection.request(method, path, body=None if body is None else json.dumps(body))
        return connection.getresponse().read()
    finally:
        connection.close()


def test_it_streams_the_bytes_of_its_plan_and_tells_what_became_of_each_request(upstream):
    call(upstream, "PUT", "/plan", {"tokens": 3, "newline": "\r\n", "usage": "finish"})
    body = call(upstream, "POST", "/v1/chat/completions", {"model": "any"})
    assert body == body_of(Plan(tokens=3, newline="\r\n", usage="finish"))
    call(upstream, "PUT", "/plan", {"cut_at_byte": 100})
    with pytest.raises(http.client.IncompleteRead) as cut:
        call(upstream, "POST", "/v1/chat/completions", {"model": "any"})
    assert cut.value.partial == body_of(Plan())[:100]
    first, second = json.loads(call(upstream, "GET", "/exchanges"))
    assert (first["tokens_generated"], first["disconnected"]) == (3, False)
    assert second["ended"]


def test_it_tells_its_plan_and_has_metrics_as_vllm_has(upstream):
    call(upstream, "PUT", "/plan", {"status": 503})
    assert json.loads(call(upstream, "GET", "/plan"))["status"] == 503
    assert b"vllm:num_requests_waiting" in call(upstream, "GET", "/metrics")


def test_it_speaks_the_open_inference_protocol_too(upstream):
    call(upstream, "PUT", "/plan", {"protocol": "kserve", "tokens": 2, "ends": "details"})
    body = call(upstream, "POST", "/v2/models/any/generate_stream", {"text_input": "x"})
    assert body == body_of(Plan(protocol="kserve", tokens=2, ends="details"))
    call(upstream, "PUT", "/plan", {"protocol": "kserve", "whole": True, "tokens": 1})
    whole = json.loads(call(upstream, "POST", "/v2/models/any/generate", {"text_input": "x"}))
    assert (whole["text_output"], whole["model_version"]) == ("Weigh", "1")


def test_it_refuses_the_parameters_of_its_plan_and_nothing_else(upstream):
    call(upstream, "PUT", "/plan", {"refuses": ["seed"], "refuse_shape": "loc", "tokens": 1})
    refused = call(upstream, "POST", "/v1/chat/completions", {"model": "any", "seed": 1})
    assert json.loads(refused) == {"detail": [{"loc": ["body", "seed"], "type": "extra_forbidden"}]}
    assert call(upstream, "POST", "/v1/chat/completions", {"model": "any"}) == body_of(
        Plan(tokens=1)
    )
