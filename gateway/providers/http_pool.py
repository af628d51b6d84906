"""Connections to backends, kept while they are used and for a little while after (PRV-1).

One pool for each route, at most CONNECTIONS_LIMIT connections, whatever its origins. One timer for
all of them looks now and then at what is idle, silent or unwanted for too long.
"""

import asyncio
import contextlib
import logging
import ssl
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from gateway.providers.guarded_addresses import addresses_of
from gateway.providers.http_connection import Connection
from gateway.providers.http_target import Target

log = logging.getLogger(__name__)

CONNECTIONS_LIMIT = 1_024  # of one route; what is over it waits for one
KEEP_ALIVE_SECONDS = 1.5  # below gunicorn's 2 s and the 5 s of uvicorn, and so of vLLM
CLOSES_SECONDS = 60.0
"""How long a backend that closed an idle connection gets a new one for each request. A request
that crosses such a close on the way may have run, so it is unknown and its money is held."""
LOOK_SECONDS = 0.5  # how often what is idle or silent is looked at; more often for brief patience


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long a backend is waited for, in seconds; the request's own deadline is the journey's."""

    connect_s: float = 5.0
    silence_s: float = 300.0  # without any byte, before the first token too
    tail_s: float = 2.0  # for usage, [DONE] and the end of the body once a finish reason is there


class Unreachable(Exception):
    """No connection could be made: nothing was sent."""


Given = Callable[[Connection | Unreachable], None]
"""Takes the connection that was asked for, or why there is none."""


class Wish:
    """One who waits for a connection; `drop` where it is not wanted any more."""

    __slots__ = ("given", "target", "task")

    def __init__(self, target: Target, given: Given) -> None:
        self.target, self.given = target, given
        self.task: asyncio.Task[None] | None = None  # that connects for it

    def drop(self) -> None:
        self.given = _nobody


class Pool:
    """Owned by one event loop, on which it is made."""

    def __init__(self, patience: Patience, *, allow_link_local: bool) -> None:
        self._patience, self._allow_link_local = patience, allow_link_local
        self._loop = asyncio.get_running_loop()
        self._idle: dict[tuple[bool, str, int], list[Connection]] = {}
        self._origins: dict[Connection, tuple[bool, str, int]] = {}  # of all that are open
        self._closes_until_s: dict[tuple[bool, str, int], float] = {}  # by the loop's clock
        self._told: dict[tuple[bool, str, int], str] = {}  # why one is not reached, as logged
        self._opening = 0
        self._waiting: deque[Wish] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._look_s = min(LOOK_SECONDS, patience.silence_s / 4, patience.tail_s / 4)
        self._retired = False

    @property
    def closed(self) -> bool:
        """Whether it was retired and nothing of it is left."""
        return self._retired and not (self._origins or self._tasks)

    def get(self, target: Target) -> Connection | None:
        """Return an idle connection to a target's origin; None where there is none."""
        idle = self._idle.get(target.origin)
        while idle:
            connection = idle.pop()
            if connection.closing:
                continue
            if self._loop.time() - connection.heard_s >= KEEP_ALIVE_SECONDS:
                connection.abort()
            elif connection.stale:
                connection.abort()
                self._learn(target.origin)
            else:
                return connection
        return None

    def wish(self, target: Target, given: Given) -> Wish:
        """Have a connection given as soon as there is one: not before this returns."""
        wish = Wish(target, given)
        if len(self._origins) + self._opening < CONNECTIONS_LIMIT or self._close_an_idle_one():
            self._open(wish)
        else:
            self._waiting.append(wish)
        return wish

    async def connection(self, target: Target) -> Connection:
        """Return a connection, idle or new. Raises Unreachable."""
        found = self.get(target)
        if found is not None:
            return found
        future: asyncio.Future[Connection | Unreachable] = self._loop.create_future()

        def given(made: Connection | Unreachable) -> None:
            if future.done():
                self._kept(made)
            else:
                future.set_result(made)

        wish = self.wish(target, given)
        try:
            made = await future
        except asyncio.CancelledError:
            wish.drop()
            if future.done() and not future.cancelled():
                self._kept(future.result())
            raise
        if isinstance(made, Unreachable):
            raise made
        return made

    def retire(self) -> None:
        """Close what is idle; what is used closes once its exchange is over."""
        self._retired = True
        for idle in self._idle.values():
            for connection in idle:
                connection.abort()
        self._idle.clear()

    async def close(self) -> None:
        """Close everything at once; whoever reads is told that its connection is lost."""
        self.retire()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for connection in tuple(self._origins):
            connection.give_up("closed")
        if self._timer is not None:
            self._timer.cancel()
        await asyncio.sleep(0)  # the event loop closes their sockets

    def _open(self, wish: Wish) -> None:
        self._opening += 1
        wish.task = self._loop.create_task(self._opened(wish), name="connecting to a backend")
        self._tasks.add(wish.task)
        wish.task.add_done_callback(self._tasks.discard)

    async def _opened(self, wish: Wish) -> None:
        made: Connection | Unreachable
        try:
            made = await self._connect(wish.target)
            self._told.pop(wish.target.origin, None)
        except (OSError, TimeoutError, UnicodeError) as fault:
            made = Unreachable(type(fault).__name__)
            self._tell(wish.target, why_not(fault))
        except asyncio.CancelledError:
            wish.given(Unreachable("closed"))
            raise
        finally:
            self._opening -= 1
        if isinstance(made, Connection):
            self._origins[made] = wish.target.origin
            self._look_later()
        if wish.given is _nobody:
            self._kept(made)
        else:
            wish.given(made)
        if isinstance(made, Unreachable):
            self._next()

    def _kept(self, made: Connection | Unreachable) -> None:
        if isinstance(made, Connection):
            self._returned(made, True)

    async def _connect(self, target: Target) -> Connection:
        """Try a name's addresses one after the other, each for its share of the patience."""
        async with asyncio.timeout(self._patience.connect_s):
            addresses = await addresses_of(
                target.host, target.port, allow_link_local=self._allow_link_local
            )
            share_s = self._patience.connect_s / len(addresses)
            for address in addresses[:-1]:
                with contextlib.suppress(OSError, TimeoutError):
                    async with asyncio.timeout(share_s):
                        return await self._connect_to(address, target)
            return await self._connect_to(addresses[-1], target)

    async def _connect_to(self, address: str, target: Target) -> Connection:
        _, connection = await self._loop.create_connection(
            lambda: Connection(self._returned),
            address,
            target.port,
            ssl=_trusted() if target.secure else None,
            server_hostname=target.host if target.secure else None,
        )
        return connection

    def _tell(self, target: Target, why: str) -> None:
        """Log why a backend isn't reached: once, until it is, or until there is another reason."""
        if self._told.get(target.origin) != why:
            self._told[target.origin] = why
            scheme = "https" if target.secure else "http"
            where = (scheme, target.host, target.port)
            log.warning("no connection to the backend at %s://%s:%d: %s", *where, why)

    def _returned(self, connection: Connection, usable: bool) -> None:
        """Take back a connection whose exchange is over, or one that is gone."""
        origin = self._origins.get(connection)
        if origin is None:
            return
        if not usable:
            if connection.hung_up:
                self._learn(origin)
            del self._origins[connection]
            idle = self._idle.get(origin)
            if idle and connection in idle:
                idle.remove(connection)
            self._next()
        elif self._retired or self._closes(origin):
            connection.abort()
        elif not self._hand_on(connection, origin):
            self._idle.setdefault(origin, []).append(connection)

    def _learn(self, origin: tuple[bool, str, int]) -> None:
        """Remember that a backend closes what is idle: nothing of it is kept for a while."""
        self._closes_until_s[origin] = self._loop.time() + CLOSES_SECONDS
        for connection in self._idle.pop(origin, ()):
            connection.abort()

    def _closes(self, origin: tuple[bool, str, int]) -> bool:
        until_s = self._closes_until_s.get(origin)
        if until_s is None:
            return False
        if self._loop.time() < until_s:
            return True
        del self._closes_until_s[origin]
        return False

    def _hand_on(self, connection: Connection, origin: tuple[bool, str, int]) -> bool:
        """Give a free connection to the one who has waited longest, if it is of its origin."""
        while self._waiting:
            wish = self._waiting[0]
            if wish.given is _nobody:
                self._waiting.popleft()
            elif wish.target.origin == origin:
                self._waiting.popleft().given(connection)
                return True
            else:
                connection.abort()  # its room is another origin's
                return True
        return False

    def _next(self) -> None:
        """There is room for one more: whoever has waited longest gets a connection of its own."""
        while self._waiting and len(self._origins) + self._opening < CONNECTIONS_LIMIT:
            wish = self._waiting.popleft()
            if wish.given is not _nobody:
                self._open(wish)

    def _close_an_idle_one(self) -> bool:
        """Make room of an idle connection to another origin; return whether there was one."""
        for idle in self._idle.values():
            if idle:
                connection = idle.pop(0)
                connection.abort()
                del self._origins[connection]
                return True
        return False

    def _look_later(self) -> None:
        if self._timer is None:
            self._timer = self._loop.call_later(self._look_s, self._look)

    def _look(self) -> None:
        """End what has been silent, unwanted or idle for too long."""
        now_s, patience = self._loop.time(), self._patience
        self._timer = None
        for connection in tuple(self._origins):
            waited_s = now_s - connection.heard_s
            if not connection.busy:
                if waited_s >= KEEP_ALIVE_SECONDS:
                    connection.abort()
            elif not connection.wanted:
                if now_s - connection.let_go_s >= patience.tail_s:
                    connection.abort()
            elif waited_s >= patience.silence_s and not connection.held:
                connection.give_up("silent")
        if self._origins:
            self._look_later()


def why_not(fault: Exception) -> str:
    """Return why there is no connection, in a line for who has to repair it."""
    if isinstance(fault, ssl.SSLCertVerificationError):
        return f"its certificate is refused: {fault.verify_message}"
    if isinstance(fault, ssl.SSLError):
        return f"TLS failed: {fault.reason}"
    if isinstance(fault, TimeoutError) and fault.errno is None:
        return "it didn't answer in time"
    text = fault.strerror if isinstance(fault, OSError) else None
    return text or str(fault) or type(fault).__name__


def _nobody(made: Connection | Unreachable) -> None:
    """Stands for one who does not wait any more."""


@cache
def _trusted() -> ssl.SSLContext:
    """Return how a backend's certificate is checked: by the system's authorities, or by those of
    SSL_CERT_FILE and SSL_CERT_DIR, which OpenSSL reads."""
    return ssl.create_default_context()
