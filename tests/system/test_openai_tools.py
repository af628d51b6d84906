"""The official client's tools, structured answers, stop sequences and several choices."""

import asyncio
from typing import Any, Literal

import openai
import pydantic
import pytest

from gateway.schemas import matches_schema
from tests.server import Server
from tests.server_fixtures import SMALL_TEAM, SMALL_TEAM_IN_FLIGHT
from tests.system.conftest import TENANT
from tests.system.watching import held, until

CHAT: Any = [{"role": "user", "content": "How heavy is the lorry in bay four?"}]
PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {"bay": {"type": "integer", "minimum": 1}, "unit": {"enum": ["t", "kg"]}},
    "required": ["bay", "unit"],
    "additionalProperties": False,
}
TOOLS: Any = [
    {"type": "function", "function": {"name": "weigh", "parameters": PARAMETERS}},
    {"type": "function", "function": {"name": "open_gate"}},
]


class Weight(pydantic.BaseModel):
    tonnes: int
    bay: Literal["north", "south"]
    loads: list[float]


def test_a_tool_is_called_and_its_result_is_answered_with_words(client: openai.OpenAI):
    first: Any = client.chat.completions.create(model="assist", messages=CHAT, tools=TOOLS)
    (choice,) = first.choices
    (call,) = choice.message.tool_calls
    assert (choice.finish_reason, call.function.name) == ("tool_calls", "weigh")
    assert choice.message.content is None
    assert matches_schema(call.function.arguments, PARAMETERS)
    result: Any = {"role": "tool", "tool_call_id": call.id, "content": '{"tonnes": 12}'}
    second: Any = client.chat.completions.create(
        model="assist",
        messages=[*CHAT, choice.message.to_dict(), result],
        tools=TOOLS,
        max_tokens=400,
    )
    assert second.choices[0].message.content.startswith("Simulated answer:")
    assert second.choices[0].message.tool_calls is None
    assert first.receipt["status"] == second.receipt["status"] == "completed"


@pytest.mark.parametrize(
    ("choice", "named"),
    [
        ("none", None),
        ("required", "weigh"),
        ({"type": "function", "function": {"name": "open_gate"}}, "open_gate"),
    ],
)
def test_a_tool_choice_is_obeyed(client: openai.OpenAI, choice: Any, named: str | None):
    answer: Any = client.chat.completions.create(
        model="assist", messages=CHAT, tools=TOOLS, tool_choice=choice, max_tokens=40
    )
    calls = answer.choices[0].message.tool_calls or []
    assert [call.function.name for call in calls] == ([] if named is None else [named])


def test_the_stream_helper_puts_a_tool_call_together(client: openai.OpenAI):
    with client.chat.completions.stream(model="assist", messages=CHAT, tools=TOOLS) as stream:
        kinds = {event.type for event in stream}
        final = stream.get_final_completion()
    (call,) = final.choices[0].message.tool_calls or []
    assert matches_schema(call.function.arguments, PARAMETERS)
    assert "tool_calls.function.arguments.delta" in kinds


def test_a_structured_answer_is_parsed_into_its_model(client: openai.OpenAI):
    answer: Any = client.chat.completions.parse(
        model="assist", messages=CHAT, response_format=Weight, max_tokens=300
    )
    weight = answer.choices[0].message.parsed
    assert isinstance(weight, Weight)
    assert weight.bay in ("north", "south")
    assert answer.receipt["schema_valid"] is True


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_stops_before_a_stop_sequence(client: openai.OpenAI, stream: bool):
    made: Any = client.chat.completions.create(
        model="assist", messages=CHAT, max_tokens=40, stop=["swer"], stream=stream
    )
    if stream:
        chunks = list(made)
        text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
        finish, receipt = chunks[-1].choices[0].finish_reason, chunks[-1].receipt
    else:
        text, finish = made.choices[0].message.content, made.choices[0].finish_reason
        receipt = made.receipt
    assert (text, finish) == ("Simulated an", "stop")
    assert receipt["output_tokens"] == 2  # the token that held it was generated


def test_several_choices_are_requests_of_their_own_each_priced(client: openai.OpenAI):
    answer: Any = client.chat.completions.create(
        model="assist", messages=CHAT, max_tokens=20, n=3, seed=5
    )
    texts = [choice.message.content for choice in answer.choices]
    assert [choice.index for choice in answer.choices] == [0, 1, 2]
    assert len(set(texts)) == 3
    receipts = answer.receipts
    assert len({receipt["request_id"] for receipt in receipts}) == 3
    assert answer._request_id == receipts[0]["request_id"]
    assert answer.usage.completion_tokens == sum(each["output_tokens"] for each in receipts)
    assert answer.usage.prompt_tokens == sum(each["input_tokens"] for each in receipts)
    assert all(each["cost"]["total_pico"] > 0 for each in receipts)


def test_several_choices_stream_side_by_side(client: openai.OpenAI):
    chunks: list[Any] = list(
        client.chat.completions.create(
            model="assist", messages=CHAT, max_tokens=12, n=2, stream=True,
            stream_options={"include_usage": True}, extra_body={"ignore_eos": True},
        )
    )  # fmt: skip
    texts, finishes = {0: "", 1: ""}, {}
    for chunk in chunks:
        for choice in chunk.choices:
            texts[choice.index] += choice.delta.content or ""
            if choice.finish_reason:
                finishes[choice.index] = choice.finish_reason
    assert all(text.startswith("Simulated answer:") for text in texts.values())
    assert finishes == {0: "length", 1: "length"}
    assert (chunks[-1].usage.completion_tokens, len(chunks[-1].receipts)) == (24, 2)


def test_more_choices_than_there_are_slots_are_refused_and_hold_nothing(server: Server):
    asked: dict[str, Any] = {"model": "assist", "messages": CHAT, "max_tokens": 8}
    key = server.keys[SMALL_TEAM]
    base_url = f"{server.base_url}/v1"
    with openai.OpenAI(base_url=base_url, api_key=key, max_retries=0) as client:
        with pytest.raises(openai.RateLimitError) as refused:
            client.chat.completions.create(**asked, n=SMALL_TEAM_IN_FLIGHT + 1)
        assert refused.value.code == "TENANT_CONCURRENCY_LIMIT"
        whole: Any = client.chat.completions.create(**asked, n=SMALL_TEAM_IN_FLIGHT)
        assert len(whole.receipts) == SMALL_TEAM_IN_FLIGHT
    until(lambda: held(server) == (0, 0, 0), "slots, KV and money are given back")


def test_several_choices_under_one_key_are_one_execution(client: openai.OpenAI):
    asked: dict[str, Any] = {
        "model": "assist", "messages": CHAT, "max_tokens": 8, "n": 2,
        "extra_headers": {"Idempotency-Key": "several-1"},
    }  # fmt: skip
    first: Any = client.chat.completions.create(**asked)
    again: Any = client.chat.completions.create(**asked)
    ids = [[each["request_id"] for each in answer.receipts] for answer in (first, again)]
    assert ids[0] == ids[1]
    assert [c.message.content for c in first.choices] == [c.message.content for c in again.choices]


def test_log_probabilities_are_refused_where_no_route_has_them(client: openai.OpenAI):
    with pytest.raises(openai.UnprocessableEntityError) as refused:
        client.chat.completions.create(model="assist", messages=CHAT, logprobs=True)
    assert refused.value.code == "CAPABILITY_UNAVAILABLE"
    assert "routes_with.logprobs is 0" in refused.value.message


def test_what_is_not_known_is_let_pass(client: openai.OpenAI):
    answer: Any = client.chat.completions.create(
        model="assist", messages=CHAT, max_tokens=8, temperature=0.2, top_p=0.9,
        presence_penalty=0.1, frequency_penalty=0.1, logit_bias={"7": 1}, user="someone",
        reasoning_effort="low", service_tier="auto", store=False, metadata={"run": "7"},
        extra_body={"min_p": 0.1, "top_k": 5},
    )  # fmt: skip
    assert answer.receipt["status"] == "completed"


def test_the_asynchronous_client_cancels_all_choices_when_it_goes_away(server: Server):
    async def leave() -> None:
        base_url, key = f"{server.base_url}/v1", server.keys[TENANT]
        async with openai.AsyncOpenAI(base_url=base_url, api_key=key, max_retries=0) as client:
            stream = await client.chat.completions.create(
                model="assist", messages=CHAT, max_tokens=1_000, n=3, stream=True,
                extra_body={"ignore_eos": True},
            )  # fmt: skip
            async for _ in stream:
                break
            await stream.close()

    asyncio.run(leave())
    until(lambda: held(server) == (0, 0, 0), "all three are given back")
