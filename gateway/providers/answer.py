"""What an attempt has got so far, and the outcome that this makes of any way to end. Pure."""

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from gateway.providers.base import Call
from gateway.providers.http_status import Verdict
from gateway.providers.outcomes import (
    Cancelled,
    Completed,
    Failed,
    Outcome,
    Rejected,
    Timings,
    Unknown,
    UsageSource,
    inter_token_latency_us,
)
from gateway.providers.said import (
    FINISH_UNKNOWN,
    FINISHED,
    NO_INDEX,
    NOT_FINISHED,
    TOOL_CALLS_LIMIT,
    Chunk,
    Done,
    Reported,
    Said,
    StreamError,
    Texts,
    usage_of,
)
from gateway.schemas import matches_schema
from gateway.submission import Delta, ToolCallPiece
from ledger.rates import Usage

STREAM_ERROR = "PROVIDER_STREAM_ERROR"
GARBAGE = "PROVIDER_SENT_GARBAGE"
NO_FINISH = "PROVIDER_STREAM_WITHOUT_FINISH"
CONNECTION_LOST = "PROVIDER_CONNECTION_LOST"
NOT_ACKNOWLEDGED = "CANCEL_NOT_ACKNOWLEDGED"
MODEL_CHANGED = "PROVIDER_MODEL_CHANGED"
TOO_LARGE = "PROVIDER_ANSWER_TOO_LARGE"
PARAMETER_REFUSED = "PROVIDER_PARAMETER_REFUSED"
ITL_LIMIT = 65_536  # gaps that are kept
PIECES_PER_TOKEN = 4
"""More no server sends that keeps to the cap: a token is about four bytes, a piece at least one."""
OVER_CAP_FINISH = "length"  # what it should have said at the cap
PIECES_OVER_CAP = 64  # that may come besides, where the cap is small
ANSWER_LIMIT_CHARS = 8 << 20  # of an answer's text and calls, and of its log probabilities
LOGPROBS_LIMIT_CHARS = 8 << 10  # that a token's may add to it, where they are asked for
NOTHING = Usage(input_tokens=0, output_tokens=0)


CountText = Callable[[str], int | None]
"""Returns the tokens of an answer's text under its route's tokenizer; None: it can't count them."""


class Answer:
    """Adds up an attempt's stream. Times are integer µs of the gateway's clock.

    `count_text` counts the output of a server that doesn't, where its chunks are no tokens.
    `version` is the model's version that must have answered (PRV-4); None: any.
    """

    def __init__(
        self, call: Call, *, count_text: CountText | None = None, version: str | None = None
    ) -> None:
        self._call = call
        self._count_text = count_text
        self._version = version
        # Kept only where a schema is to be checked or the text to be counted.
        self._keeps_text = call.schema is not None or count_text is not None
        self._texts: list[str] = []
        self._called: dict[int, str | None] = {}  # ids of the tool calls that were begun, by index
        self.begun = 0  # how many tokens came, by the chunks that they came in
        self._shown = False
        self._running: Reported | None = None  # a total so far, from a chunk in the middle
        self._total: Reported | None = None
        self._failure: tuple[str, bool] | None = None  # reason, temporary
        self._finish: str | None = None
        self._doubted: str | None = None  # a finish reason that more text came after
        self._provider_id: str | None = None
        self._first_us = self._last_us = 0
        self._itl_us: list[int] = []
        self._most = call.max_output_tokens * PIECES_PER_TOKEN + PIECES_OVER_CAP
        self._chars_left = ANSWER_LIMIT_CHARS
        if call.parameters.logprobs:
            self._chars_left += call.max_output_tokens * LOGPROBS_LIMIT_CHARS
        self.done = False
        self.over = False  # nothing that may still come can matter
        self.unwanted = False  # and the backend is to be hung up on

    @property
    def finished(self) -> bool:
        """Whether a finish reason came: the backend generates no more."""
        return self._finish is not None

    def name(self, provider_id: str | None) -> None:
        """Take the provider's request id; the first one that is known stays."""
        self._provider_id = self._provider_id or provider_id

    def take(self, said: Said, now_us: int) -> Delta | None:
        """Add one event; return the piece of the answer that it brought."""
        if not isinstance(said, Chunk):
            self._take_other(said)
            return None
        if self._version is not None and said.version not in (None, self._version):
            self.fail(MODEL_CHANGED, temporary=False)
            return None
        if self._provider_id is None:
            self._provider_id = said.provider_id
        if self._finish is not None and (said.deltas or said.text or said.tool_calls):
            self._resumed()
        self._finish = self._finish or said.finish_reason
        if said.reported is not None:
            # In its own chunk, in the finish chunk or after it, it is the total.
            if self._finish is not None or said.choices == 0:
                self._total = said.reported
            else:
                self._running = said.reported
        text, deltas = said.text, said.deltas
        if deltas:
            self._count(deltas, now_us)
        if not text and not said.tool_calls:
            return None
        self._shown = True
        if self._keeps_text:
            self._texts.append(text)
        if said.tool_calls or said.logprobs_json is not None:
            piece = Delta(
                text=text,
                tokens=deltas,
                tool_calls=self._calls(said.tool_calls),
                logprobs_json=said.logprobs_json,
            )
            left = self._chars_left - piece.size_chars
        else:
            piece = Delta(text=text, tokens=deltas)
            left = self._chars_left - len(text)
        self._chars_left = left
        if left < 0 or len(self._called) > TOOL_CALLS_LIMIT:
            self.fail(TOO_LARGE, temporary=False)
        return piece

    def _take_other(self, said: Said) -> None:
        if isinstance(said, Done):
            self.done = self.over = True
        elif isinstance(said, StreamError):
            self.fail(STREAM_ERROR, temporary=said.temporary)
        else:
            self.fail(GARBAGE)

    def take_texts(self, said: Texts, now_us: int) -> Delta:
        """Add texts that came together; return them as one piece of the answer."""
        self.name(said.like.provider_id)
        if self._finish is not None:
            self._resumed()
        self._count(1, now_us)
        more = said.count - 1
        if more:  # no time is between them
            self._itl_us += [0] * min(more, ITL_LIMIT - len(self._itl_us))
            self.begun += more
            if self.begun > self._most:
                self._past_cap()
        self._shown = True
        if self._keeps_text:
            self._texts.append(said.text)
        self._chars_left -= len(said.text)
        if self._chars_left < 0:
            self.fail(TOO_LARGE, temporary=False)
        encoded = said.encoded if said.count > 1 else ()
        return Delta(text=said.text, tokens=said.count, encoded=encoded)

    def _calls(self, pieces: Sequence[ToolCallPiece]) -> tuple[ToolCallPiece, ...]:
        """Return the pieces that came together, each with its call's index."""
        return tuple(
            self._identified(
                replace(piece, index=self._index_of(piece, place))
                if piece.index == NO_INDEX
                else piece
            )
            for place, piece in enumerate(pieces)
        )

    def _index_of(self, piece: ToolCallPiece, place: int) -> int:
        """Return the index of a piece without one: of a call that it begins, else of the last one.

        Another id begins a call, a name without an id, and what stands behind another call.
        """
        if not self._called:
            return 0
        last, call_id = next(reversed(self._called.items()))
        named = piece.name is not None if piece.call_id is None else piece.call_id != call_id
        return max(self._called) + 1 if named or place else last

    def _identified(self, piece: ToolCallPiece) -> ToolCallPiece:
        """Return a piece of a tool call whose first piece has an id, whoever had to give it."""
        if piece.index in self._called:
            return piece
        self._called[piece.index] = piece.call_id
        made = "".join(filter(str.isalnum, self._call.attempt_id))
        return replace(piece, call_id=piece.call_id or f"call_{made}_{piece.index}")

    def fail(self, reason: str, *, temporary: bool = True) -> None:
        """Take that it failed. What comes after a finish reason can't unmake the answer."""
        if not self.finished:
            self._failure = self._failure or (reason, temporary)
        self.unwanted = self.over = True

    def ended(self, *, cleanly: bool) -> Outcome:
        """Return the outcome of a stream that has ended: as HTTP says it should, or torn.

        A failure after the first text is never retryable: it was delivered (DLV-5).
        """
        usage, source = self._usage()
        if self._finish is None and (cleanly or self.done):
            self._finish = self._doubted  # no other one came
        finish_reason = FINISHED.get(self._finish or "")
        if self._failure is None and finish_reason is not None:
            return Completed(
                usage=usage,
                usage_source=source,
                usage_convention=self._convention(),
                service_tier=self._tier(),
                provider_request_id=self._provider_id,
                timings=self._timings(),
                finish_reason=finish_reason,
                schema_valid=self._schema_valid(),
            )
        if self._failure is not None:
            reason, temporary = self._failure
        elif self._finish is not None:
            reason, temporary = NOT_FINISHED.get(self._finish, FINISH_UNKNOWN), False
        elif cleanly or self.done:  # [DONE] is an end, however the connection closes
            reason, temporary = NO_FINISH, True
        else:
            return self.unknown(CONNECTION_LOST)
        return Failed(
            usage=usage,
            usage_source=source,
            usage_convention=self._convention(),
            service_tier=self._tier(),
            provider_request_id=self._provider_id,
            timings=self._timings(),
            reason=reason,
            retryable=temporary and not self._shown,
        )

    def unknown(self, reason: str) -> Unknown:
        """Return the outcome of an attempt that was lost sight of, with what is known of it."""
        usage, source = self._usage()
        return Unknown(
            usage=usage,
            usage_source=source,
            usage_convention=self._convention(),
            service_tier=self._tier(),
            provider_request_id=self._provider_id,
            timings=self._timings(),
            reason=reason,
        )

    def cancelled(self, reason: str, *, stops: bool, sent: bool, took_us: int) -> Outcome:
        """Return the outcome of a cancel whose connection is closed.

        `stops`: the backend is declared to stop when its connection closes, so the close is its
        acknowledgement, `took_us` after the cancel. `sent`: the backend may have the request; one
        that it can't have is cancelled for certain and has used nothing. One that had finished
        before the cancel is what it was.
        """
        if self.finished:
            return self.ended(cleanly=True)
        if sent and not stops:
            return self.unknown(NOT_ACKNOWLEDGED)
        usage, source = self._usage() if sent else (NOTHING, "counted")
        return Cancelled(
            usage=usage,
            usage_source=source,
            usage_convention=self._convention(),
            service_tier=self._tier(),
            provider_request_id=self._provider_id,
            timings=replace(self._timings(), cancel_ack_us=took_us),
            reason=reason,
            sent=sent,
        )

    def judged(self, verdict: Verdict, refused: tuple[str, ...] = ()) -> Outcome:
        """Return the outcome of an answer whose HTTP status is no success.

        A failed one counts its input, marked as an estimate: the backend may have read it all.
        `refused`: the optional parameters that a rejection names (RTY-2).
        """
        if verdict.ended == "rejected":
            return Rejected(
                usage=NOTHING,
                usage_source="counted",
                provider_request_id=self._provider_id,
                reason=PARAMETER_REFUSED if refused else verdict.reason,
                retry_after_ms=verdict.retry_after_ms,
                refused_parameters=refused,
            )
        if verdict.ended == "unknown":
            return self.unknown(verdict.reason)
        self.fail(verdict.reason)
        return self.ended(cleanly=True)

    def _count(self, deltas: int, now_us: int) -> None:
        if now_us < self._last_us:
            now_us = self._last_us  # a clock that is set back makes no time negative
        begun = self.begun
        if begun == 0:
            self._first_us = now_us
        elif len(self._itl_us) < ITL_LIMIT:
            self._itl_us.append(now_us - self._last_us)
        self._last_us = now_us
        self.begun = begun = begun + deltas
        if begun > self._most:
            self._past_cap()

    def _resumed(self) -> None:
        """Take that more came after a finish reason, as of servers that send one with each chunk.

        So it was none yet, and the counts that came with it were not the total.
        """
        self._doubted, self._finish = self._finish, None
        if self._total is not None:
            self._running, self._total = self._total, None

    def _past_cap(self) -> None:
        """End an answer that doesn't keep to its cap: it may never end by itself."""
        self._finish = self._finish or OVER_CAP_FINISH
        self.unwanted = self.over = True

    def _usage(self) -> tuple[Usage, UsageSource]:
        counted = {"input_tokens": self._call.input_tokens, "deltas": self.begun}
        if self._total is None and self._running is None and self._count_text is not None:
            return self._counted(self._count_text)
        if self._total is not None or self._running is None:
            return usage_of(self._total, **counted)
        usage, _ = usage_of(self._running, **counted)
        # What came after the last running total is not in it.
        most = max(usage.output_tokens, self.begun)
        return replace(usage, output_tokens=most), "estimated"

    def _convention(self) -> str | None:
        told = self._total or self._running
        return told.convention if told is not None else None

    def _tier(self) -> str:
        told = self._total or self._running
        return told.service_tier if told is not None else ""

    def _counted(self, count_text: CountText) -> tuple[Usage, UsageSource]:
        tokens = count_text("".join(self._texts))
        usage = Usage(
            input_tokens=self._call.input_tokens,
            output_tokens=self.begun if tokens is None else tokens,
        )
        return usage, "estimated" if tokens is None else "counted"

    def _timings(self) -> Timings:
        if self.begun == 0:
            return Timings()
        return Timings(
            decode_us=self._last_us - self._first_us,
            itl=inter_token_latency_us(self._itl_us),
        )

    def _schema_valid(self) -> bool | None:
        if self._call.schema is None or self._called:  # a call is no answer yet
            return None
        return matches_schema("".join(self._texts), self._call.schema)
