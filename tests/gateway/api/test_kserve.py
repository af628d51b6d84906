"""The Open Inference Protocol v2: metadata, ready, infer, generate, generate_stream."""

import json
import struct

import pytest

from gateway.submission import Delta
from tests.gateway.api.client import Client, Running, SmallGateway, ended

MODEL = "/v2/models/assistant-large"


@pytest.fixture
def client(ledger_path):
    return Client(SmallGateway(ledger_path))


def post(client, path, body, **headers):
    sent = body if isinstance(body, bytes) else json.dumps(body).encode()
    return client.call("POST", path, body=sent, headers=headers)


def tensor(**changed):
    fields = {"name": "text_input", "shape": [1], "datatype": "BYTES", "data": ["Hi"]}
    return {**fields, **changed}


def test_a_models_versions_are_the_identities_of_its_routes(client):
    shown = client.get(MODEL).json
    assert (shown["name"], shown["versions"]) == ("assistant-large", ["mid_a"])
    assert shown["inputs"] == [{"name": "text_input", "datatype": "BYTES", "shape": [1]}]
    assert client.get(f"{MODEL}/versions/mid_a").json["versions"] == ["mid_a"]
    assert client.get(f"{MODEL}/versions/mid_x").status == 404
    assert client.get("/v2/models/none").json["code"] == "MODEL_NOT_FOUND"


def test_readiness_is_the_servers_and_the_models(client):
    assert client.get("/v2/health/live").status == client.get("/v2/health/ready").status == 200
    assert client.get(f"{MODEL}/ready").json == {"name": "assistant-large", "ready": True}
    client.gateway.problems = ("starting",)
    assert client.get("/v2/health/live").status == 200
    assert client.get("/v2/health/ready").status == client.get(f"{MODEL}/ready").status == 503


def test_generate_answers_with_the_identity_that_made_it_and_the_receipt(client):
    body = {"text_input": "Hi", "id": "own", "parameters": {"max_tokens": 9, "seed": 3}}
    reply = post(client, f"{MODEL}/versions/mid_a/generate", body)
    assert reply.status == 200
    answer = reply.json
    assert (answer["text_output"], answer["model_version"], answer["id"]) == (
        "Hello", "mid_a", "own",
    )  # fmt: skip
    assert answer["receipt"]["status"] == "completed"
    (sent,) = client.gateway.journey.submissions
    assert (sent.max_output_tokens, sent.seed, sent.messages[0].content) == (9, 3, "Hi")


def test_generate_stream_sends_each_piece_and_ends_with_done(client):
    events = post(client, f"{MODEL}/generate_stream", {"text_input": "Hi"}).events
    assert [each["text_output"] for each in events] == ["Hel", "lo", ""]
    assert [each["done"] for each in events] == [False, False, True]
    assert events[-1]["finish_reason"] == "stop"


def test_infer_takes_a_text_as_json_and_as_binary_data(client):
    (output,) = post(client, f"{MODEL}/infer", {"inputs": [tensor()]}).json["outputs"]
    assert output == {"name": "text_output", "datatype": "BYTES", "shape": [1], "data": ["Hello"]}
    text = "Grüße".encode()
    data = struct.pack("<I", len(text)) + text
    given = tensor(parameters={"binary_data_size": len(data)})
    del given["data"]
    head = json.dumps({"inputs": [given]}).encode()
    reply = post(
        client, f"{MODEL}/infer", head + data,
        **{"inference-header-content-length": str(len(head))},
    )  # fmt: skip
    assert reply.status == 200
    assert [each.messages[0].content for each in client.gateway.journey.submissions] == [
        "Hi", "Grüße",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "asked",
    [
        {"outputs": [{"name": "text_output", "parameters": {"binary_data": True}}]},
        {"parameters": {"binary_data_output": True}},
        {
            "parameters": {"binary_data_output": False},
            "outputs": [{"name": "text_output", "parameters": {"binary_data": True}}],
        },
    ],
)
def test_infer_gives_its_text_as_binary_data_where_it_is_asked_to(client, asked):
    client.gateway.journey.pieces = [Delta(text="Grüße", tokens=2), ended()]
    reply = post(client, f"{MODEL}/infer", {"inputs": [tensor()], **asked})
    length = int(reply.headers["inference-header-content-length"])
    (output,) = json.loads(reply.body[:length])["outputs"]
    text = "Grüße".encode()
    assert output == {
        "name": "text_output", "datatype": "BYTES", "shape": [1],
        "parameters": {"binary_data_size": 4 + len(text)},
    }  # fmt: skip
    assert reply.body[length:] == struct.pack("<I", len(text)) + text
    assert reply.headers["content-type"] == "application/octet-stream"
    assert int(reply.headers["content-length"]) == len(reply.body)


def test_a_failure_is_json_also_where_binary_data_was_asked_for(client):
    client.gateway.journey.pieces = [ended(None, status="failed", terminal_error_code="X")]
    asked = {"inputs": [tensor()], "parameters": {"binary_data_output": True}}
    reply = post(client, f"{MODEL}/infer", asked)
    assert (reply.status, reply.json["code"]) == (502, "X")
    assert "inference-header-content-length" not in reply.headers


def test_a_version_is_refused_where_routing_would_choose_another(client):
    path = "/v2/models/assistant-small/versions/mid_a/generate"
    reply = post(client, path, {"text_input": "Hi"})
    assert (reply.status, reply.json["code"]) == (400, "INVALID_REQUEST")
    client.gateway.journey.run = Running(logical_model="assistant-small", identity_id="mid_b")
    answer = post(client, "/v2/models/assistant-small/generate", {"text_input": "Hi"})
    assert answer.json["model_version"] == "mid_b"


@pytest.mark.parametrize(
    ("call", "body", "header"),
    [
        ("generate", b"{", None),
        ("generate", {"text_input": 1}, None),
        ("generate", {"text_input": "\x00"}, None),
        ("generate", {"text_input": "x", "parameters": {"temperature": 9}}, None),
        ("generate", {"text_input": "x", "max_tokens": "4"}, None),
        ("generate", {"text_input": "x", "max_tokens": 4, "parameters": {"max_tokens": 5}}, None),
        ("infer", {"inputs": []}, None),
        ("infer", {"inputs": [tensor(), tensor()]}, None),
        ("infer", {"inputs": [tensor(), tensor(name="sampling_parameters")]}, None),
        ("infer", {"inputs": [tensor(datatype="FP32")]}, None),
        ("infer", {"inputs": [tensor(shape=[2])]}, None),
        ("infer", {"inputs": [tensor(data=["a", "b"])]}, None),
        ("infer", {"inputs": [tensor(parameters={"binary_data_size": 5})]}, None),
        ("infer", {"inputs": [tensor(parameters={"binary_data_size": -1})]}, None),
        ("infer", {"inputs": [tensor()]}, "100000"),
        ("infer", {"inputs": [tensor()]}, "-1"),
        ("infer", {"inputs": [tensor()], "outputs": [{"name": "logits"}]}, None),
        ("infer", {"inputs": [tensor()], "outputs": ["text_output"]}, None),
    ],
)
def test_what_cannot_be_used_is_the_protocols_error_and_nothing_runs(client, call, body, header):
    headers = {} if header is None else {"inference-header-content-length": header}
    reply = post(client, f"{MODEL}/{call}", body, **headers)
    assert (reply.status, reply.json["code"]) == (400, "INVALID_REQUEST")
    assert isinstance(reply.json["error"], str)
    assert client.gateway.journey.submissions == []


@pytest.mark.parametrize("length", range(8))
def test_binary_data_of_another_length_than_it_says_is_refused(client, length):
    data = (struct.pack("<I", 3) + b"abcd")[:length]
    given = tensor(parameters={"binary_data_size": len(data)})
    del given["data"]
    assert infer_binary(client, given, data).status == (200 if length == 7 else 400)


def infer_binary(client, given, data):
    head = json.dumps({"inputs": [given]}).encode()
    return post(
        client, f"{MODEL}/infer", head + data,
        **{"inference-header-content-length": str(len(head))},
    )  # fmt: skip


def test_binary_data_of_no_tensor_and_a_text_that_comes_twice_are_refused(client):
    data = struct.pack("<I", 2) + b"Hi"
    twice = tensor(parameters={"binary_data_size": len(data)})
    once = {name: value for name, value in twice.items() if name != "data"}
    assert infer_binary(client, once, data + b"\0").status == 400
    assert infer_binary(client, tensor(), data).status == 400
    assert infer_binary(client, twice, data).status == 400
    assert client.gateway.journey.submissions == []
    assert infer_binary(client, once, data).status == 200


@pytest.mark.parametrize(
    "asked",
    [
        {"max_tokens": 4, "stop": ["x"]},
        {"parameters": {"max_tokens": 4, "stop": ["x"]}},
        {"max_tokens": 4, "stop": ["x"], "parameters": {"max_tokens": 4, "stop": ["x"]}},
        {"max_tokens": 4, "parameters": {"stop": ["x"]}},
    ],
    ids=["beside the text", "as parameters", "in both", "some in each"],
)
def test_bud_2_a_cap_is_obeyed_wherever_it_stands(client, asked):
    assert post(client, f"{MODEL}/generate", {"text_input": "Hi", **asked}).status == 200
    (submission,) = client.gateway.journey.submissions
    assert (submission.max_output_tokens, submission.parameters.stop) == (4, ("x",))
