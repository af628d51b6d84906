"""Metrics: what is counted, and that no label can grow without end (SEC-1)."""

from gateway import metrics
from gateway.metrics import BoundedLabel
from tests.factories import receipt


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
