"""The official `openai` client against a real socket: answers, streams, errors, its own retries."""

import asyncio
import contextlib
import socket
import threading
from typing import Any

import openai
import pytest
import uvicorn

from gateway.submission import Refusal
from tests.gateway.api.client import REQUEST_ID, SmallGateway, ended, filed

CHAT: Any = [{"role": "user", "content": "Hi"}]


@contextlib.contextmanager
def listening(gateway):
    """Serve the API from a thread for as long as the context lasts; yields its base URL."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        config = uvicorn.Config(gateway.application(), lifespan="off", log_level="error")
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
        finally:
            server.should_exit = True
            thread.join()


@pytest.fixture
def gateway(ledger_path):
    return SmallGateway(ledger_path)


@pytest.fixture
def client(gateway):
    with listening(gateway) as base_url:
        key = gateway.key_of["tenant-a"]
        with openai.OpenAI(base_url=base_url, api_key=key, max_retries=2) as client:
            yield client


def refusal(retryable, status):
    return Refusal(
        request_id=REQUEST_ID,
        reason_code="TENANT_RATE_LIMIT" if retryable else "DEADLINE_INSUFFICIENT",
        http_status=status,
        retryable=retryable,
        retry_after_ms=1 if retryable else None,
        limits=(),
        conditional_on=(),
        caller_action="Wait.",
        filed=filed(status="rejected"),
    )


def test_an_answer_is_read_with_its_usage_receipt_and_request_id(client):
    answer = client.chat.completions.create(model="assistant-large", messages=CHAT)
    assert answer.choices[0].message.content == "Hello"
    assert answer.usage.total_tokens == 1_200
    assert answer.receipt["cost"]["total_units"] == "0.0036"
    assert answer._request_id == REQUEST_ID


def test_a_stream_is_read_to_its_receipt(client, gateway):
    stream = client.chat.completions.create(
        model="assistant-large", messages=CHAT, stream=True, stream_options={"include_usage": True}
    )
    chunks = list(stream)
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == "Hello"
    assert chunks[-1].usage.prompt_tokens == 1_000
    assert chunks[-1].receipt["request_id"] == REQUEST_ID
    assert not gateway.journey.cancelled.is_set()  # it closes after [DONE] (DLV-6)


def test_the_asynchronous_client_streams_too(gateway):
    async def read(base_url):
        async with openai.AsyncOpenAI(
            base_url=base_url, api_key=gateway.key_of["tenant-a"]
        ) as client:
            stream = await client.chat.completions.create(
                model="assistant-large", messages=CHAT, stream=True
            )
            return [chunk async for chunk in stream]

    with listening(gateway) as base_url:
        chunks = asyncio.run(read(base_url))
    assert chunks[-1].choices[0].finish_reason == "stop"


def test_models_are_listed(client):
    assert [m.id for m in client.models.list()] == ["assistant-large", "assistant-small"]
    assert client.models.retrieve("assistant-small").id == "assistant-small"


def test_what_may_be_retried_is_retried_and_nothing_else(client, gateway):
    gateway.journey.refusal = refusal(retryable=True, status=429)
    with pytest.raises(openai.RateLimitError) as limited:
        client.chat.completions.create(model="assistant-large", messages=CHAT)
    assert limited.value.code == "TENANT_RATE_LIMIT"
    assert len(gateway.journey.submissions) == 3

    gateway.journey.submissions.clear()
    gateway.journey.refusal = None
    gateway.journey.pieces = [ended(None, status="unknown", terminal_error_code="TIME_OUT")]
    with pytest.raises(openai.InternalServerError):  # a 504, which the client would retry
        client.chat.completions.create(model="assistant-large", messages=CHAT)
    assert len(gateway.journey.submissions) == 1


def test_errors_come_as_the_clients_own_exceptions(client, gateway):
    with pytest.raises(openai.NotFoundError) as missing:
        client.chat.completions.create(model="nothing", messages=CHAT)
    assert (missing.value.code, missing.value.param) == ("MODEL_NOT_FOUND", "model")
    with pytest.raises(openai.AuthenticationError):
        client.with_options(api_key="wb_wrong").models.list()
    gateway.journey.refusal = refusal(retryable=False, status=422)
    with pytest.raises(openai.UnprocessableEntityError):
        client.chat.completions.create(model="assistant-large", messages=CHAT)


def test_an_error_in_mid_stream_is_raised_by_the_client(client, gateway):
    gateway.journey.pieces[-1] = ended(None, status="failed", terminal_error_code="BACKEND_DIED")
    stream = client.chat.completions.create(model="assistant-large", messages=CHAT, stream=True)
    with pytest.raises(openai.APIError, match="backend failed"):
        list(stream)


def test_a_body_of_two_megabytes_is_answered_and_the_connection_lives_on(client):
    large = [{"role": "user", "content": "a" * 50_000}]  # over this gateway's limit of 10 kB
    for _ in range(2):
        with pytest.raises(openai.APIStatusError) as refused:
            client.chat.completions.create(model="assistant-large", messages=large)
        assert refused.value.status_code == 413
    assert len(list(client.models.list())) == 2
