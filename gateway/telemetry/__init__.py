"""Traces and metrics for OpenTelemetry's collectors, by its conventions for generative AI.

Off unless the environment names a collector (`docs/operate.md`); then nothing of OpenTelemetry is
imported, and a request costs a comparison with None. On, a request's facts go to a thread once its
receipt is durable. What a prompt or an answer says is never among them (SEC-1).
"""

from typing import TYPE_CHECKING

from gateway.telemetry.facts import facts_of_refusal, facts_of_run

if TYPE_CHECKING:
    from gateway.run import Run
    from gateway.submission import Submission
    from gateway.telemetry.exporting import Exporter
    from ledger.records import Receipt

CLOSE_SECONDS = 5.0

_exporter: "Exporter | None" = None


def start(signals: frozenset[str]) -> None:
    """Begin to tell `traces`, `metrics`, both or none."""
    global _exporter
    if signals:
        from gateway.telemetry.exporting import Exporter

        _exporter = Exporter(traces="traces" in signals, measures="metrics" in signals)


def stop() -> None:
    """Tell what waits, for CLOSE_SECONDS at most. It blocks: call it off the event loop."""
    global _exporter
    exporter, _exporter = _exporter, None
    if exporter is not None:
        exporter.close(CLOSE_SECONDS)


def sampled(trace_id: str) -> bool:
    """Return whether a trace that begins here is marked as sampled, for providers to follow.

    Where no traces are told it is: a provider that tells its own decides for itself.
    """
    return _exporter is None or _exporter.sampled(trace_id)


def request_ended(run: "Run", receipt: "Receipt") -> None:
    """Tell of an accepted request whose receipt is durable."""
    if _exporter is not None:
        _exporter.tell(facts_of_run(run, receipt))


def request_refused(submission: "Submission", receipt: "Receipt") -> None:
    """Tell of a rejected request whose receipt is durable."""
    if _exporter is not None:
        _exporter.tell(facts_of_refusal(submission, receipt))
