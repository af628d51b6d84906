"""The official Python client over the whole of /v1: synchronous, asynchronous, helpers, retries."""

import asyncio
import contextlib
import json
from collections.abc import Iterator
from typing import Any

import openai
import pydantic
import pytest

from ledger.queries.receipts import ReceiptFilter, receipt_page
from ledger.reading import connect_read_only
from tests.clients.conftest import EVERYTHING
from tests.server import Server
from tests.server_fixtures import SLOW, Fleet
from tests.system.watching import held, until

CHAT: Any = [{"role": "user", "content": "How heavy is the lorry in bay four?"}]
TOOL: Any = {
    "type": "function",
    "function": {
        "name": "weigh",
        "strict": True,
        "parameters": {
            "type": "object",
            "properties": {"plate": {"type": "string"}},
            "required": ["plate"],
            "additionalProperties": False,
        },
    },
}


class Weight(pydantic.BaseModel):
    plate: str
    axles: int


@pytest.fixture
def client(open_server: Server) -> Iterator[openai.OpenAI]:
    key = open_server.keys[EVERYTHING]
    base_url = f"{open_server.base_url}/v1"
    with openai.OpenAI(base_url=base_url, api_key=key, max_retries=0) as made:
        yield made


def test_the_streaming_helper_puts_the_answer_together(client: openai.OpenAI):
    with client.chat.completions.stream(
        model="assist", messages=CHAT, max_tokens=1_000, seed=1,
        stream_options={"include_usage": True},
    ) as stream:  # fmt: skip
        kinds = {event.type for event in stream}
        final = stream.get_final_completion()
    assert {"chunk", "content.delta", "content.done"} <= kinds
    assert final.choices[0].message.content.startswith("Simulated")
    assert 0 < final.usage.completion_tokens < 1_000


def test_parse_gives_an_object_of_the_callers_type(client: openai.OpenAI):
    answer = client.chat.completions.parse(
        model="assist", messages=CHAT, max_tokens=200, response_format=Weight
    )
    assert isinstance(answer.choices[0].message.parsed, Weight)


def test_a_required_tool_is_called_with_arguments_under_its_schema(client: openai.OpenAI):
    answer = client.chat.completions.create(
        model="assist", messages=CHAT, max_tokens=200, tools=[TOOL], tool_choice="required"
    )
    (call,) = answer.choices[0].message.tool_calls
    assert answer.choices[0].finish_reason == "tool_calls"
    assert set(json.loads(call.function.arguments)) == {"plate"}


def test_parameters_that_mean_nothing_here_are_left_alone(client: openai.OpenAI):
    answer = client.chat.completions.create(
        model="assist", messages=CHAT, max_completion_tokens=4, user="someone", store=False,
        extra_body={"of_another_server": {"nested": [1]}, "top_k": 5},
    )  # fmt: skip
    assert answer.usage.completion_tokens <= 4


def test_completions_whole_and_streamed(client: openai.OpenAI):
    whole = client.completions.create(model="assist", prompt="Weigh it", max_tokens=6)
    chunks = list(
        client.completions.create(model="assist", prompt="Weigh it", max_tokens=6, stream=True)
    )
    assert whole.choices[0].text.startswith("Simulated")
    assert "".join(chunk.choices[0].text for chunk in chunks).startswith("Simulated")
    assert len({(chunk.id, chunk.created) for chunk in chunks}) == 1


def test_responses_are_created_streamed_parsed_asked_for_again_and_deleted(client: openai.OpenAI):
    made = client.responses.create(model="assist", input="Weigh it", max_output_tokens=300)
    assert made.output_text.startswith("Simulated")
    assert client.responses.retrieve(made.id).output_text == made.output_text
    with client.responses.stream(
        model="assist", input="Weigh it", max_output_tokens=1_000,
        extra_body={"seed": 1},  # so that it ends by itself, under the cap
    ) as stream:  # fmt: skip
        kinds = [event.type for event in stream]
        final = stream.get_final_response()
    assert (kinds[0], kinds[-1]) == ("response.created", "response.completed")
    assert final.output_text.startswith("Simulated")
    parsed = client.responses.parse(model="assist", input="Weigh it", text_format=Weight)
    assert isinstance(parsed.output_parsed, Weight)
    client.responses.delete(made.id)
    with pytest.raises(openai.APIStatusError) as gone:
        client.responses.retrieve(made.id)
    assert (gone.value.status_code, gone.value.code) == (410, "OUTPUT_NOT_RETAINED")


def test_a_response_in_the_background_is_polled_and_can_be_cancelled(fleet: Fleet):
    with fleet.serving(SLOW) as server:
        key = fleet.keys["support-desk"]
        server.call("/readyz")
        with openai.OpenAI(base_url=f"{server.base_url}/v1", api_key=key) as client:
            body = {"ignore_eos": True}
            begun = client.responses.create(
                model="assist", input="Weigh it", background=True, extra_body=body,
                max_output_tokens=512,
            )  # fmt: skip
            assert begun.status == "queued"
            until(lambda: client.responses.retrieve(begun.id).status == "in_progress", "it runs")
            assert client.responses.cancel(begun.id).status == "cancelled"
            assert client.responses.retrieve(begun.id).status == "cancelled"
        until(lambda: held(server) == (0, 0, 0), "nothing is held")


def test_embeddings_are_refused_as_an_error_of_the_client(client: openai.OpenAI):
    with pytest.raises(openai.UnprocessableEntityError) as refused:
        client.embeddings.create(model="assist", input="x")
    assert refused.value.code == "CAPABILITY_UNAVAILABLE"


def test_the_asynchronous_client_gets_responses(open_server: Server):
    async def respond() -> Any:
        async with openai.AsyncOpenAI(
            base_url=f"{open_server.base_url}/v1", api_key=open_server.keys[EVERYTHING]
        ) as client:
            made = client.responses.create(model="assist", input="x", max_output_tokens=5)
            return await made

    assert asyncio.run(respond()).output_text.startswith("Simulated")


def _impatient(server: Server, key: str, headers: dict[str, str]) -> None:
    """Three tries of one call by a client that waits for less than the answer takes."""
    with (
        openai.OpenAI(
            base_url=f"{server.base_url}/v1", api_key=key, max_retries=2,
            timeout=openai.Timeout(30.0, read=0.6), default_headers=headers,
        ) as client,
        pytest.raises(openai.APITimeoutError),
    ):  # fmt: skip
        client.chat.completions.create(
            model="assist", messages=CHAT, max_tokens=1_024, extra_body={"ignore_eos": True},
            extra_headers={"x-stainless-read-timeout": openai.Omit()},
        )  # fmt: skip


def _receipts(fleet: Fleet) -> list[Any]:
    connection = connect_read_only(fleet.ledger)
    try:
        return [row.record for row in receipt_page(connection, ReceiptFilter()).receipts]
    finally:
        connection.close()


def test_three_tries_with_an_idempotency_key_are_one_execution(fleet: Fleet):
    """LED-5: the answer that was given up on three times is made once, and has one receipt."""
    with fleet.serving(SLOW) as server:
        server.call("/readyz")
        key = fleet.keys["support-desk"]
        _impatient(server, key, {"Idempotency-Key": "one-call"})
        assert held(server)[0] == 1  # it runs on: the client will ask again
        with contextlib.closing(fleet.reader()) as reader:
            ((request_id,),) = reader.execute("SELECT request_id FROM route_decision").fetchall()
        path = f"/api/v1/requests/{request_id}/cancel"  # its end needn't be waited for
        assert server.call(path, key=key, body={})[0] == 200
    (receipt,) = _receipts(fleet)
    assert receipt.attempts == 1


def test_three_tries_without_a_key_are_each_cancelled_upstream(fleet: Fleet):
    """DLV-2: a client that goes away cancels at once; each try has its own receipt."""
    with fleet.serving(SLOW) as server:
        server.call("/readyz")
        _impatient(server, fleet.keys["support-desk"], {})
        until(lambda: held(server) == (0, 0, 0), "all are cancelled")
    receipts = _receipts(fleet)
    assert [receipt.status for receipt in receipts] == ["cancelled"] * 3
    assert {receipt.terminal_error_code for receipt in receipts} == {"CLIENT_GONE"}
