"""The names that vLLM's dashboards and llm-d read, of the same facts as our own metrics.

`model_name` is the logical model, `engine` the route. Gauges are those of a route's last snapshot,
whose age has a metric of its own (SCH-2).
"""

from functools import lru_cache
from typing import NamedTuple

from prometheus_client import Gauge

from gateway.book import Book
from gateway.metric_registry import REGISTRY, BoundedLabel, Counter, Histogram, PerRoute
from gateway.policy.values import RoutePolicy
from ledger.records import Receipt

# vLLM's own buckets, so that its dashboards' quantiles read the same.
_TTFT = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
    20.0, 40.0, 80.0, 160.0,
)  # fmt: skip
_ITL = (
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
)  # fmt: skip
_REQUEST = (0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 60.0, 120.0)
_OF = ["model_name", "engine"]
SERIES_LIMIT = 4_096  # that are found by what they count


def _gauge(name: str, what: str) -> Gauge:
    return Gauge(f"vllm:{name}", what, _OF, registry=REGISTRY)


def _histogram(name: str, what: str, buckets: tuple[float, ...]) -> Histogram:
    return Histogram(f"vllm:{name}", what, _OF, buckets=buckets, registry=REGISTRY)


_waiting = _gauge("num_requests_waiting", "Waiting requests in the last snapshot.")
_running = _gauge("num_requests_running", "Running requests in the last snapshot.")
_kv_usage = _gauge("kv_cache_usage_perc", "Share of the KV cache in use, from 0 to 1.")
_ttft = _histogram("time_to_first_token_seconds", "Time to first token.", _TTFT)
_itl = _histogram("inter_token_latency_seconds", "A request's mean time between tokens.", _ITL)
_e2e = _histogram("e2e_request_latency_seconds", "From acceptance to the end.", _REQUEST)
_queue = _histogram("request_queue_time_seconds", "Time in the queue before prefill.", _REQUEST)
_prompt = Counter("vllm:prompt_tokens", "Prompt tokens.", _OF, registry=REGISTRY)
_generated = Counter("vllm:generation_tokens", "Generated tokens.", _OF, registry=REGISTRY)
_success = Counter("vllm:request_success", "Requests that completed.", _OF, registry=REGISTRY)

_per_route = PerRoute(_waiting, _running, _kv_usage)
_model, _engine = BoundedLabel(), BoundedLabel()


def observe_engines(book: Book, policy: RoutePolicy) -> None:
    """Set the gauges of each model's primary routes from their last snapshots."""
    models = {route_id: model.name for model in policy.models for route_id in model.primary_routes}
    states = book.route_states()
    _per_route.of(*[(models.get(state.route_id), state.route_id) for state in states])
    for state in states:
        snapshot = state.snapshot
        if snapshot is None:
            continue
        labels = _model(models.get(state.route_id)), _engine(state.route_id)
        _waiting.labels(*labels).set(snapshot.waiting_requests)
        _running.labels(*labels).set(snapshot.running_requests)
        held = snapshot.reserved_kv_tokens
        room = held + snapshot.free_kv_tokens
        _kv_usage.labels(*labels).set(held / room if room else 0.0)


def request_ended(receipt: Receipt) -> None:
    """Count a request by its receipt, which is durable."""
    if receipt.status == "rejected" or receipt.route_id is None:
        return
    series = _series_of(receipt.logical_model, receipt.route_id)
    series.prompt.add(receipt.input_tokens)
    series.generated.add(receipt.output_tokens)
    series.ttft.add(receipt.first_token_us)
    series.itl.add(receipt.itl_mean_us)
    series.queue.add(receipt.queue_us)
    if receipt.status == "completed":
        series.success.add()
        series.e2e.add(receipt.e2e_us)


class _Series(NamedTuple):
    """What a request is counted in, all of one model and engine."""

    prompt: Counter
    generated: Counter
    success: Counter
    ttft: Histogram
    itl: Histogram
    queue: Histogram
    e2e: Histogram


@lru_cache(maxsize=SERIES_LIMIT)
def _series_of(model_name: str, route_id: str) -> _Series:
    labels = _model(model_name), _engine(route_id)
    return _Series(
        prompt=_prompt.labels(*labels),
        generated=_generated.labels(*labels),
        success=_success.labels(*labels),
        ttft=_ttft.labels(*labels),
        itl=_itl.labels(*labels),
        queue=_queue.labels(*labels),
        e2e=_e2e.labels(*labels),
    )
