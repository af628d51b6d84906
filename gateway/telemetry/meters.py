"""OpenTelemetry's metrics of generative AI, told at intervals (OTEL_METRIC_EXPORT_INTERVAL)."""

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource

from gateway.metric_registry import BoundedLabel
from gateway.providers.outcomes import ran
from gateway.telemetry import conventions
from gateway.telemetry.conventions import CALL, DURATION, FIRST_TOKEN, PER_TOKEN, USAGE
from gateway.telemetry.facts import RequestFacts
from gateway.telemetry.spans import SCOPE

_BOUNDED = ("error.type", "gen_ai.response.model", "server.address")


class Meters:
    """Counts requests and their attempts; identities and codes stay bounded, as in /metrics."""

    def __init__(self, resource: Resource) -> None:
        self._provider = MeterProvider(
            metric_readers=[PeriodicExportingMetricReader(OTLPMetricExporter())],
            resource=resource,
            shutdown_on_exit=False,
        )
        meter = self._provider.get_meter(SCOPE)
        self._histograms = {
            name: meter.create_histogram(
                name, unit=unit, explicit_bucket_boundaries_advisory=conventions.BUCKETS[name]
            )
            for name, unit in conventions.UNITS.items()
        }
        self._labels = {name: BoundedLabel() for name in _BOUNDED}

    def tell(self, facts: RequestFacts) -> None:
        receipt = facts.receipt
        under = conventions.common_attributes(facts, facts.provider_kind)
        if receipt.identity_id is not None:
            under["gen_ai.response.model"] = receipt.identity_id
        error = conventions.request_error(receipt)
        ended = under if error is None else {**under, "error.type": error}
        self._record(DURATION, receipt.e2e_us / 1e6, ended)
        if receipt.status == "completed" and receipt.first_token_us is not None:
            self._record(FIRST_TOKEN, receipt.first_token_us / 1e6, under)
            if receipt.output_tokens > 1:
                rest_us = receipt.e2e_us - receipt.first_token_us
                self._record(PER_TOKEN, rest_us / (receipt.output_tokens - 1) / 1e6, under)
        for attempt in facts.attempts:
            outcome, call = attempt.outcome, conventions.call_attributes(facts, attempt)
            if attempt.started_us is not None:
                self._record(CALL, (attempt.ended_us - attempt.started_us) / 1e6, call)
            if ran(outcome):
                call.pop("error.type", None)
                used = outcome.usage
                self._record(USAGE, used.input_tokens, {**call, "gen_ai.token.type": "input"})
                self._record(USAGE, used.output_tokens, {**call, "gen_ai.token.type": "output"})

    def close(self) -> None:
        self._provider.shutdown()

    def _record(self, name: str, value: float, under: conventions.Attributes) -> None:
        bounded = {
            key: self._labels[key](str(text)) if key in self._labels else text
            for key, text in under.items()
        }
        self._histograms[name].record(value, bounded)
