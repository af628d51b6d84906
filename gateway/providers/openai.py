"""Attempts on any OpenAI-compatible HTTP server: vLLM, SGLang, llama.cpp, a vendor (PRV-1, PRV-2).

Whatever may have run and was lost sight of is unknown: a connection lost after the request was
written, silence, a gateway's 502. Only a request that the backend can't have had, or says that it
did not take, is rejected. Redirects are not followed and no proxy of the environment is used.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass

import aiohttp
from aiohttp.abc import AbstractStreamWriter

from gateway.clock import Clock
from gateway.policy.values import CapacitySnapshot, Route
from gateway.providers.base import Call
from gateway.providers.http_status import Verdict, verdict
from gateway.providers.openai_address import Backend, backend_of
from gateway.providers.openai_answer import GARBAGE, Answer
from gateway.providers.openai_metrics import Watch
from gateway.providers.openai_shapes import provider_id, read_event, request_body
from gateway.providers.outcomes import Outcome
from gateway.providers.sse_reader import SseEvent, SseReader, StreamTooLarge
from gateway.submission import Delta

UNREACHABLE = "PROVIDER_UNREACHABLE"
CREDENTIAL_MISSING = "PROVIDER_CREDENTIAL_MISSING"
SILENT = "PROVIDER_SILENT"
TOO_LARGE = "PROVIDER_ANSWER_TOO_LARGE"
CLOSED = "PROVIDER_CLOSED"

CONNECTIONS_LIMIT = 1_024  # of one route; what is over it waits for one
KEEP_ALIVE_SECONDS = 4.0  # below the 5 s after which uvicorn, and so vLLM, closes an idle one
METRICS_SECONDS = 1.0
METRICS_LIMIT_BYTES = 4 << 20  # what is over it isn't read
WHOLE_BODY_LIMIT_BYTES = 8 << 20  # of an answer that is not streamed
REST_LIMIT_BYTES = 1 << 16  # of a body of no interest; more isn't worth keeping its connection
TRIES = 2  # the second only where nothing of the request can have been read

Credential = Callable[[str], str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long a backend is waited for, in seconds; the request's own deadline is the journey's."""

    connect_s: float = 5.0
    silence_s: float = 300.0  # without any byte, before the first token too
    tail_s: float = 2.0  # for usage, [DONE] and the end of the body once a finish reason is there


class OpenAIProvider:
    """Runs attempts on the backends of the `openai` routes, with a pool of connections for each.

    `credential` returns the value of an environment variable by its name. To be made on a running
    event loop. Raises BadAddress for a route whose address can't be used.
    """

    def __init__(
        self,
        routes: Iterable[Route],
        *,
        clock: Clock,
        credential: Credential,
        first_revision: Callable[[str], int],
        patience: Patience | None = None,
    ) -> None:
        self._clock = clock
        self._credential = credential
        self._patience = patience or Patience()
        self._first_revision = first_revision
        self._backends: dict[str, Backend] = {}
        self._sessions: dict[str, aiohttp.ClientSession] = {}
        self._watches: dict[str, Watch] = {}
        self._running: set[asyncio.Task[None]] = set()
        self.tasks: list[asyncio.Task[None]] = []
        self.reconfigure(routes)

    def reconfigure(self, routes: Iterable[Route]) -> Sequence[asyncio.Task[None]]:
        """Serve these routes from now on; return the tasks of those whose metrics are new.

        Every address is read before anything changes: BadAddress leaves all as it was.
        """
        wanted = [(route, backend_of(route)) for route in routes if route.provider_kind == "openai"]
        started = []
        for route, backend in wanted:
            route_id = route.route_id
            if self._backends.get(route_id) == backend:
                continue
            watched = self._watches.pop(route_id, None)
            for task in self.tasks:
                if task.get_name() == _watch_name(route_id):
                    task.cancel()  # its backend is another one now
            self._backends[route_id] = backend
            self._sessions.setdefault(route_id, self._session())
            if backend.kv_tokens is not None:
                revision = watched.next_revision if watched else self._first_revision(route_id)
                watch = self._watches[route_id] = Watch(route, backend.kv_tokens, revision)
                started.append(
                    asyncio.create_task(self._watch(route_id, watch), name=_watch_name(route_id))
                )
        self.tasks += started
        return started

    def start(self, call: Call) -> "OpenAIAttempt":
        """Begin an attempt; its request leaves as soon as the event loop is free."""
        route_id = call.route.route_id
        backend = self._backends[route_id]
        attempt = OpenAIAttempt(
            call,
            backend,
            session=self._sessions[route_id],
            clock=self._clock,
            credential=None if backend.key_env is None else self._credential(backend.key_env),
            tail_s=self._patience.tail_s,
        )
        self._running.add(attempt.task)
        attempt.task.add_done_callback(self._running.discard)
        return attempt

    def snapshot(self, route: Route) -> CapacitySnapshot | None:
        """Return what the backend's metrics last said; None where they aren't or can't be read.

        A backend that stops answering keeps its last snapshot, which grows old by itself (ADM-6).
        """
        watch = self._watches.get(route.route_id)
        return watch.snapshot if watch else None

    async def close(self) -> None:
        """Stop everything that runs; an attempt that is stopped so ends as unknown."""
        stopped = [*self.tasks, *self._running]
        for task in stopped:
            task.cancel()
        await asyncio.gather(*stopped, return_exceptions=True)
        for session in self._sessions.values():
            await session.close()

    def _session(self) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=CONNECTIONS_LIMIT, keepalive_timeout=KEEP_ALIVE_SECONDS
            ),
            timeout=aiohttp.ClientTimeout(
                total=None,
                sock_connect=self._patience.connect_s,
                sock_read=self._patience.silence_s,
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"User-Agent": "weighbridge", "Accept-Encoding": "identity"},
        )

    async def _watch(self, route_id: str, watch: Watch) -> None:
        """Read one route's metrics every second for as long as its backend is this one."""
        backend, session = self._backends[route_id], self._sessions[route_id]
        key = None if backend.key_env is None else self._credential(backend.key_env)
        limit = aiohttp.ClientTimeout(total=METRICS_SECONDS)
        while True:
            try:
                async with session.get(
                    backend.metrics_url,
                    headers=_authorization(key),
                    timeout=limit,
                    allow_redirects=False,
                ) as response:
                    body = b""
                    while chunk := await response.content.read(METRICS_LIMIT_BYTES - len(body)):
                        body += chunk
                    if response.status == 200:
                        watch.take(body, self._clock.now_us())
            except (aiohttp.ClientError, TimeoutError, OSError):
                pass  # the snapshot's age says it
            await asyncio.sleep(METRICS_SECONDS)


def _watch_name(route_id: str) -> str:
    return f"metrics of {route_id}"


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


class OpenAIAttempt:
    """One request to one backend: a task reads its answer, `events` hands on what it read."""

    def __init__(
        self,
        call: Call,
        backend: Backend,
        *,
        session: aiohttp.ClientSession,
        clock: Clock,
        credential: str | None,
        tail_s: float,
    ) -> None:
        self._call, self._backend, self._session, self._clock = call, backend, session, clock
        self._credential, self._tail_s = credential, tail_s
        self._answer = Answer(call)
        self._body: Body | None = None
        self._cancel_reason: str | None = None
        self._cancel_sent_us = 0
        self._over = False
        self._events: asyncio.Queue[Delta | Outcome | Exception] = asyncio.Queue()
        self.task = asyncio.create_task(self._exchange(), name=f"attempt {call.attempt_id}")
        # Also of a task that was cancelled before it ran at all, and of one with a fault.
        self.task.add_done_callback(self._task_ended)

    async def events(self) -> AsyncIterator[Delta | Outcome]:
        """Yield the pieces as they arrive, then the outcome. Left early, the request is closed."""
        try:
            while True:
                event = await self._events.get()
                if isinstance(event, Exception):
                    raise event
                yield event
                if isinstance(event, Outcome):
                    return
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
            self._events.put_nowait(fault)
        else:
            self._end(self._stopped())

    def _end(self, outcome: Outcome) -> None:
        if not self._over:
            self._over = True
            self._events.put_nowait(outcome)

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
        content = request_body(self._call, self._backend)
        for _ in range(TRIES):
            self._body = Body(content, content_type="application/json")
            try:
                response = await self._session.post(
                    self._backend.chat_url,
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
        return {
            "Accept": "text/event-stream",
            "X-Request-Id": self._call.attempt_id,
            **_authorization(self._credential),
        }

    async def _read(self, response: aiohttp.ClientResponse) -> None:
        given = provider_id(response.headers.get("x-request-id"))
        # A backend that returns our own id names the request better in its body.
        self._answer.name(given if given != self._call.attempt_id else None)
        if response.status != 200:
            judged = verdict(response.status, _lower(response), self._clock.now_us())
            self._end(self._answer.judged(judged))
            await self._leave_reusable(response)
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
            await self._leave_reusable(response)

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
        self._take([SseEvent(name="message", data=bytes(body))])

    def _take(self, events: list[SseEvent]) -> None:
        now_us = self._clock.now_us()
        for event in events:
            piece = self._answer.take(read_event(event), now_us)
            if piece is not None:
                self._events.put_nowait(piece)
            if self._answer.over:
                return

    async def _leave_reusable(self, response: aiohttp.ClientResponse) -> None:
        """Read the little that may be left of a body, so that its connection can be used again."""
        left = REST_LIMIT_BYTES
        try:
            async with asyncio.timeout(self._tail_s):
                while left > 0 and (data := await response.content.readany()):
                    left -= len(data)
        except (aiohttp.ClientError, OSError, TimeoutError):
            response.close()


def _authorization(credential: str | None) -> dict[str, str]:
    return {"Authorization": f"Bearer {credential}"} if credential else {}


def _lower(response: aiohttp.ClientResponse) -> dict[str, str]:
    return {name.lower(): value for name, value in response.headers.items()}
