"""PRV-2, CST-6: the streams of the servers that are known, each in its own shape, read as one."""

from pathlib import Path

import pytest

from gateway.providers.answer import Answer
from gateway.providers.openai_shapes import read_event
from gateway.providers.outcomes import Completed, Failed
from gateway.providers.sse_reader import SseReader
from ledger.rates import Usage
from ledger.usage import convention_of
from tests.gateway.clock import VirtualClock
from tests.gateway.providers.calls import call

STREAMS = Path(__file__).parent / "streams"


def stream_of(name):
    """One answer, "Hi there", as a server streams it; what differs is what is tested."""
    return (STREAMS / f"{name}.sse").read_bytes()


USAGE = Usage(input_tokens=9, output_tokens=2)
REASONED = (("reasoning", 1),)
WHOLE = {
    "vllm": Usage(input_tokens=9, output_tokens=2, cached_input_tokens=4),
    "vllm_continuous": USAGE,
    "sglang": USAGE,
    "llama_cpp": USAGE,
    "dynamo": USAGE,
    "azure": Usage(input_tokens=9, output_tokens=2, meters=REASONED),
    "deepseek": Usage(input_tokens=9, output_tokens=2, cached_input_tokens=4, meters=REASONED),
    "mistral": USAGE,
    "openrouter": USAGE,
}

FAILING = {
    "vLLM": b'data: {"error":{"message":"x","type":"InternalServerError","param":null,"code":500}}'
    b"\n\ndata: [DONE]\n\n",
    "SGLang": b'data: {"error":{"message":"x","type":"abort","code":503}}\n\ndata: [DONE]\n\n',
    "llama.cpp, before 2025": b'error: {"code":500,"message":"x","type":"server_error"}\n\n',
    "llama.cpp": b'data: {"error":{"code":500,"message":"x","type":"server_error"}}\n\n',
    "Dynamo": b"event: error\n: x\n\n",
    "FastAPI": b'data: {"detail":"x"}\n\n',
    "LMDeploy": b'data: {"object":"error","message":"x","code":500}\n\n',
    "TGI": b'data: {"error":"x","error_type":"generation"}\n\n',
    "OpenRouter": b'data: {"id":"gen-1","error":{"code":502,"message":"x"},"choices":[{"index":0,'
    b'"delta":{"content":""},"finish_reason":"error"}]}\n\n',
}


def answered(stream, convention="openai-chat"):
    """(text, outcome) of a stream that ended as HTTP says it should."""
    reader, answer, clock, text = SseReader(), Answer(call()), VirtualClock(1), ""
    for event in [*reader.feed(stream), *reader.end()]:
        piece = answer.take(read_event(event, convention_of(convention)), clock.now_us())
        text += piece.text if piece is not None else ""
        if answer.over:
            break
    return text, answer.ended(cleanly=True)


@pytest.mark.parametrize("server", WHOLE)
def test_a_whole_answer_has_its_text_and_the_counts_that_its_server_reported(server):
    text, outcome = answered(stream_of(server))
    assert (text, type(outcome)) == ("Hi there", Completed)
    assert (outcome.usage, outcome.usage_source) == (WHOLE[server], "provider")
    assert outcome.usage_convention == "openai-chat"
    assert outcome.provider_request_id


def test_a_server_that_tells_no_usage_and_sends_no_done_is_estimated_by_its_pieces():
    text, outcome = answered(stream_of("transformers_serve"))
    assert (text, type(outcome), outcome.usage_source) == ("Hi there", Completed, "estimated")
    assert outcome.usage == Usage(input_tokens=11, output_tokens=2)
    assert outcome.usage_convention is None


def test_a_provider_whose_reasoning_is_outside_its_output_is_read_by_its_own_convention():
    stream = stream_of("azure").replace(b'"reasoning_tokens":1', b'"reasoning_tokens":30')
    assert answered(stream, "xai-chat")[1].usage.output_tokens == 32


@pytest.mark.parametrize("server", FAILING)
def test_an_error_inside_a_200_stream_is_a_failure_whichever_server_says_it(server):
    _, early = answered(FAILING[server])
    begun = b"\n\n".join(stream_of("vllm").split(b"\n\n")[:2]) + b"\n\n"
    text, late = answered(begun + FAILING[server])
    assert (type(early), early.reason, early.retryable) == (Failed, "PROVIDER_STREAM_ERROR", True)
    assert (type(late), late.retryable, text) == (Failed, False, "Hi")
