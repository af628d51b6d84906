"""One attempt over HTTP, whatever protocol is spoken (PRV-2).

Whatever may have run and was lost sight of is unknown: a connection lost after the request was
written, silence, a gateway's 502. Only a request that the backend can't have had, or says that it
did not take, is rejected. Redirects are not followed and no proxy of the environment is used.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

import aiohttp
from aiohttp.abc import AbstractStreamWriter

from gateway.clock import Clock
from gateway.providers.answer import GARBAGE
from gateway.providers.base import Call
from gateway.providers.http_exchange import Exchange, HttpBackend, refused_parameters
from gateway.providers.http_status import Verdict, verdict
from gateway.providers.outcomes import Outcome
from gateway.providers.said import Said, provider_id
from gateway.providers.sse_reader import SseEvent, SseReader, StreamTooLarge
from gateway.submission import Delta

UNREACHABLE = "PROVIDER_UNREACHABLE"
CREDENTIAL_MISSING = "PROVIDER_CREDENTIAL_MISSING"
SILENT = "PROVIDER_SILENT"
TOO_LARGE = "PROVIDER_ANSWER_TOO_LARGE"
CLOSED = "PROVIDER_CLOSED"

WHOLE_BODY_LIMIT_BYTES = 8 << 20  # of an answer that is not streamed
REST_LIMIT_BYTES = 1 << 16  # of a body of no interest, and of a refusal's
TRIES = 2  # the second only where nothing of the request can have been read
REFUSED_REQUEST = (400, 422)  # statuses by which a parameter may be refused


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long a backend is waited for, in seconds; the request's own deadline is the journey's."""

    connect_s: float = 5.0
    silence_s: float = 300.0  # without any byte, before the first token too
    tail_s: float = 2.0  # for usage, [DONE] and the end of the body once a finish reason is there


class Body(aiohttp.BytesPayload):
    """A request body that knows whether it was handed to the connection as a whole.

    aiohttp writes head and body of a small request at once, so where this is False the backend
    can't have read a whole request.
    """

    whole = False

    async def write_with_length(
        self, writer: AbstractStreamWriter, content_length: int | None
    ) -> None:
        await super().write_with_length(writer, content_length)
        self.whole = True


class HttpAttempt:
    """One request to one backend: a task reads its answer, `events` hands on what it read."""

    def __init__(
        self,
        call: Call,
        backend: HttpBackend,
        exchange: Exchange,
        *,
        session: aiohttp.ClientSession,
        clock: Clock,
        credential: str | None,
        tail_s: float,
    ) -> None:
        self._call, self._backend, self._session, self._clock = call, backend, session, clock
        self._credential, self._tail_s = credential, tail_s
        self._asked, self._answer = exchange, exchange.answer
        self._body: Body | None = None
        self._cancel_reason: str | None = None
        self._cancel_sent_us = 0
        self._over = False
        self._arrived: deque[Delta | Outcome | Exception] = deque()
        self._reader: asyncio.Future[None] | None = None  # of `events`, while it has nothing to do
        self.task = asyncio.create_task(self._exchange(), name=f"attempt {call.attempt_id}")
        # Also of a task that was cancelled before it ran at all, and of one with a fault.
        self.task.add_done_callback(self._task_ended)

    async def events(self) -> AsyncIterator[Delta | Outcome]:
        """Yield the pieces as they arrive, then the outcome. Left early, the request is closed."""
        try:
            while True:
                while self._arrived:
                    event = self._arrived.popleft()
                    if isinstance(event, Exception):
                        raise event
                    yield event
                    if isinstance(event, Outcome):
                        return
                self._reader = asyncio.get_running_loop().create_future()
                await self._reader
        finally:
            if not self._over:
                self.task.cancel()

    def cancel(self, reason: str) -> None:
        """Close the connection at once; after the outcome, or a second time, it does nothing."""
        if self._cancel_reason is None and not self._over:
            self._cancel_reason, self._cancel_sent_us = reason, self._clock.now_us()
            self.task.cancel()

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        fault = None if task.cancelled() else task.exception()
        if self._over:
            return
        if isinstance(fault, Exception):
            self._over = True
            self._put(fault)
        else:
            self._end(self._stopped())

    def _end(self, outcome: Outcome) -> None:
        if not self._over:
            self._over = True
            self._put(outcome)

    def _put(self, event: Delta | Outcome | Exception) -> None:
        self._arrived.append(event)
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    def _stopped(self) -> Outcome:
        if self._cancel_reason is None:
            return self._answer.unknown(CLOSED)
        return self._answer.cancelled(
            self._cancel_reason,
            stops=self._backend.close_cancels,
            sent=self._body is not None and self._body.whole,
            took_us=self._clock.now_us() - self._cancel_sent_us,
        )

    async def _exchange(self) -> None:
        if self._backend.key_env is not None and not self._credential:
            self._end(self._not_run(CREDENTIAL_MISSING))
            return
        for _ in range(TRIES):
            self._body = Body(self._asked.content, content_type="application/json")
            try:
                response = await self._session.post(
                    self._backend.post_url,
                    data=self._body,
                    headers=self._headers(),
                    allow_redirects=False,
                )
            except (aiohttp.ConnectionTimeoutError, aiohttp.ClientConnectorError):
                break
            except TimeoutError:
                self._end(self._answer.unknown(SILENT))
                return
            except (aiohttp.ClientError, OSError):
                # A pooled connection that had gone stale is tried again, if nothing can have run.
                if self._body.whole:
                    self._end(self._answer.ended(cleanly=False))
                    return
                continue
            async with response:
                await self._read(response)
            return
        self._end(self._not_run(UNREACHABLE))

    def _not_run(self, reason: str) -> Outcome:
        return self._answer.judged(Verdict(ended="rejected", reason=reason))

    def _headers(self) -> dict[str, str]:
        traced = {"traceparent": self._call.traceparent, "tracestate": self._call.tracestate}
        return {
            "Accept": "text/event-stream",
            "X-Request-Id": self._call.attempt_id,
            **{name: value for name, value in traced.items() if value is not None},
            **authorization(self._credential),
        }

    async def _read(self, response: aiohttp.ClientResponse) -> None:
        given = provider_id(response.headers.get("x-request-id"))
        # A backend that returns our own id names the request better in its body.
        if self._asked.named_by_header and given != self._call.attempt_id:
            self._answer.name(given)
        if response.status != 200:
            judged = verdict(response.status, _lower(response), self._clock.now_us())
            refused: tuple[str, ...] = ()
            if response.status in REFUSED_REQUEST and self._asked.optional:
                told = await self._read_rest(response)
                refused = refused_parameters(told, self._asked.optional)
            self._end(self._answer.judged(judged, refused))
            await self._read_rest(response)
            return
        # Without a length or chunks, the end of the body can't be told from a lost connection.
        framed = response.content_length is not None or "transfer-encoding" in response.headers
        try:
            if response.content_type == "text/event-stream":
                await self._read_stream(response)
            else:
                await self._read_whole(response)
        except StreamTooLarge:
            self._answer.fail(TOO_LARGE, temporary=False)
        except TimeoutError:
            self._end(
                self._answer.ended(cleanly=True)
                if self._answer.finished
                else self._answer.unknown(SILENT)
            )
            return
        except (aiohttp.ClientError, OSError):
            self._end(self._answer.ended(cleanly=False))
            return
        self._end(self._answer.ended(cleanly=framed))
        if self._answer.failed:
            response.close()  # whatever it still generates is of no use
        else:
            await self._read_rest(response)

    async def _read_stream(self, response: aiohttp.ClientResponse) -> None:
        """Read until nothing that matters can come; once finished, for `tail_s` at most."""
        reader = SseReader()
        async with asyncio.timeout(None) as tail:
            while data := await response.content.readany():
                self._take(reader.feed(data))
                if self._answer.over:
                    return
                if self._answer.finished and tail.when() is None:
                    tail.reschedule(asyncio.get_running_loop().time() + self._tail_s)
        self._take(reader.end())

    async def _read_whole(self, response: aiohttp.ClientResponse) -> None:
        """Read an answer of a server that ignores `stream`, as if it were one event."""
        body = bytearray()
        while data := await response.content.readany():
            body += data
            if len(body) > WHOLE_BODY_LIMIT_BYTES:
                raise StreamTooLarge(f"the answer is over {WHOLE_BODY_LIMIT_BYTES} bytes")
        if not body.strip():
            self._answer.fail(GARBAGE)
            return
        read = self._asked.read_whole or self._asked.read
        self._take([SseEvent(name="message", data=bytes(body))], read)

    def _take(self, events: list[SseEvent], read: Callable[[SseEvent], Said] | None = None) -> None:
        read, now_us = read or self._asked.read, self._clock.now_us()
        for event in events:
            piece = self._answer.take(read(event), now_us)
            if piece is not None:
                self._put(piece)
            if self._answer.over:
                return

    async def _read_rest(self, response: aiohttp.ClientResponse) -> bytes:
        """Read the little that may be left of a body, so that its connection can be used again."""
        rest = bytearray()
        try:
            async with asyncio.timeout(self._tail_s):
                while len(rest) < REST_LIMIT_BYTES and (data := await response.content.readany()):
                    rest += data
        except (aiohttp.ClientError, OSError, TimeoutError):
            response.close()
        return bytes(rest)


def authorization(credential: str | None) -> dict[str, str]:
    return {"Authorization": f"Bearer {credential}"} if credential else {}


def _lower(response: aiohttp.ClientResponse) -> dict[str, str]:
    return {name.lower(): value for name, value in response.headers.items()}
