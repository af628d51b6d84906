"""Prometheus metrics: counts, times and gauges, no content, and no label without a bound (SEC-1).

Tenants are no label (the receipts have them). Every other label keeps its first LABEL_VALUES_LIMIT
distinct values and calls the rest "other", so that neither a client nor a backend can grow the
exposition.
"""

from functools import lru_cache
from typing import NamedTuple

from prometheus_client import Gauge
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from gateway import engine_metrics
from gateway.book import Book
from gateway.metric_registry import REGISTRY as REGISTRY
from gateway.metric_registry import BoundedLabel as BoundedLabel
from gateway.metric_registry import Counter, Histogram, PerRoute, child
from gateway.policy.values import RoutePolicy
from ledger.money import PICO_PER_UNIT
from ledger.receipt_cost import unpriced
from ledger.records import Receipt

CONTENT_TYPE = CONTENT_TYPE_LATEST

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)
SERIES_LIMIT = 4_096  # that are found by what they count, of each kind

_ITL_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.2, 0.5, 1.0)

_requests = Counter(
    "weighbridge_requests",
    "Requests that have a receipt, by how they ended.",
    ["status", "reason", "route", "priority", "degraded"],
    registry=REGISTRY,
)
_tokens = Counter(
    "weighbridge_tokens",
    "Tokens of requests that ran, by kind: input, cached_input (inside input), output.",
    ["route", "kind"],
    registry=REGISTRY,
)
_cost = Counter(
    "weighbridge_cost_pico",
    "What requests cost by their receipts, 10^-12 of the ledger's currency: whole numbers.",
    ["route"],
    registry=REGISTRY,
)
_unpriced = Counter(
    "weighbridge_unpriced_requests",
    "Requests that ran without a rate: they are in no cost.",
    ["route"],
    registry=REGISTRY,
)
_ttft = Histogram(
    "weighbridge_ttft_seconds",
    "Time to first token of requests that got one.",
    ["route", "priority"],
    buckets=_SECONDS,
    registry=REGISTRY,
)
_queue = Histogram(
    "weighbridge_queue_seconds",
    "Time in the queue before prefill.",
    ["route", "priority"],
    buckets=_SECONDS,
    registry=REGISTRY,
)
_e2e = Histogram(
    "weighbridge_e2e_seconds",
    "Time from acceptance to the end of requests that completed.",
    ["route", "priority"],
    buckets=_SECONDS,
    registry=REGISTRY,
)
_itl = Histogram(
    "weighbridge_itl_p95_seconds",
    "The 95th percentile of a request's own times between tokens.",
    ["route", "priority"],
    buckets=_ITL_SECONDS,
    registry=REGISTRY,
)
_responses = Counter(
    "weighbridge_http_responses",
    "Responses of the API, by endpoint (never by path) and HTTP status.",
    ["endpoint", "status"],
    registry=REGISTRY,
)
_turned_away = Counter(
    "weighbridge_turned_away",
    "Exchanges that failed before they became a request, which therefore have no receipt.",
    ["reason"],
    registry=REGISTRY,
)
_attempts = Counter(
    "weighbridge_attempts",
    "Attempts that have ended, by kind (primary, retry, fallback, hedge) and how they ended.",
    ["kind", "route", "status"],
    registry=REGISTRY,
)
_over_cap = Counter(
    "weighbridge_usage_over_cap",
    "Attempts of more output than the request's cap: a provider's own count is billed as it says.",
    ["route"],
    registry=REGISTRY,
)
_probes = Counter(
    "weighbridge_snapshot_probes",
    "Snapshots asked for at once because a decision had only a stale one.",
    ["route"],
    registry=REGISTRY,
)
_steps = Counter(
    "weighbridge_attempt_decisions",
    "What followed an attempt: what was asked (ended, hedge_due) and what was done, or none.",
    ["asked", "action"],
    registry=REGISTRY,
)
_hedges = Counter(
    "weighbridge_hedges",
    "Hedged requests, by whether every loser was cancelled, said so and holds nothing.",
    ["gate"],
    registry=REGISTRY,
)
_breaker_changes = Counter(
    "weighbridge_breaker_changes",
    "Changes of a route's circuit breaker, by the state that it went to.",
    ["route", "state"],
    registry=REGISTRY,
)
_telemetry_dropped = Counter(
    "weighbridge_telemetry_dropped",
    "Requests that no collector was told of, because too many waited to be told.",
    registry=REGISTRY,
)
_free_kv_tokens = Gauge(
    "weighbridge_route_free_kv_tokens",
    "Free KV tokens in a route's last snapshot; see the snapshot's time for its age.",
    ["route"],
    registry=REGISTRY,
)
_waiting = Gauge(
    "weighbridge_route_waiting_requests",
    "Waiting requests in a route's last snapshot.",
    ["route"],
    registry=REGISTRY,
)
_running = Gauge(
    "weighbridge_route_running_requests",
    "Running requests in a route's last snapshot.",
    ["route"],
    registry=REGISTRY,
)
_snapshot_time = Gauge(
    "weighbridge_route_snapshot_timestamp_seconds",
    "When a route's last snapshot was observed, in seconds since the Unix epoch.",
    ["route"],
    registry=REGISTRY,
)
_in_flight = Gauge(
    "weighbridge_in_flight_requests",
    "Slots held: requests in flight, and unknowns whose bound has not passed.",
    registry=REGISTRY,
)
_held_kv_tokens = Gauge(
    "weighbridge_held_kv_tokens", "KV tokens held by reservations.", registry=REGISTRY
)
_held_cost_units = Gauge(
    "weighbridge_held_cost_units",
    "Money held: of requests in flight, and of unknowns that nothing has settled.",
    registry=REGISTRY,
)
_unread = Gauge(
    "weighbridge_unread_answer_bytes",
    "What waits in memory for clients that are behind with reading their answers.",
    registry=REGISTRY,
)
_healthy = Gauge(
    "weighbridge_route_healthy", "1 where a route is healthy, else 0.", ["route"], registry=REGISTRY
)


_per_route = PerRoute(_healthy, _free_kv_tokens, _waiting, _running, _snapshot_time)
_reason, _route, _priority, _endpoint = (BoundedLabel() for _ in range(4))


def request_ended(receipt: Receipt) -> None:
    """Count a request by its receipt, which is durable."""
    engine_metrics.request_ended(receipt)
    _requests_of(
        receipt.status, receipt.terminal_error_code, receipt.route_id, receipt.priority,
        receipt.degraded_from is not None,
    ).add()  # fmt: skip
    if receipt.status == "rejected":
        return
    series = _series_of(receipt.route_id, receipt.priority)
    series.input_tokens.add(receipt.input_tokens)
    series.output_tokens.add(receipt.output_tokens)
    series.cached_tokens.add(receipt.cached_input_tokens)
    series.cost.add(receipt.cost_total_pico)
    series.unpriced.add(unpriced(receipt))
    series.ttft.add(receipt.first_token_us)
    series.queue.add(receipt.queue_us)
    series.itl.add(receipt.itl_p95_us)
    if receipt.status == "completed":
        series.e2e.add(receipt.e2e_us)


class _Series(NamedTuple):
    """What a request that ran is counted in, all of one route and priority."""

    input_tokens: Counter
    output_tokens: Counter
    cached_tokens: Counter
    cost: Counter
    unpriced: Counter
    ttft: Histogram
    queue: Histogram
    itl: Histogram
    e2e: Histogram


@lru_cache(maxsize=SERIES_LIMIT)
def _series_of(route_id: str | None, priority_name: str) -> _Series:
    route, priority = _route(route_id), _priority(priority_name)
    return _Series(
        input_tokens=_tokens.labels(route, "input"),
        output_tokens=_tokens.labels(route, "output"),
        cached_tokens=_tokens.labels(route, "cached_input"),
        cost=_cost.labels(route),
        unpriced=_unpriced.labels(route),
        ttft=_ttft.labels(route, priority),
        queue=_queue.labels(route, priority),
        itl=_itl.labels(route, priority),
        e2e=_e2e.labels(route, priority),
    )


@lru_cache(maxsize=SERIES_LIMIT)
def _requests_of(
    status: str, reason: str | None, route_id: str | None, priority: str, degraded: bool
) -> Counter:
    labels = status, _reason(reason), _route(route_id), _priority(priority)
    return _requests.labels(*labels, "true" if degraded else "false")


@lru_cache(maxsize=SERIES_LIMIT)
def _attempts_of(kind: str, route_id: str, status: str) -> Counter:
    return _attempts.labels(kind, _route(route_id), status)


@lru_cache(maxsize=SERIES_LIMIT)
def _responses_of(endpoint: str, status: int) -> Counter:
    return _responses.labels(_endpoint(endpoint), str(status))


def attempt_ended(kind: str, route_id: str, status: str) -> None:
    """Count an attempt's end; its receipt may have others beside it."""
    _attempts_of(kind, route_id, status).add()


def usage_over_cap(route_id: str) -> None:
    """Count an attempt that generated more than was asked for (CST-6)."""
    child(_over_cap, _route(route_id)).inc()


def step_taken(asked: str, action: str) -> None:
    """Count an answer to what follows an attempt."""
    child(_steps, asked, action).inc()


def probed(route_id: str) -> None:
    """Count a snapshot that was asked for because a stale one stood in a decision (ADM-6)."""
    child(_probes, _route(route_id)).inc()


def hedge_ended(*, passed: bool) -> None:
    """Count a hedged request by whether its losers passed their gate (HDG-1)."""
    child(_hedges, "passed" if passed else "failed").inc()


def breaker_changed(route_id: str, state: str) -> None:
    """Count a change of a route's breaker."""
    child(_breaker_changes, _route(route_id), state).inc()


def telemetry_dropped() -> None:
    """Count a request that OpenTelemetry's collector is not told of."""
    _telemetry_dropped.inc()


def turned_away(reason: str) -> None:
    """Count an exchange that failed before it became a request of the ledger (ADM-1)."""
    _turned_away.labels(_reason(reason)).inc()


def unread(size_bytes: int) -> None:
    """Set how much waits for clients that are behind with reading."""
    _unread.set(size_bytes)


def responded(endpoint: str, status: int) -> None:
    """Count a response by the endpoint's name, which is one of a fixed table."""
    _responses_of(endpoint, status).add()


def observe_book(book: Book, policy: RoutePolicy | None = None) -> None:
    """Set the gauges of what is held, and those of every route from its last snapshot."""
    if policy is not None:
        engine_metrics.observe_engines(book, policy)
    _in_flight.set(book.in_flight())
    _held_kv_tokens.set(book.kv_held_tokens())
    _held_cost_units.set(book.pending_pico() / PICO_PER_UNIT)
    states = book.route_states()
    _per_route.of(*[state.route_id for state in states])
    for state in states:
        route = _route(state.route_id)
        _healthy.labels(route).set(int(state.healthy))
        if state.snapshot is not None:
            _free_kv_tokens.labels(route).set(state.snapshot.free_kv_tokens)
            _waiting.labels(route).set(state.snapshot.waiting_requests)
            _running.labels(route).set(state.snapshot.running_requests)
            _snapshot_time.labels(route).set(state.snapshot.observed_at_us / 1e6)


def exposition() -> bytes:
    """Returns all metrics in Prometheus' text format, to be served as CONTENT_TYPE."""
    return REGISTRY.exposition.text()
