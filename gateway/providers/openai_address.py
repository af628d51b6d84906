"""What the address of an `openai` route says. Pure.

    openai:http://127.0.0.1:8001/v1?model=llama-3.1-8b&close_cancels=1&kv_tokens=180000
    openai:https://api.example.com/v1?model=small-1&key_env=EXAMPLE_API_KEY&asks=chat

`model` is the backend's own name of the model. `key_env` names the environment variable that holds
the credential: its value is in no policy, record or log. `close_cancels=1` declares that the
backend stops generating when its connection closes (vLLM, SGLang and llama.cpp do); without it a
cancel that nobody acknowledges is an unknown. `kv_tokens` declares the backend's KV pool; with it
the backend's /metrics are read (on `metrics_port`, if they have one of their own), without it the
route has no snapshot and stays conservative.
`asks` declares that it can be asked what became of a request (PRV-3): `chat` by GET
/chat/completions/ID, for which each request is sent with `store`, `responses` by GET
/responses/ID. `output_cap` is the name under which the backend takes the output cap, `usage` the
convention by which it counts (CST-6).
"""

from dataclasses import dataclass
from typing import Literal, cast

from gateway.policy.values import Route
from gateway.providers import backend_address as address
from gateway.providers.backend_address import BadAddress
from gateway.providers.http_exchange import HttpBackend

__all__ = ["Backend", "BadAddress", "backend_of"]

SETTINGS = (
    "model", "key_env", "close_cancels", "kv_tokens", "metrics_port", "asks", "output_cap", "usage"
)  # fmt: skip
NOT_CARRIED = frozenset({"vision"})
"""Capabilities that a call does not carry to the backend."""

Asks = Literal["chat", "responses"]
OutputCap = Literal["max_tokens", "max_completion_tokens"]
_ASKS = ("chat", "responses")
_CONVENTIONS = ("openai-chat", "xai-chat", "perplexity-chat")
_OUTPUT_CAPS = ("max_tokens", "max_completion_tokens")


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend(HttpBackend):
    """An OpenAI-compatible server. `asks` None: it can't be asked what became of a request."""

    api_url: str
    model: str
    asks: Asks | None = None
    output_cap: OutputCap = "max_tokens"
    usage: str = "openai-chat"


def backend_of(route: Route, *, allow_link_local: bool = False) -> Backend:
    """Return what a route's address declares. Raises BadAddress."""
    given = address.declared(
        route,
        "openai",
        SETTINGS,
        "openai:http://HOST:PORT/v1?model=NAME",
        allow_link_local=allow_link_local,
    )
    address.refuse_capabilities(route, "openai", NOT_CARRIED)
    settings = given.settings
    cap = address.choice(route, "output_cap", settings.get("output_cap"), _OUTPUT_CAPS)
    return Backend(
        api_url=f"{given.origin}{given.path}",
        post_url=f"{given.origin}{given.path}/chat/completions",
        metrics_url=address.metrics_url(route, given),
        model=settings["model"],
        key_env=address.key_env(route, settings.get("key_env")),
        close_cancels=address.flag(route, "close_cancels", settings.get("close_cancels")),
        kv_tokens=address.kv_tokens(route, settings.get("kv_tokens")),
        asks=cast(Asks | None, address.choice(route, "asks", settings.get("asks"), _ASKS)),
        output_cap=cast(OutputCap, cap or "max_tokens"),
        usage=address.choice(route, "usage", settings.get("usage"), _CONVENTIONS) or "openai-chat",
    )
