"""One attempt over HTTP, whatever protocol is spoken (PRV-2).

Whatever may have run and was lost sight of is unknown: a connection lost after the request was
written, silence, a gateway's 502. Only a request that the backend can't have had, or says that it
did not take, is rejected. It has no task: what its connection reads is handed on as it comes.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence

from gateway.clock import Clock
from gateway.providers.answer import GARBAGE, TOO_LARGE
from gateway.providers.base import Call
from gateway.providers.http_connection import COMPRESSED, Connection, Lost, encoding_of
from gateway.providers.http_exchange import Exchange, HttpBackend, refused_parameters
from gateway.providers.http_pool import Pool, Unreachable, Wish
from gateway.providers.http_status import Verdict, verdict
from gateway.providers.http_target import Target
from gateway.providers.outcomes import Outcome
from gateway.providers.said import Said, provider_id
from gateway.providers.sse_reader import BOM, SseEvent, SseReader, StreamTooLarge
from gateway.submission import Delta

UNREACHABLE = "PROVIDER_UNREACHABLE"
CREDENTIAL_MISSING = "PROVIDER_CREDENTIAL_MISSING"
SILENT = "PROVIDER_SILENT"
CLOSED = "PROVIDER_CLOSED"

WHOLE_BODY_LIMIT_BYTES = 8 << 20  # of an answer that is not streamed
REFUSAL_LIMIT_BYTES = 1 << 16  # of a refusal's body that is read
TAUGHT_AFTER = 8  # tokens: by then it is known whether an answer's events are like one another
READABLE = COMPRESSED | {"identity"}
_STREAMED = (b"data:", b"event:", b"id:", b"retry:", b":")
TRIES = 2  # the second only where nothing of the request can have been read
REFUSED_REQUEST = (400, 422)  # statuses by which a parameter may be refused


class HttpAttempt:
    """One request to one backend, which leaves at once where a connection is free for it."""

    def __init__(
        self,
        call: Call,
        backend: HttpBackend,
        exchange: Exchange,
        *,
        pool: Pool,
        target: Target,
        head: bytes,
        clock: Clock,
        tail_s: float,
        ended: Callable[["HttpAttempt"], None],
    ) -> None:
        """`head` is its request's head but for what is this call's own; `ended` is called once."""
        self._call, self._backend, self._pool, self._target = call, backend, pool, target
        self._clock, self._tail_s, self._told_end = clock, tail_s, ended
        self._asked, self._answer = exchange, exchange.answer
        self._request = request_of(call, head, exchange.content)
        self._connection: Connection | None = None
        self._wish: Wish | None = None
        self._tries = 0
        self._take_body: Callable[[bytes], None] = self._take_whole
        self._sse = SseReader()
        self._whole = bytearray()  # of a body that is not streamed
        self._judged: Verdict | None = None  # where a refusal's body is waited for
        self._framed = False
        self._tail: asyncio.TimerHandle | None = None
        self._ended = False
        self._piece: Callable[[Delta], None] | None = None  # once somebody carries it
        self._early: list[Delta] = []
        self._outcome: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()

    def begin(self, *, credential_missing: bool) -> None:
        """Send it, or say why it can't be."""
        if credential_missing:
            self._end(self._not_run(CREDENTIAL_MISSING))
        else:
            self._try()

    async def carry(self, piece: Callable[[Delta], None]) -> Outcome:
        """Hand on each piece as it arrives; return the outcome. Stopped, the request is closed."""
        self._piece = piece
        for early in self._early:
            piece(early)
        self._early.clear()
        try:
            return await self._outcome
        finally:
            self.close()

    def cancel(self, reason: str) -> None:
        """Close the connection at once; after the outcome, or a second time, it does nothing."""
        if self._ended:
            return
        if self._judged is not None:
            self._abort()
            self._refused(self._judged)  # nothing ran, whoever leaves
            return
        sent = self._connection is not None and self._connection.sent
        began_us = self._clock.now_us()
        self._abort()
        self._end(
            self._answer.cancelled(
                reason,
                stops=self._backend.close_cancels,
                sent=sent,
                took_us=self._clock.now_us() - began_us,
            )
        )

    def hold(self) -> None:
        """Read no more for now; its silence is ours then."""
        if self._connection is not None:
            self._connection.hold()

    def go_on(self) -> None:
        if self._connection is not None:
            self._connection.go_on()

    def close(self) -> None:
        """Close the connection; an attempt that had no end yet is unknown, a refused one is not."""
        if self._ended:
            return
        self._abort()
        if self._judged is not None:
            self._refused(self._judged)
        else:
            self._end(self._answer.unknown(CLOSED))

    # Called by the pool and the connection.

    def _given(self, made: Connection | Unreachable) -> None:
        self._wish = None
        if isinstance(made, Unreachable):
            self._end(self._not_run(UNREACHABLE))
        elif made.closing:
            self._try()
        else:
            self._connection = made
            made.ask(self._request, self)

    def head(self, status: int, headers: Mapping[str, str], framed: bool) -> None:
        given = provider_id(headers.get("x-request-id"))
        # A backend that returns our own id names the request better in its body.
        if self._asked.named_by_header and given != self._call.attempt_id:
            self._answer.name(given)
        if status != 200:
            judged = verdict(status, headers, self._clock.now_us())
            if status in REFUSED_REQUEST and self._asked.optional:
                self._judged, self._take_body = judged, self._take_refusal
                self._wait_for_tail()
            else:
                self._end(self._answer.judged(judged))
            return
        self._framed = framed
        if encoding_of(headers) not in READABLE:
            self._answer.fail(GARBAGE, temporary=False)
            self._finish(cleanly=False)
            return
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind == "text/event-stream":
            self._take_body = self._take_stream

    def body(self, data: bytes) -> None:
        try:
            self._take_body(data)
        except StreamTooLarge:
            self._answer.fail(TOO_LARGE, temporary=False)
            self._finish(cleanly=self._framed)
        except Exception as fault:  # ours: it must not be the event loop's
            self._broken(fault)

    def over(self) -> None:
        try:
            if self._judged is not None:
                self._refused(self._judged)
                return
            if self._take_body == self._take_stream:
                self._take(self._sse.end(), self._clock.now_us())
            else:
                self._read_whole()
            self._finish(cleanly=self._framed)
        except StreamTooLarge:
            self._answer.fail(TOO_LARGE, temporary=False)
            self._finish(cleanly=self._framed)
        except Exception as fault:  # ours, as above: the attempt has to have an end
            self._broken(fault)

    def lost(self, why: Lost) -> None:
        sent = self._connection is None or self._connection.sent
        self._connection = None
        if self._judged is not None:
            self._refused(self._judged)
        elif why == "silent":
            self._end(
                self._answer.ended(cleanly=True)
                if self._answer.finished
                else self._answer.unknown(SILENT)
            )
        elif why == "too_large":
            self._answer.fail(TOO_LARGE, temporary=False)
            self._end(self._answer.ended(cleanly=True))
        elif not sent and self._tries < TRIES:
            self._try()  # nothing of it can have run
        elif not sent:
            self._end(self._not_run(UNREACHABLE))
        else:
            self._end(self._answer.ended(cleanly=False))

    def _try(self) -> None:
        """Send the request over an idle connection, or have one made."""
        self._tries += 1
        free = self._pool.get(self._target)
        if free is not None:
            self._given(free)
        else:
            self._wish = self._pool.wish(self._target, self._given)

    def _take_stream(self, data: bytes) -> None:
        """Take a part of a stream; once it has finished, wait only for `tail_s` more."""
        now_us, texts = self._clock.now_us(), self._asked.texts
        begun = self._answer.begun
        while data and not self._answer.over:
            part, data = data, b""
            if texts is not None and self._sse.between_events:
                found = texts(part)
                if found is not None:
                    self._put(self._answer.take_texts(found, now_us))
                    data = part[found.size_bytes :]
                    continue
                if self._answer.begun < TAUGHT_AFTER:  # one of them may teach the others
                    event, size = self._sse.first(part)
                    if event is not None:
                        self._take((event,), now_us)
                        data = part[size:]
                        continue
            self._take(self._sse.feed(part), now_us)
        if self._tail is not None and self._answer.begun > begun:  # it had not finished yet
            self._tail.cancel()
            self._tail = None
        if self._answer.over:
            self._finish(cleanly=self._framed)
        elif self._answer.finished:
            self._wait_for_tail()

    def _take_whole(self, data: bytes) -> None:
        """Take a part of an answer of a server that ignores `stream`, or says so of its stream."""
        if not self._whole and data.removeprefix(BOM).startswith(_STREAMED):
            self._take_body = self._take_stream
            self._take_stream(data)
            return
        self._whole += data
        if len(self._whole) > WHOLE_BODY_LIMIT_BYTES:
            raise StreamTooLarge(f"the answer is over {WHOLE_BODY_LIMIT_BYTES} bytes")

    def _take_refusal(self, data: bytes) -> None:
        self._whole += data
        if len(self._whole) >= REFUSAL_LIMIT_BYTES and self._judged is not None:
            self._refused(self._judged)

    def _read_whole(self) -> None:
        """Read a whole answer as if it were one event."""
        if not self._whole.strip():
            self._answer.fail(GARBAGE)
            return
        read = self._asked.read_whole or self._asked.read
        event = SseEvent(name="message", data=bytes(self._whole))
        self._take([event], self._clock.now_us(), read)

    def _take(
        self,
        events: Sequence[SseEvent],
        now_us: int,
        read: Callable[[SseEvent], Said] | None = None,
    ) -> None:
        read, answer, put = read or self._asked.read, self._answer, self._piece
        for event in events:
            piece = answer.take(read(event), now_us)
            if piece is not None:
                if put is None:
                    self._early.append(piece)
                else:
                    put(piece)
            if answer.over:
                return

    def _wait_for_tail(self) -> None:
        if self._tail is None:
            loop = asyncio.get_running_loop()
            self._tail = loop.call_later(self._tail_s, self._tail_over)

    def _tail_over(self) -> None:
        if self._judged is not None:
            self._refused(self._judged)
        else:
            self._end(self._answer.ended(cleanly=True))
        self._abort()

    def _refused(self, judged: Verdict) -> None:
        refused = refused_parameters(bytes(self._whole), self._asked.optional)
        self._end(self._answer.judged(judged, refused))

    def _not_run(self, reason: str) -> Outcome:
        return self._answer.judged(Verdict(ended="rejected", reason=reason))

    def _finish(self, *, cleanly: bool) -> None:
        """End as the answer stands; where it has failed, whatever still comes is of no use."""
        if self._answer.unwanted:
            self._abort()
        self._end(self._answer.ended(cleanly=cleanly))

    def _broken(self, fault: Exception) -> None:
        self._abort()
        self._end(fault)

    def _end(self, event: Outcome | Exception) -> None:
        if self._ended:
            return
        self._ended = True
        if self._tail is not None:
            self._tail.cancel()
        if self._connection is not None:
            self._connection.let_go()
            self._connection = None
        self._told_end(self)
        # Bound to itself and to its run: without these it is freed as soon as nobody holds it.
        self._take_body, self._piece = _unread, None
        if self._outcome.done():  # nobody waits any more
            return
        if isinstance(event, Exception):
            self._outcome.set_exception(event)
        else:
            self._outcome.set_result(event)

    def _abort(self) -> None:
        if self._wish is not None:
            self._wish.drop()
            self._wish = None
        if self._connection is not None:
            self._connection.abort()
            self._connection = None

    def _put(self, piece: Delta) -> None:
        if self._piece is None:
            self._early.append(piece)
        else:
            self._piece(piece)


def _unread(data: bytes) -> None:
    """Stands for what is done with a body once the attempt is over."""


def request_of(call: Call, head: bytes, content: bytes) -> bytes:
    """Return the whole request of a call, by a head of `http_target.head`."""
    lines = [head, b"X-Request-Id: ", call.attempt_id.encode(), b"\r\n"]
    if call.traceparent is not None:
        lines += (b"traceparent: ", call.traceparent.encode(), b"\r\n")
    if call.tracestate is not None:
        lines += (b"tracestate: ", call.tracestate.encode(), b"\r\n")
    lines += (b"Content-Length: %d\r\n\r\n" % len(content), content)
    return b"".join(lines)
