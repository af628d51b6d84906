"""What the providers over HTTP have in common: connections, snapshots, enquiries (PRV-1, PRV-3)."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Generic, TypeVar

from gateway.clock import Clock
from gateway.policy.values import CapacitySnapshot, Route
from gateway.providers.base import Call, Capabilities
from gateway.providers.capabilities import capabilities_of
from gateway.providers.http_attempt import HttpAttempt
from gateway.providers.http_exchange import Exchange, HttpBackend
from gateway.providers.http_fetch import authorization, fetched
from gateway.providers.http_pool import Patience, Pool
from gateway.providers.http_target import head, target_of
from gateway.providers.openai_metrics import Watch
from gateway.providers.outcomes import Outcome

METRICS_SECONDS = 1.0
METRICS_LIMIT_BYTES = 4 << 20  # what is over it isn't read
HEADS_LIMIT = 1_024  # of requests' heads that are kept, each for a URL and a credential
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
        self._pools: dict[str, Pool] = {}
        self._past_pools: list[Pool] = []  # of routes that are no more; what runs there, ends there
        self._watches: dict[str, Watch] = {}
        self._running: set[HttpAttempt] = set()
        self._heads: dict[tuple[str, str | None], bytes] = {}
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

    async def _is_ready(self, backend: B, key: str | None, pool: Pool) -> bool:
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
            self._retire(self._pools.pop(route_id))
        started = []
        for route, backend in wanted:
            route_id = route.route_id
            if self._backends.get(route_id) == backend:
                continue
            watched = self._unwatch(route_id)  # its backend is another one now
            self._backends[route_id] = backend
            if route_id not in self._pools:
                self._pools[route_id] = self._pool()
            if backend.kv_tokens is not None:
                revision = watched.next_revision if watched else self._first_revision(route_id)
                watch = self._watches[route_id] = Watch(route, backend.kv_tokens, revision)
                started.append(
                    asyncio.create_task(self._watch(route_id, watch), name=_watch_name(route_id))
                )
        self.tasks += started
        return started

    def start(self, call: Call) -> HttpAttempt:
        """Begin an attempt; its request has left where a connection was free for it.

        One that was accepted before its route was let go still runs, on a connection of its own.
        """
        backend = self._backends.get(call.route.route_id) or self._backend_of(call.route)
        pool, key = self._pools.get(call.route.route_id), self._key(backend)
        if pool is None:
            pool = self._pool()
            self._retire(pool)
        attempt = HttpAttempt(
            call,
            backend,
            self._exchange(call, backend),
            pool=pool,
            target=target_of(backend.post_url),
            head=self._head(backend.post_url, key),
            clock=self._clock,
            tail_s=self._patience.tail_s,
            ended=self._running.discard,
        )
        self._running.add(attempt)
        attempt.begin(credential_missing=backend.key_env is not None and not key)
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
        body = await fetched(
            self._pools[route.route_id], url, self._key(backend), ASK_SECONDS, ASK_LIMIT_BYTES
        )
        return None if body is None else self._told(body, backend)

    async def close(self) -> None:
        """Stop everything that runs; an attempt that is stopped so ends as unknown."""
        for attempt in tuple(self._running):
            attempt.close()
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        for pool in (*self._pools.values(), *self._past_pools):
            await pool.close()

    def _unwatch(self, route_id: str) -> Watch | None:
        """Read a route's metrics no more; return what they were read into."""
        for task in self.tasks:
            if task.get_name() == _watch_name(route_id):
                task.cancel()
        self.tasks = [task for task in self.tasks if task.get_name() != _watch_name(route_id)]
        return self._watches.pop(route_id, None)

    def _retire(self, pool: Pool) -> None:
        """Let a pool close once its attempts have ended."""
        pool.retire()
        self._past_pools = [each for each in self._past_pools if not each.closed]
        self._past_pools.append(pool)

    def _key(self, backend: B) -> str | None:
        return None if backend.key_env is None else self._credential(backend.key_env)

    def _head(self, url: str, key: str | None) -> bytes:
        """Return what stands at the head of every request to a URL, made once."""
        known = self._heads.get((url, key))
        if known is None:
            if len(self._heads) >= HEADS_LIMIT:
                self._heads.clear()
            fields = (
                ("Content-Type", "application/json"),
                ("Accept", "text/event-stream"),
                *authorization(key),
            )
            known = self._heads[url, key] = head(b"POST", target_of(url), fields)
        return known

    def _pool(self) -> Pool:
        return Pool(self._patience, allow_link_local=self._allow_link_local)

    async def _watch(self, route_id: str, watch: Watch) -> None:
        """Read one route's metrics every second for as long as its backend is this one."""
        while True:
            await self._read(route_id, watch)
            await asyncio.sleep(METRICS_SECONDS)

    async def _read(self, route_id: str, watch: Watch) -> bool:
        """Read one route's metrics into its watch; return whether they could be read."""
        backend, pool = self._backends[route_id], self._pools[route_id]
        key = self._key(backend)
        if not await self._is_ready(backend, key, pool):
            return False
        body = await fetched(pool, backend.metrics_url, key, METRICS_SECONDS, METRICS_LIMIT_BYTES)
        if body is not None:
            watch.take(body, self._clock.now_us())
        return body is not None


def _watch_name(route_id: str) -> str:
    return f"metrics of {route_id}"
