"""An accepted request on its way, and each of its attempts: the state that the journey drives."""

import asyncio

import msgspec

from gateway.book import Hold
from gateway.desk import Weighed
from gateway.patience import Patience
from gateway.piece_log import PieceLog
from gateway.policy.retrying import AttemptKind, AttemptSeen, AttemptState
from gateway.policy.values import Route
from gateway.providers.base import Attempted
from gateway.providers.outcomes import Cancelled, Completed, Outcome, Rejected, Unknown, error_code
from gateway.settling import Counted, Tried
from gateway.submission import Delta, Submission

HEDGE_LOST = "HEDGE_LOST"
"""Why a loser was cancelled."""


class Leg(msgspec.Struct, kw_only=True, eq=False):
    """One attempt of a request: what it holds, what it got, how it ended."""

    request_id: str
    ordinal: int
    kind: AttemptKind
    route: Route
    hold: Hold
    reserved_pico: int
    input_tokens: int
    tokenizer_revision: str | None
    reasons: tuple[str, ...] = ()
    snapshot_revision: int | None = None
    degraded_from: str | None = None
    without: tuple[str, ...] = ()
    wait_us: int = 0
    attempted: Attempted | None = None
    started_us: int | None = None  # when it was handed to its provider
    first_piece_us: int | None = None
    tokens: int = 0
    kept: list[Delta] = []  # a new one for each; not given to the caller yet
    cancel_reason: str | None = None
    cancelled: asyncio.Event | None = None  # while it waits to be sent
    patience: Patience | None = None  # while its provider has it
    outcome: Outcome | None = None
    ended_us: int = 0
    counted: Counted | None = None  # once it has ended: priced, as it goes on paper
    filed: bool = False  # its end is in the ledger
    released: bool = False  # the book has given back what it held, or keeps it as an unknown's

    def __repr__(self) -> str:
        return f"Leg(attempt_id={self.attempt_id!r})"  # no text of an answer (SEC-1)

    @property
    def attempt_id(self) -> str:
        return f"{self.request_id}.{self.ordinal}"

    @property
    def state(self) -> AttemptState:
        outcome = self.outcome
        if outcome is None:
            return "running"
        if isinstance(outcome, Completed):
            return "completed"
        if isinstance(outcome, Rejected):
            return "not_run"
        if isinstance(outcome, Cancelled):
            return "cancelled"
        return "unknown" if isinstance(outcome, Unknown) else "failed"

    @property
    def cost_pico(self) -> int:
        return 0 if self.counted is None else self.counted.cost.total_pico

    @property
    def open_pico(self) -> int:
        """What the attempt has cost; while its end isn't known, what is held for it."""
        known = self.outcome is not None and not isinstance(self.outcome, Unknown)
        return self.cost_pico if known else self.reserved_pico

    def seen(self, *, delivered: bool) -> AttemptSeen:
        """Return the attempt as a decision about what follows sees it."""
        rejected = self.outcome if isinstance(self.outcome, Rejected) else None
        return AttemptSeen(
            ordinal=self.ordinal,
            kind=self.kind,
            route_id=self.route.route_id,
            state=self.state,
            reason=None if self.outcome is None else error_code(self.outcome),
            retry_after_ms=rejected.retry_after_ms if rejected else None,
            refused_parameters=rejected.refused_parameters if rejected else (),
            without=self.without,
            degraded_from=self.degraded_from,
            delivered=delivered,
        )

    def priced(self) -> Counted:
        """Return the ended attempt as it goes on paper."""
        if self.counted is None:
            raise ValueError(f"{self.attempt_id} has not ended")
        return self.counted

    def tried(self) -> Tried:
        """Return the ended attempt before it is priced."""
        if self.outcome is None:
            raise ValueError(f"{self.attempt_id} has not ended")
        return Tried(
            ordinal=self.ordinal,
            route=self.route,
            reservation_id=self.hold.reservation_id,
            reserved_pico=self.reserved_pico,
            input_tokens=self.input_tokens,
            tokenizer_revision=self.tokenizer_revision,
            outcome=self.outcome,
            ended_at_us=self.ended_us,
            reasons=self.reasons,
            snapshot_revision=self.snapshot_revision,
            degraded_from=self.degraded_from,
        )


class Run(msgspec.Struct, kw_only=True, eq=False):
    """An accepted request. The API reads it; only the journey and its driver change it."""

    request_id: str
    created_us: int
    logical_model: str
    submission: Submission
    weighed: Weighed
    legs: list[Leg]
    direct: bool  # pieces go to the caller as they come; else those of a valid answer, at its end
    pieces: PieceLog = msgspec.field(default_factory=PieceLog)
    winner: Leg | None = None
    driving: "asyncio.Task[None] | None" = None
    hedging: "asyncio.Task[None] | None" = None  # the second attempt's
    first_byte_us: int | None = None
    cancel_reason: str | None = None
    questions: int = 0  # asked about what follows
    asked_chars: int | None = None  # of the prompt; counted where the run is kept
    ended: asyncio.Event = msgspec.field(default_factory=asyncio.Event)

    def __repr__(self) -> str:
        return f"Run(request_id={self.request_id!r})"  # no text of a request (SEC-1)

    @property
    def answering(self) -> Leg:
        """The attempt whose answer, or whose end, is the request's."""
        if self.winner is not None:
            return self.winner
        for leg in self.legs:
            if isinstance(leg.outcome, Unknown):
                return leg  # it may have run: that outweighs whatever is known of the others
        ended = [leg for leg in self.legs if leg.outcome is not None]
        return max(ended, key=_ended_us) if ended else self.legs[-1]

    @property
    def route_id(self) -> str:
        return self.answering.route.route_id

    @property
    def identity_id(self) -> str:
        return self.answering.route.identity_id

    @property
    def handed_over_us(self) -> int | None:
        return self.legs[0].started_us

    @property
    def simulated(self) -> bool:
        return self.answering.route.provider_kind == "simulator"

    @property
    def fingerprint(self) -> str:
        return ("sim-" if self.simulated else "") + self.identity_id

    @property
    def degraded_from(self) -> str | None:
        return self.answering.degraded_from

    def running(self) -> list[Leg]:
        return [leg for leg in self.legs if leg.outcome is None]

    def kept_output(self) -> tuple[bool, int]:
        """Return whether the answer is over, and how many characters memory holds for it.

        The prompt's and its schema's are among them: they stay as long as the run does.
        """
        if self.asked_chars is None:
            self.asked_chars = _asked_chars(self.submission)
        return self.pieces.ended, self.asked_chars + self.pieces.size_chars


def _asked_chars(submission: Submission) -> int:
    texts = [message.content for message in submission.messages]
    texts += [message.tool_calls_json or "" for message in submission.messages]
    asked = submission.parameters  # a schema is there as text, and beside it as an object
    texts += [submission.tools_json or "", asked.tool_choice_json or "", *asked.stop]
    texts.append(asked.logit_bias_json or "")
    return sum(map(len, texts)) + 2 * len(asked.response_format_json or "")


def _ended_us(leg: Leg) -> tuple[int, int]:
    return leg.ended_us, leg.ordinal


def primary_leg(weighed: Weighed) -> Leg:
    """Return the first attempt of an accepted request, as its admission made it."""
    decision = weighed.decision
    if weighed.hold is None or weighed.route is None:
        raise ValueError(f"{weighed.request.request_id} was not accepted: it has no attempt")
    return Leg(
        request_id=weighed.request.request_id,
        ordinal=0,
        kind="fallback" if decision.degraded_from else "primary",
        route=weighed.route,
        hold=weighed.hold,
        reserved_pico=decision.cost_pico or 0,
        input_tokens=decision.input_tokens,
        tokenizer_revision=decision.tokenizer_revision,
        reasons=decision.reasons,
        snapshot_revision=weighed.snapshot_revision,
        degraded_from=decision.degraded_from,
    )
