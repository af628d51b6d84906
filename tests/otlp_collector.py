"""A small collector of OpenTelemetry's protocol over HTTP: it keeps what it is told."""

import contextlib
import gzip
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


@dataclass(kw_only=True)
class Collector:
    """`base_url` is what OTEL_EXPORTER_OTLP_ENDPOINT takes; `raw` is every body, unpacked."""

    base_url: str
    raw: list[tuple[str, bytes]] = field(default_factory=list)

    def spans(self) -> list[Any]:
        return [
            span
            for body in self._bodies("/v1/traces", ExportTraceServiceRequest)
            for resource in body.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    def services(self) -> set[str]:
        """The services that told their spans."""
        return {
            str(plain(resource.resource.attributes)["service.name"])
            for body in self._bodies("/v1/traces", ExportTraceServiceRequest)
            for resource in body.resource_spans
        }

    def histogram(self, name: str) -> list[Any]:
        """The points of a histogram in the last telling that has it."""
        points: list[Any] = []
        for body in self._bodies("/v1/metrics", ExportMetricsServiceRequest):
            told = [
                point
                for resource in body.resource_metrics
                for scope in resource.scope_metrics
                for metric in scope.metrics
                if metric.name == name
                for point in metric.histogram.data_points
            ]
            points = told or points
        return points

    def _bodies(self, path: str, kind: Any) -> list[Any]:
        return [kind.FromString(body) for told, body in self.raw if told == path]


def plain(attributes: Any) -> dict[str, Any]:
    """Attributes of the protocol as a dictionary."""
    found = {}
    for each in attributes:
        which = each.value.WhichOneof("value")
        value = getattr(each.value, which)
        if which == "array_value":
            value = [item.string_value for item in value.values]
        found[each.key] = value
    return found


@contextlib.contextmanager
def collecting() -> Iterator[Collector]:
    """A collector on a free port for as long as the context lasts."""
    collector = Collector(base_url="")

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.headers.get("content-encoding") == "gzip":
                body = gzip.decompress(body)
            collector.raw.append((self.path, body))
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *told: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    collector.base_url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield collector
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
