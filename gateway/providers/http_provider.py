"""What the providers over HTTP have in common: connections, snapshots, enquiries (PRV-1, PRV-3)."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Generic, TypeVar

import aiohttp
from yarl import URL

from gateway.clock import Clock
from gateway.policy.values import CapacitySnapshot, Route
from gateway.providers.base import Call, Capabilities
from gateway.providers.capabilities import capabilities_of
from gateway.providers.guarded_resolver import GuardedResolver
from gateway.providers.http_attempt import HttpAttempt, Patience, authorization
from gateway.providers.http_exchange import Exchange, HttpBackend
from gateway.providers.openai_metrics import Watch
from gateway.providers.outcomes import Outcome

CONNECTIONS_LIMIT = 1_024  # of one route; what is over it waits for one
KEEP_ALIVE_SECONDS = 4.0  # below the 5 s after which uvicorn, and so vLLM, closes an idle one
METRICS_SECONDS = 1.0
METRICS_LIMIT_BYTES = 4 << 20  # what is over it isn't read
ASK_SECONDS = 5.0
ASK_LIMIT_BYTES = 8 << 20  # of an answer that is read again; a longer one tells nothing

Credential = Callable[[str], str | None]
B = TypeVar("B", bound=HttpBackend)


class HttpProvider(ABC, Generic[B]):
    """Runs attempts on the backends of one kind of route, with a pool of connections for each.

    `credential` returns the value of an environment variable by its name. To be made on a running
    event loop. Raises BadAddress for a route whose address can't be used.
    """

    KIND: str

    def __init__(
        self,
        routes: Iterable[Route],
        *,
        clock: Clock,
        credential: Credential,
        first_revision: Callable[[str], int],
        patience: Patience | None = None,
        allow_link_local: bool = False,
    ) -> None:
        self._clock = clock
        self._credential = credential
        self._patience = patience or Patience()
        self._allow_link_local = allow_link_local
        self._first_revision = first_revision
        self._backends: dict[str, B] = {}
        self._sessions: dict[str, aiohttp.ClientSession] = {}
        self._watches: dict[str, Watch] = {}
        self._running: dict[asyncio.Task[None], aiohttp.ClientSession] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self.tasks: list[asyncio.Task[None]] = []
        self.reconfigure(routes)

    @abstractmethod
    def _backend_of(self, route: Route) -> B:
        """Return what a route's address declares. Raises BadAddress."""

    @abstractmethod
    def _exchange(self, call: Call, backend: B) -> Exchange:
        """Return a call as this protocol asks it and reads its answer."""

    def _enquiry(self, backend: B, quoted_id: str) -> str | None:
        """Return the URL that tells what became of a request; None where none does."""
        return None

    def _told(self, body: bytes, backend: B) -> Outcome | None:
        """Return the end that such a URL's answer tells; None: it has none, or none yet."""
        return None

    async def _is_ready(self, backend: B, key: str | None, session: aiohttp.ClientSession) -> bool:
        """Return whether the backend's metrics may count as its capacity now."""
        return True

    def reconfigure(self, routes: Iterable[Route]) -> Sequence[asyncio.Task[None]]:
        """Serve these routes from now on; return the tasks of those whose metrics are new.

        A route that is no more among them is let go: its metrics are not read any more, and its
        connections close once its attempts have ended. Every address is read before anything
        changes: BadAddress leaves all as it was.
        """
        wanted = [
            (route, self._backend_of(route)) for route in routes if route.provider_kind == self.KIND
        ]
        for route_id in self._backends.keys() - {route.route_id for route, _ in wanted}:
            self._unwatch(route_id)
            del self._backends[route_id]
            self._retire(self._sessions.pop(route_id))
        started = []
        for route, backend in wanted:
            route_id = route.route_id
            if self._backends.get(route_id) == backend:
                continue
            watched = self._unwatch(route_id)  # its backend is another one now
            self._backends[route_id] = backend
            if route_id not in self._sessions:
                self._sessions[route_id] = self._session()
            if backend.kv_tokens is not None:
                revision = watched.next_revision if watched else self._first_revision(route_id)
                watch = self._watches[route_id] = Watch(route, backend.kv_tokens, revision)
                started.append(
                    asyncio.create_task(self._watch(route_id, watch), name=_watch_name(route_id))
                )
        self.tasks += started
        return started

    def start(self, call: Call) -> HttpAttempt:
        """Begin an attempt; its request leaves as soon as the event loop is free.

        One that was accepted before its route was let go still runs, on a connection of its own.
        """
        backend = self._backends.get(call.route.route_id) or self._backend_of(call.route)
        kept = self._sessions.get(call.route.route_id)
        session = kept or self._session()
        attempt = HttpAttempt(
            call,
            backend,
            self._exchange(call, backend),
            session=session,
            clock=self._clock,
            credential=self._key(backend),
            tail_s=self._patience.tail_s,
        )
        self._running[attempt.task] = session
        attempt.task.add_done_callback(self._running.pop)
        if kept is None:
            self._retire(session)
        return attempt

    def snapshot(self, route: Route) -> CapacitySnapshot | None:
        """Return what the backend's metrics last said; None where they aren't or can't be read.

        A backend that stops answering keeps its last snapshot, which grows old by itself (ADM-6).
        """
        watch = self._watches.get(route.route_id)
        return watch.snapshot if watch else None

    async def refresh(self, route: Route) -> CapacitySnapshot | None:
        """Read the route's metrics now; None where they aren't, or can't be, read (ADM-6)."""
        watch = self._watches.get(route.route_id)
        return watch.snapshot if watch and await self._read(route.route_id, watch) else None

    def capabilities(self, route: Route) -> Capabilities:
        return capabilities_of(route)

    async def ask(self, route: Route, provider_request_id: str) -> Outcome | None:
        """Return what became of a request; None where the backend can't say, or not yet (PRV-3)."""
        backend = self._backends.get(route.route_id)
        if backend is None or not provider_request_id.strip("."):
            return None
        # Percent-encoded by hand: an id must not change the path that it is put into.
        quoted = "".join(
            c if c.isalnum() or c in "-_." else f"%{ord(c):02X}" for c in provider_request_id
        )
        url = self._enquiry(backend, quoted) if provider_request_id.isascii() else None
        if url is None:
            return None
        body = await self._got(
            self._sessions[route.route_id], url, self._key(backend), ASK_SECONDS, ASK_LIMIT_BYTES
        )
        return None if body is None else self._told(body, backend)

    async def close(self) -> None:
        """Stop everything that runs; an attempt that is stopped so ends as unknown."""
        stopped = [*self.tasks, *self._running, *self._closing]
        for task in stopped:
            task.cancel()
        await asyncio.gather(*stopped, return_exceptions=True)
        for session in self._sessions.values():
            await session.close()

    def _unwatch(self, route_id: str) -> Watch | None:
        """Read a route's metrics no more; return what they were read into."""
        for task in self.tasks:
            if task.get_name() == _watch_name(route_id):
                task.cancel()
        self.tasks = [task for task in self.tasks if task.get_name() != _watch_name(route_id)]
        return self._watches.pop(route_id, None)

    def _retire(self, session: aiohttp.ClientSession) -> None:
        closing = asyncio.create_task(self._close_idle(session), name="connections of a past route")
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)

    async def _close_idle(self, session: aiohttp.ClientSession) -> None:
        """Close a session once its attempts have ended."""
        try:
            using = [task for task, used in self._running.items() if used is session]
            if using:
                await asyncio.wait(using)
        finally:
            await session.close()

    def _key(self, backend: B) -> str | None:
        return None if backend.key_env is None else self._credential(backend.key_env)

    def _session(self) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=CONNECTIONS_LIMIT,
                keepalive_timeout=KEEP_ALIVE_SECONDS,
                resolver=None if self._allow_link_local else GuardedResolver(),
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
        while True:
            await self._read(route_id, watch)
            await asyncio.sleep(METRICS_SECONDS)

    async def _read(self, route_id: str, watch: Watch) -> bool:
        """Read one route's metrics into its watch; return whether they could be read."""
        backend, session = self._backends[route_id], self._sessions[route_id]
        key = self._key(backend)
        if not await self._is_ready(backend, key, session):
            return False
        body = await self._got(
            session, backend.metrics_url, key, METRICS_SECONDS, METRICS_LIMIT_BYTES
        )
        if body is not None:
            watch.take(body, self._clock.now_us())
        return body is not None

    @staticmethod
    async def _got(
        session: aiohttp.ClientSession, url: str, key: str | None, seconds: float, limit_bytes: int
    ) -> bytes | None:
        """Return the body of a 200, up to a limit; None of whatever else comes, or doesn't."""
        try:
            async with session.get(
                URL(url, encoded=True),
                headers=authorization(key),
                timeout=aiohttp.ClientTimeout(total=seconds),
                allow_redirects=False,
            ) as response:
                body = b""
                while chunk := await response.content.read(limit_bytes - len(body)):
                    body += chunk
                return body if response.status == 200 else None
        except (aiohttp.ClientError, TimeoutError, OSError):
            return None  # of a snapshot, its age says it


def _watch_name(route_id: str) -> str:
    return f"metrics of {route_id}"
