"""Calls and routes for the tests of providers."""

from gateway.providers.base import Call
from gateway.submission import Message
from tests import policy_factories as make

PROMPT = "How heavy is a lörry?"


def route(base_url="http://127.0.0.1:9/v1", *, model="tiny", capabilities=(), **settings):
    """A route to an OpenAI-compatible server; further keywords are settings of its address."""
    query = "&".join(f"{name}={value}" for name, value in settings.items())
    return make.route(
        "real-1",
        provider_kind="openai",
        address=f"openai:{base_url}?model={model}" + (f"&{query}" if query else ""),
        capabilities=capabilities,
    )


def kserve_route(origin="http://127.0.0.1:9", *, model="faulty", capabilities=(), **settings):
    """A route to a server of the Open Inference Protocol, whose outputs are counted by o200k."""
    query = "&".join(f"{name}={value}" for name, value in settings.items())
    return make.route(
        "kserve-1",
        provider_kind="kserve",
        address=f"kserve:{origin}?model={model}" + (f"&{query}" if query else ""),
        capabilities=capabilities,
        tokenizer_revision="o200k_base/chat-1",
    )


def call(of=None, **fields):
    """A call of 11 input tokens and at most 64 output tokens."""
    given = {
        "attempt_id": "req_1.0",
        "route": of or route(),
        "tenant_id": "tenant-a",
        "priority": "interactive",
        "input_tokens": 11,
        "max_output_tokens": 64,
        "messages": (Message(role="user", content=PROMPT),),
    }
    return Call(**given | fields)
