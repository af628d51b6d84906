"""A request and its attempts as OpenTelemetry spans, made when all is over from the times kept.

A request's span is a server's, each attempt's a client's below it. Ids are those that the caller
sent and that providers were told (`traceparent`), so that both sides' spans join ours.
"""

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.sdk.trace.sampling import Decision
from opentelemetry.trace import (
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    StatusCode,
    TraceFlags,
    TraceState,
    set_span_in_context,
)

from gateway.telemetry import conventions
from gateway.telemetry.facts import AttemptFacts, RequestFacts
from gateway.trace_context import SAMPLED, TraceContext, span_id

SCOPE = "weighbridge"


class GivenIds(IdGenerator):
    """Gives the next span the ids that are already known of it; one thread makes all spans."""

    def __init__(self) -> None:
        self.trace_id = self.span_id = 0

    def generate_trace_id(self) -> int:
        return self.trace_id

    def generate_span_id(self) -> int:
        return self.span_id


class Spans:
    """Tells spans to a collector, in batches, on threads of the library's."""

    def __init__(self, resource: Resource) -> None:
        self._ids = GivenIds()
        self._provider = TracerProvider(
            resource=resource, id_generator=self._ids, shutdown_on_exit=False
        )
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        self._tracer = self._provider.get_tracer(SCOPE)

    def sampled(self, trace_id: str) -> bool:
        """Return whether a trace that begins here is told (OTEL_TRACES_SAMPLER)."""
        result = self._provider.sampler.should_sample(None, int(trace_id, 16), SCOPE)
        return result.decision is Decision.RECORD_AND_SAMPLE

    def tell(self, facts: RequestFacts) -> None:
        """Make a request's spans; none of a trace that isn't sampled."""
        trace, receipt = facts.trace, facts.receipt
        if trace is None or trace.flags != SAMPLED:
            return
        self._ids.trace_id = int(trace.trace_id, 16)
        self._ids.span_id = int(span_id(trace.trace_id, receipt.request_id), 16)
        span = self._tracer.start_span(
            conventions.span_name(receipt),
            context=_parent(trace),
            kind=SpanKind.SERVER,
            attributes=conventions.request_attributes(facts),
            start_time=receipt.accepted_at_us * 1_000,
        )
        within = set_span_in_context(span, Context())
        for attempt in facts.attempts:
            self._tell_attempt(within, trace, facts, attempt)
        if conventions.is_fault(receipt):
            span.set_status(StatusCode.ERROR)
        span.end(end_time=receipt.ended_at_us * 1_000)

    def close(self) -> None:
        self._provider.shutdown()

    def _tell_attempt(
        self, within: Context, trace: TraceContext, facts: RequestFacts, attempt: AttemptFacts
    ) -> None:
        self._ids.span_id = int(span_id(trace.trace_id, attempt.attempt_id), 16)
        started_us = attempt.ended_us if attempt.started_us is None else attempt.started_us
        span = self._tracer.start_span(
            conventions.span_name(facts.receipt),
            context=within,
            kind=SpanKind.CLIENT,
            attributes=conventions.attempt_attributes(facts, attempt),
            start_time=started_us * 1_000,
        )
        if attempt.outcome.status in ("failed", "unknown"):
            span.set_status(StatusCode.ERROR)
        span.end(end_time=attempt.ended_us * 1_000)


def _parent(trace: TraceContext) -> Context:
    """Return the caller's span as a context; an empty one where the trace begins here."""
    if trace.parent_id is None:
        return Context()
    caller = SpanContext(
        trace_id=int(trace.trace_id, 16),
        span_id=int(trace.parent_id, 16),
        is_remote=True,
        trace_flags=TraceFlags(int(trace.flags, 16)),
        trace_state=TraceState.from_header([trace.tracestate]) if trace.tracestate else None,
    )
    return set_span_in_context(NonRecordingSpan(caller), Context())
