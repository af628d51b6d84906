"""What telemetry is told of a request: frozen values taken on the event loop, told elsewhere.

Sizes, times, classes and ids; no text of prompt or answer is in any of them (SEC-1).
"""

import msgspec

from gateway.policy.retrying import AttemptKind
from gateway.policy.values import Route
from gateway.providers.outcomes import Completed, Outcome
from gateway.run import Run
from gateway.submission import Submission
from gateway.trace_context import TraceContext
from ledger.records import Receipt


class AttemptFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One call to a provider that is over. `started_us` None: the provider never had it."""

    attempt_id: str
    kind: AttemptKind
    route: Route
    outcome: Outcome
    started_us: int | None
    first_piece_us: int | None
    ended_us: int


class RequestFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One request that has its receipt. `settings`: what its caller asked of the sampling."""

    receipt: Receipt
    trace: TraceContext | None
    stream: bool
    session_id: str = ""
    settings: tuple[tuple[str, int | float], ...] = ()
    provider_kind: str | None = None  # of the route that answered, or was last
    finish_reason: str | None = None
    attempts: tuple[AttemptFacts, ...] = ()


def facts_of_run(run: Run, receipt: Receipt) -> RequestFacts:
    """Return the facts of an accepted request, all of whose attempts have ended."""
    answering = run.answering
    completed = answering.outcome if isinstance(answering.outcome, Completed) else None
    return RequestFacts(
        receipt=receipt,
        trace=run.submission.trace,
        stream=run.submission.stream,
        session_id=run.submission.session_id,
        settings=_settings(run.submission),
        provider_kind=answering.route.provider_kind,
        finish_reason=completed.finish_reason if completed else None,
        attempts=tuple(
            AttemptFacts(
                attempt_id=leg.attempt_id,
                kind=leg.kind,
                route=leg.route,
                outcome=leg.outcome,
                started_us=leg.started_us,
                first_piece_us=leg.first_piece_us,
                ended_us=leg.ended_us,
            )
            for leg in run.legs
            if leg.outcome is not None
        ),
    )


def facts_of_refusal(submission: Submission, receipt: Receipt) -> RequestFacts:
    """Return the facts of a request that was rejected: it has no attempt."""
    return RequestFacts(
        receipt=receipt,
        trace=submission.trace,
        stream=submission.stream,
        session_id=submission.session_id,
        settings=_settings(submission),
    )


def _settings(submission: Submission) -> tuple[tuple[str, int | float], ...]:
    asked = submission.parameters
    given: tuple[tuple[str, int | float | None], ...] = (
        ("temperature", asked.temperature),
        ("top_p", asked.top_p),
        ("frequency_penalty", asked.frequency_penalty),
        ("presence_penalty", asked.presence_penalty),
        ("seed", submission.seed),
    )
    return tuple((name, value) for name, value in given if value is not None)
