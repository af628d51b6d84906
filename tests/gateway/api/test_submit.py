"""POST /api/v1/requests: a whole budget; now, streamed, or later; problems of RFC 9457."""

import json

import pytest

from tests.gateway.api.client import REQUEST_ID, Client, SmallGateway, ended
from tests.gateway.api.test_choices import CALLING, TOOL

OUTPUT = f"/api/v1/requests/{REQUEST_ID}/output"


@pytest.fixture
def client(ledger_path):
    return Client(SmallGateway(ledger_path))


def submit(client, **fields):
    messages = [{"role": "user", "content": "Hi"}]
    body = {"model": "assistant-large", "messages": messages, **fields}
    return client.call("POST", "/api/v1/requests", body=json.dumps(body).encode())


def test_a_whole_answer_has_output_usage_and_receipt(client):
    reply = submit(client)
    assert (reply.status, reply.json["status"]) == (200, "completed")
    assert reply.json["output"] == {"content": "Hello", "tool_calls": [], "finish_reason": "stop"}
    assert reply.json["receipt"]["request_id"] == reply.json["request_id"] == REQUEST_ID


def test_every_part_of_the_budget_is_taken(client):
    """BUD-1: what the body asks for is what is weighed."""
    submit(
        client,
        budget={
            "max_input_tokens": 10, "max_output_tokens": 20, "max_total_tokens": 30,
            "deadline_ms": 4_000, "max_cost_units": "0.05",
        },
        priority="batch", user_path="evaluation", task_type="summary",
        required_capabilities=["vision"], allowed_regions=["eu", "us"], quality_floor="0.85",
        session_id="s-1", side_effects=False, tags={"team": "a"}, tools=[TOOL], seed=7,
    )  # fmt: skip
    (sent,) = client.gateway.journey.submissions
    assert (sent.max_input_tokens, sent.max_output_tokens, sent.max_total_tokens) == (10, 20, 30)
    assert (sent.deadline_ms, sent.max_cost_pico) == (4_000, 50_000_000_000)
    assert (sent.priority, sent.user_path, sent.task_type) == ("batch", "evaluation", "summary")
    assert sent.required_capabilities == ("tools", "vision")
    assert (sent.allowed_regions, sent.quality_floor_milli) == (("eu", "us"), 850)
    assert (sent.session_id, sent.tags, sent.seed) == ("s-1", (("team", "a"),), 7)
    assert sent.side_effects is False


def test_tools_mean_side_effects_unless_the_caller_says_otherwise(client):
    submit(client, tools=[TOOL])
    assert client.gateway.journey.submissions[0].side_effects is True


def test_a_stream_says_accepted_then_its_pieces_then_the_end_with_the_receipt(client):
    client.gateway.journey.pieces = CALLING
    reply = submit(client, mode="stream", tools=[TOOL])
    kinds = [line[7:] for line in reply.body.decode().split("\n") if line.startswith("event: ")]
    assert (kinds[0], kinds[-1]) == ("accepted", "end")
    assert set(kinds[1:-1]) == {"piece"}
    assert reply.events[0] == {"request_id": REQUEST_ID, "route_id": "route-a"}
    assert reply.events[-1]["receipt"]["status"] == "completed"


def test_an_asynchronous_request_is_accepted_and_its_output_asked_for(client):
    begun = submit(client, mode="async")
    assert (begun.status, begun.headers["location"]) == (202, OUTPUT)
    assert begun.json["status"] == "open"
    assert client.get(OUTPUT).json["output"]["content"] == "Hello"
    client.tenant = "tenant-b"
    assert client.get(OUTPUT).status == 404


def test_an_output_that_failed_is_a_problem_with_its_receipt(client):
    failing = [ended(None, status="failed", terminal_error_code="BACKEND_DIED")]
    client.gateway.journey.pieces = failing
    submit(client, mode="async")
    reply = client.get(OUTPUT)
    assert (reply.status, reply.json["code"]) == (502, "BACKEND_DIED")
    assert reply.headers["content-type"] == "application/problem+json"
    assert reply.json["receipt"]["status"] == "failed"


@pytest.mark.parametrize(
    "fields",
    [{"budget": {"deadline": 5}}, {"mode": "later"}, {"budget": {"max_cost_units": "free"}},
     {"unknown": 1}, {"quality_floor": "2"}, {"tags": {"A B": "x"}}],
)  # fmt: skip
def test_what_cannot_be_used_is_a_problem_and_nothing_runs(client, fields):
    reply = submit(client, **fields)
    assert (reply.status, reply.json["code"]) == (400, "INVALID_REQUEST")
    assert reply.headers["content-type"] == "application/problem+json"
    assert client.gateway.journey.submissions == []


def test_what_was_shown_is_not_sent_again_to_who_has_it(client):
    first = client.get("/api/openapi.json")
    again = client.get("/api/openapi.json", **{"if-none-match": f'"x", W/{first.headers["etag"]}'})
    assert (again.status, again.body) == (304, b"")
    assert again.headers["etag"] == first.headers["etag"]
    assert client.get("/api/openapi.json", **{"if-none-match": '"other"'}).status == 200
