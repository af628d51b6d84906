"""What the address of an `openai` route says. Pure.

    openai:http://127.0.0.1:8001/v1?model=llama-3.1-8b&close_cancels=1&kv_tokens=180000
    openai:https://api.example.com/v1?model=small-1&key_env=EXAMPLE_API_KEY

`model` is the backend's own name of the model. `key_env` names the environment variable that holds
the credential: its value is in no policy, record or log. `close_cancels=1` declares that the
backend stops generating when its connection closes (vLLM, SGLang and llama.cpp do); without it a
cancel that nobody acknowledges is an unknown. `kv_tokens` declares the backend's KV pool; with it
the backend's /metrics are read, without it the route has no snapshot and stays conservative.
"""

import re
from dataclasses import dataclass
from urllib.parse import SplitResult, parse_qsl, urlsplit

from gateway.policy.values import Route

KV_TOKENS_LIMIT = 1_000_000_000
SETTINGS = ("model", "key_env", "close_cancels", "kv_tokens")
NOT_CARRIED = frozenset({"tools", "vision"})
"""Capabilities that a call does not carry to the backend yet."""

_ENVIRONMENT_NAME = re.compile(r"[A-Z][A-Z0-9_]{0,127}")
_OWN_PREFIX = "WEIGHBRIDGE_"


class BadAddress(ValueError):
    """An address that can't be used; the message says of which route, what, and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend:
    """A usable address. URLs are without credentials; `kv_tokens` None: metrics aren't read."""

    chat_url: str
    metrics_url: str
    model: str
    key_env: str | None
    close_cancels: bool
    kv_tokens: int | None


def backend_of(route: Route) -> Backend:
    """Return what a route's address declares. Raises BadAddress."""
    kind, _, rest = route.address.partition(":")
    try:
        url = urlsplit(rest)
        named = bool(url.hostname) and url.port != 0
    except ValueError:  # a port that is none, a bracket that isn't closed
        named = False
    if kind != "openai" or not named or url.scheme not in ("http", "https"):
        raise _bad(route, "it is not `openai:http://HOST:PORT/v1?model=NAME`")
    if url.username is not None or url.password is not None:
        raise _bad(route, "it holds a credential; name an environment variable with key_env=")
    if url.fragment:
        raise _bad(route, "it has a part after `#`; settings follow `?`")
    _refuse_what_is_not_carried(route)
    declared = _settings(route, url)
    if not declared.get("model"):
        raise _bad(route, "it names no model; add model=NAME")
    base = f"{url.scheme}://{url.netloc}"
    return Backend(
        chat_url=f"{base}{url.path.rstrip('/')}/chat/completions",
        metrics_url=f"{base}/metrics",
        model=declared["model"],
        key_env=_key_env(route, declared.get("key_env")),
        close_cancels=_flag(route, declared.get("close_cancels", "0")),
        kv_tokens=_kv_tokens(route, declared.get("kv_tokens")),
    )


def _settings(route: Route, url: SplitResult) -> dict[str, str]:
    declared: dict[str, str] = {}
    for name, text in parse_qsl(url.query, keep_blank_values=True):
        if name not in SETTINGS:
            raise _bad(route, f"{name} is no setting; there are {', '.join(SETTINGS)}")
        if name in declared:
            raise _bad(route, f"{name} is there twice; keep one")
        declared[name] = text
    return declared


def _refuse_what_is_not_carried(route: Route) -> None:
    """A capability that an attempt would drop on the way must not be declared (PRV-4)."""
    dropped = sorted(NOT_CARRIED.intersection(route.capabilities))
    if dropped:
        raise _bad(route, f"an openai route can't carry {', '.join(dropped)}; declare it without")


def _key_env(route: Route, name: str | None) -> str | None:
    if name is None:
        return None
    if not _ENVIRONMENT_NAME.fullmatch(name):
        # What stands there may be the credential itself, so it is not repeated.
        raise _bad(route, "key_env is no name of an environment variable (A-Z, 0-9, _)")
    if name.startswith(_OWN_PREFIX):
        raise _bad(route, f"key_env names one of the gateway's own settings; {_OWN_PREFIX}* stay")
    return name


def _flag(route: Route, text: str) -> bool:
    if text not in ("0", "1"):
        raise _bad(route, "close_cancels is neither 0 nor 1")
    return text == "1"


def _kv_tokens(route: Route, text: str | None) -> int | None:
    if text is None:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) <= 10):
        raise _bad(route, "kv_tokens is no whole number of at most ten digits")
    if not 0 < int(text) <= KV_TOKENS_LIMIT:
        raise _bad(route, f"kv_tokens is not from 1 to {KV_TOKENS_LIMIT}")
    return int(text)


def _bad(route: Route, what: str) -> BadAddress:
    return BadAddress(f"the address of route {route.route_id} can't be used: {what}")
