"""Metrics: what is counted, and that no label can grow without end (SEC-1)."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, generate_latest

from gateway import metrics
from gateway.book import Book
from gateway.exposition import Exposition
from gateway.metrics import BoundedLabel
from gateway.policy.values import PRIORITIES
from tests.factories import receipt
from tests.policy_factories import model, policy, snapshot


def value(name, **labels):
    return metrics.REGISTRY.get_sample_value(name, labels) or 0.0


def test_a_label_keeps_its_first_values_and_calls_the_rest_other():
    label = BoundedLabel(limit=2)
    assert [label(v) for v in ("a", "b", "c", "a", "", None)] == [
        "a",
        "b",
        "other",
        "a",
        "none",
        "none",
    ]


def test_a_completed_request_is_counted_and_timed_once():
    where = {"route": "route-metrics", "priority": "interactive"}
    metrics.request_ended(receipt(route_id="route-metrics"))
    assert (
        value(
            "weighbridge_requests_total",
            status="completed",
            reason="none",
            degraded="false",
            **where,
        )
        == 1
    )
    assert value("weighbridge_ttft_seconds_sum", **where) == 0.38
    assert value("weighbridge_e2e_seconds_count", **where) == 1
    assert value("weighbridge_queue_seconds_bucket", le="0.025", **where) == 1
    assert value("weighbridge_tokens_total", route="route-metrics", kind="output") == 200
    cost_pico = receipt().cost_total_pico
    assert cost_pico > 0
    assert value("weighbridge_cost_pico_total", route="route-metrics") == cost_pico


def test_a_degraded_success_and_a_request_without_a_token_are_told_apart():
    where = {"route": "route-metrics-2", "priority": "batch"}
    metrics.request_ended(
        receipt(route_id="route-metrics-2", priority="batch", degraded_from="route-a")
    )
    metrics.request_ended(
        receipt(
            route_id="route-metrics-2",
            priority="batch",
            status="failed",
            terminal_error_code="BACKEND_DIED",
            first_token_us=None,
        )
    )
    assert (
        value(
            "weighbridge_requests_total",
            status="completed",
            reason="none",
            degraded="true",
            **where,
        )
        == 1
    )
    assert value("weighbridge_ttft_seconds_count", **where) == 1
    assert value("weighbridge_e2e_seconds_count", **where) == 1


def test_tenants_and_keys_are_no_labels():
    metrics.request_ended(receipt(tenant_id="canary-tenant", key_id="canary-key"))
    assert b"canary" not in metrics.exposition()


def test_engines_are_told_under_the_names_that_dashboards_of_vllm_read():
    before = value("vllm:prompt_tokens_total", model_name="assist", engine="route-vllm")
    metrics.request_ended(receipt(route_id="route-vllm", logical_model="assist"))
    where = {"model_name": "assist", "engine": "route-vllm"}
    assert value("vllm:prompt_tokens_total", **where) - before == 1_000
    assert value("vllm:time_to_first_token_seconds_count", **where) == 1
    assert value("vllm:request_success_total", **where) == 1


def test_gauges_of_engines_are_those_of_the_last_snapshot():
    book = Book()
    book.open_routes(["route-kv"])
    book.observe(snapshot("route-kv", waiting_requests=3, reserved_kv_tokens=25, free_kv_tokens=75))
    metrics.observe_book(book, policy(models=(model("route-kv"),)))
    where = {"model_name": model().name, "engine": "route-kv"}
    assert value("vllm:num_requests_waiting", **where) == 3
    assert value("vllm:kv_cache_usage_perc", **where) == 0.25


def test_a_thousand_tenants_are_scraped_in_less_than_a_megabyte_and_fifty_milliseconds():
    """Over eight routes, three priorities and two ends; CPU time, the best of three."""
    for number in range(1_000):
        metrics.request_ended(
            receipt(
                tenant_id=f"tenant-{number}", key_id=f"key-{number}",
                route_id=f"route-{number % 8}", priority=PRIORITIES[number % 3],
                status=("completed", "failed")[number % 2],
            )
        )  # fmt: skip
    spent = []
    for _ in range(3):
        begun = time.thread_time()
        text = metrics.exposition()
        spent.append(time.thread_time() - begun)
    assert len(text) < 1_000_000
    assert min(spent) < 0.05


def test_what_is_scraped_is_the_librarys_own_text_to_the_byte():
    metrics.request_ended(receipt(route_id='a "quoted" \\ route'))
    assert metrics.exposition() == generate_latest(metrics.REGISTRY)


@given(st.lists(st.tuples(st.text(max_size=8), st.floats(0, 1e12)), max_size=6))
def test_any_label_and_value_is_written_as_the_library_writes_it(observed):
    registry, exposition = CollectorRegistry(), Exposition()
    counter = Counter("c", 'says "so"\n\\', ["z", "a"], registry=registry)
    gauge = Gauge("g", "g", registry=registry)
    histogram = Histogram("h", "h", ["b"], buckets=(0.5, 1.0, 1e7), registry=registry)
    for metric in (counter, gauge, histogram):
        exposition.add(metric)
    for label, value in observed:
        counter.labels(label, "x").inc(value)
        histogram.labels(label).observe(value)
        gauge.set(value)
    expected = [line for line in generate_latest(registry).splitlines() if b"_created" not in line]
    assert exposition.text().splitlines() == expected


def test_a_kind_of_metric_that_has_no_writer_is_refused_when_it_is_made():
    with pytest.raises(TypeError):
        Exposition().add(Info("i", "i", registry=None))


def test_a_route_that_is_gone_has_no_gauges():
    book = Book()
    book.open_routes(["route-gone", "route-kept"])
    for route_id in ("route-gone", "route-kept"):
        book.observe(snapshot(route_id))
    metrics.observe_book(book, policy(models=(model("route-gone"),)))
    assert b'route_healthy{route="route-gone"}' in metrics.exposition()
    book.open_routes(["route-kept"])
    metrics.observe_book(book, policy(models=(model("route-kept"),)))
    gauges = [line for line in metrics.exposition().splitlines() if b"route-gone" in line]
    assert gauges == []
    assert b'route_healthy{route="route-kept"}' in metrics.exposition()
