"""What each kind of provider can do, as data: sameness isn't assumed (PRV-4).

`tests/gateway/providers/test_capabilities.py` holds every claim against a backend's behaviour.
"""

from dataclasses import replace

from gateway.policy.values import Route
from gateway.providers import kserve_address, openai_address
from gateway.providers.base import Capabilities, EndStateByClass

KINDS = ("simulator", "openai", "kserve")

_OVER_HTTP: EndStateByClass = (
    ("unreachable", "failed"),
    ("credential_refused", "failed"),
    ("request_refused", "failed"),
    ("parameter_refused", "failed"),
    ("overloaded", "failed"),
    ("internal_error", "failed"),
    ("error_in_stream", "failed"),
    ("stream_without_finish", "failed"),
    ("garbage", "failed"),
    ("connection_lost", "unknown"),
    ("silent", "unknown"),
    ("lost_behind_gateway", "unknown"),
)

SIMULATOR = Capabilities(
    kind="simulator",
    tokenizer="route_revision",
    sampling=("seed", "ignore_eos"),
    stop=True,
    tools=True,
    json_schema=True,
    logprobs=False,
    cancellation="acknowledged",
    usage_timing="with_the_end",
    usage_missing="never",
    error_classes=(("request_refused", "failed"),),
    status_enquiry="any_request",
    snapshots="with_age",
)
OPENAI = Capabilities(
    kind="openai",
    tokenizer="backend",
    sampling=(
        "temperature", "top_p", "presence_penalty", "frequency_penalty", "seed", "ignore_eos",
        "logit_bias", "reasoning_effort",
    ),
    stop=True,
    tools=True,
    json_schema=True,
    logprobs=True,
    cancellation="not_acknowledged",
    usage_timing="with_the_end",
    usage_missing="estimated",
    error_classes=_OVER_HTTP,
    status_enquiry="none",
    snapshots="none",
)  # fmt: skip
KSERVE = Capabilities(
    kind="kserve",
    tokenizer="route_revision",
    sampling=(
        "temperature", "top_p", "presence_penalty", "frequency_penalty", "seed", "ignore_eos",
    ),
    stop=True,
    tools=False,
    json_schema=False,
    logprobs=False,
    cancellation="not_acknowledged",
    usage_timing="not_told",
    usage_missing="counted",
    error_classes=(*_OVER_HTTP, ("model_changed", "failed")),
    status_enquiry="none",
    snapshots="none",
)  # fmt: skip

OF_KIND = {each.kind: each for each in (SIMULATOR, OPENAI, KSERVE)}
"""What a kind can do where a route's address declares nothing more of its backend."""


def capabilities_of(route: Route) -> Capabilities:
    """Return what a route's provider can do, with what its address declares of the backend.

    Raises BadAddress. A link-local address is read here: only connecting to it is refused.
    """
    known = OF_KIND[route.provider_kind]
    if route.provider_kind == "simulator":
        return known
    backend: openai_address.Backend | kserve_address.Backend
    if route.provider_kind == "openai":
        backend = openai_address.backend_of(route, allow_link_local=True)
        if backend.asks is not None:
            known = replace(known, status_enquiry="by_provider_id")
    else:
        backend = kserve_address.backend_of(route, allow_link_local=True)
        if backend.counts is not None:
            known = replace(known, tokenizer="backend", usage_timing="in_each_chunk")
    return replace(
        known,
        cancellation="closing_acknowledges" if backend.close_cancels else known.cancellation,
        snapshots="none" if backend.kv_tokens is None else "with_age",
    )
