"""A running server that the environment told of a collector: what the collector gets of it."""

import json

from tests.otlp_collector import collecting, plain
from tests.server_fixtures import Fleet

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SECRET = "the lorry in bay four carries gold"


def test_a_servers_requests_reach_the_collector_by_its_stop(fleet: Fleet, monkeypatch):
    """SEC-1: with the trace that the caller carried, in the conventions' buckets, no content."""
    with collecting() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.base_url)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")
        monkeypatch.setenv("OTEL_SERVICE_NAME", "scales")
        with fleet.serving() as server:
            key = fleet.keys["support-desk"]
            traced = {"traceparent": f"00-{TRACE}-{PARENT}-01"}
            status, _, body = server.chat(SECRET, key=key, headers=traced, max_tokens=4)
            assert status == 200
            receipt = json.loads(body)["receipt"]
            assert server.chat(SECRET, key=key, stream=True, max_tokens=4)[0] == 200
            refused = server.chat(SECRET, key=key, headers={"x-deadline-ms": "1"}, max_tokens=4)
            assert refused[0] == 422
        spans = collector.spans()
        (server_span,) = [span for span in spans if span.parent_span_id.hex() == PARENT]
        told = plain(server_span.attributes)
        assert told["weighbridge.request.id"] == receipt["request_id"]
        assert told["gen_ai.usage.output_tokens"] == receipt["output_tokens"]
        assert told["weighbridge.cost.pico_units"] == receipt["cost"]["total_pico"]
        (attempt,) = [span for span in spans if span.parent_span_id == server_span.span_id]
        assert attempt.trace_id.hex() == TRACE
        assert len({span.trace_id for span in spans}) == 3
        assert collector.services() == {"scales"}
        points = collector.histogram("gen_ai.server.time_to_first_token")
        assert sum(point.count for point in points) == 2  # the refused one has none
        waited_us = round(receipt["first_token_ms"] * 1e3)
        assert any(
            round(point.min * 1e6) <= waited_us <= round(point.max * 1e6) for point in points
        )
        usage = collector.histogram("gen_ai.client.token.usage")
        assert (
            sum(p.sum for p in usage if plain(p.attributes)["gen_ai.token.type"] == "output") == 8
        )
        everything = b"".join(body for _, body in collector.raw)
        assert SECRET.encode() not in everything and b"lorry" not in everything
