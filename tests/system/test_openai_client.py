"""The official client against the demonstration's fleet: answers, streams, lists and errors."""

import asyncio
import json
from typing import Any

import openai
import pytest

from gateway.schemas import matches_schema
from tests.server import Server
from tests.server_fixtures import SMALL_TEAM, SMALL_TEAM_IN_FLIGHT
from tests.system.conftest import TENANT
from tests.system.watching import held, until

CHAT: Any = [{"role": "user", "content": "How heavy is the lorry in bay four?"}]
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "plate": {"type": "string", "minLength": 4},
        "axles": {"type": "integer", "minimum": 2, "maximum": 8},
        "loads": {"type": "array", "minItems": 2, "items": {"type": "number"}},
        "bay": {"enum": ["north", "south"]},
    },
    "required": ["plate", "axles", "loads", "bay"],
    "additionalProperties": False,
}
FORMAT: Any = {"type": "json_schema", "json_schema": {"name": "weight", "schema": SCHEMA}}


def test_an_answer_carries_its_receipt_as_an_extra_field(client: openai.OpenAI):
    answer: Any = client.chat.completions.create(model="assist", messages=CHAT, max_tokens=12)
    receipt = answer.receipt
    assert answer._request_id == receipt["request_id"]
    assert (receipt["status"], receipt["tenant_id"], receipt["simulated"]) == (
        "completed", TENANT, True,
    )  # fmt: skip
    assert answer.usage.prompt_tokens == receipt["input_tokens"]
    assert answer.usage.completion_tokens == receipt["output_tokens"] <= 12
    assert answer.system_fingerprint == f"sim-{receipt['model_identity_id']}"


def test_a_stream_ends_with_its_usage_and_its_receipt(client: openai.OpenAI):
    chunks: list[Any] = list(
        client.chat.completions.create(
            model="assist", messages=CHAT, max_tokens=12, stream=True,
            stream_options={"include_usage": True}, extra_body={"ignore_eos": True},
        )
    )  # fmt: skip
    texts = [c.choices[0].delta.content for c in chunks if c.choices and c.choices[0].delta.content]
    assert len(texts) == 12 and "".join(texts).startswith("Simulated answer:")
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == "length"
    assert chunks[-1].usage.completion_tokens == chunks[-1].receipt["output_tokens"] == 12
    assert [c.usage for c in chunks[:-1]] == [None] * (len(chunks) - 1)


def test_the_asynchronous_client_gets_answers_and_streams_at_once(server: Server):
    async def both() -> tuple[Any, list[Any]]:
        base_url, key = f"{server.base_url}/v1", server.keys[TENANT]
        async with openai.AsyncOpenAI(base_url=base_url, api_key=key) as client:
            asked: dict[str, Any] = {"model": "assist", "messages": CHAT, "max_tokens": 6}

            async def streamed() -> list[Any]:
                stream = await client.chat.completions.create(**asked, stream=True)
                return [chunk async for chunk in stream]

            return await asyncio.gather(client.chat.completions.create(**asked), streamed())

    whole, chunks = asyncio.run(both())
    assert whole.receipt["status"] == chunks[-1].receipt["status"] == "completed"
    assert whole.receipt["request_id"] != chunks[-1].receipt["request_id"]


def test_the_models_are_the_policys_logical_models(client: openai.OpenAI):
    assert [model.id for model in client.models.list()] == ["assist", "assist-long"]
    assert client.models.retrieve("assist-long").owned_by == "weighbridge"


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_under_a_schema_is_valid_json_of_that_schema(client: openai.OpenAI, stream: bool):
    made: Any = client.chat.completions.create(
        model="assist", messages=CHAT, max_tokens=200, response_format=FORMAT, stream=stream
    )
    if stream:
        *chunks, last = made
        text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
        receipt = last.receipt
    else:
        text, receipt = made.choices[0].message.content, made.receipt
    assert matches_schema(text, SCHEMA)
    assert set(json.loads(text)) == set(SCHEMA["required"])
    assert receipt["schema_valid"] is True


def test_an_answer_that_is_cut_off_under_a_schema_is_not_valid(client: openai.OpenAI):
    answer: Any = client.chat.completions.create(
        model="assist", messages=CHAT, max_tokens=2, response_format=FORMAT
    )
    assert answer.choices[0].finish_reason == "length"
    assert answer.receipt["schema_valid"] is False


def test_errors_are_the_clients_own_classes(client: openai.OpenAI):
    create = client.chat.completions.create
    with pytest.raises(openai.AuthenticationError) as wrong_key:
        client.with_options(api_key="wb_wrong").models.list()
    with pytest.raises(openai.NotFoundError) as no_model:
        create(model="none", messages=CHAT)
    with pytest.raises(openai.BadRequestError) as no_tokens:
        create(model="assist", messages=CHAT, max_tokens=0)
    with pytest.raises(openai.UnprocessableEntityError) as no_time:
        create(model="assist", messages=CHAT, extra_headers={"x-deadline-ms": "1"})
    raised = (wrong_key, no_model, no_tokens, no_time)
    assert [error.value.code for error in raised] == [
        "UNAUTHENTICATED", "MODEL_NOT_FOUND", "INVALID_TOKEN_BUDGET", "DEADLINE_INSUFFICIENT",
    ]  # fmt: skip


def test_a_tenant_at_its_limit_gets_a_rate_limit_error_and_then_is_served_again(server: Server):
    async def beyond_the_limit() -> list[Any]:
        base_url, key = f"{server.base_url}/v1", server.keys[SMALL_TEAM]
        async with openai.AsyncOpenAI(base_url=base_url, api_key=key, max_retries=0) as client:
            asked = (
                client.chat.completions.create(
                    model="assist", messages=CHAT, max_tokens=256, extra_body={"ignore_eos": True}
                )
                for _ in range(6 * SMALL_TEAM_IN_FLIGHT)
            )
            return await asyncio.gather(*asked, return_exceptions=True)

    answers = asyncio.run(beyond_the_limit())
    refused = [answer for answer in answers if isinstance(answer, openai.RateLimitError)]
    assert len(answers) - len(refused) >= SMALL_TEAM_IN_FLIGHT and refused
    assert {error.code for error in refused} == {"TENANT_CONCURRENCY_LIMIT"}
    assert all(int(error.response.headers["retry-after"]) >= 1 for error in refused)
    until(lambda: held(server) == (0, 0, 0), "nothing is held")
    assert server.chat("Hello", key=server.keys[SMALL_TEAM], max_tokens=2)[0] == 200
