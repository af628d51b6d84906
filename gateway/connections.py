"""What a connection may take before, between and after requests (SEC-3), and the server's settings.

uvicorn's protocol reads a head of any size for as long as it takes, keeps an answer for a reader
that never reads it, and takes connections until no descriptor is left, not even the ledger's. Here
each of these has a limit, and a client that goes over one is hung up on.
"""

import asyncio
import contextlib
import fcntl
import resource
import sys
import termios
from collections.abc import Callable
from typing import Any, Final, Literal
from urllib.parse import urlsplit

import uvicorn
from django.conf import settings
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from gateway import metrics
from gateway.api.http import CONNECTION
from gateway.unread import Unread

HEAD_LIMIT_BYTES: Final = 65_536  # request line and headers
HEAD_SECONDS: Final = 20.0  # from the connection, or a request's first byte, to the end of its head
MESSAGE_SECONDS: Final = 120.0  # from the end of the head to that of the body; the API has its own
STOPPING_SECONDS: Final = 5.0  # for the rest of a body once the server is asked to stop
UNREAD_SECONDS: Final = 60.0  # in which a reader takes nothing of what waits for it
KEEP_ALIVE_SECONDS: Final = 30
WAITING_LIMIT: Final = 8  # requests behind one that is answered that are read; more wait unread
DESCRIPTORS_LIMIT: Final = 65_536  # a process's own limit is raised to this where it may be
DESCRIPTORS_KEPT: Final = 1_536  # for files, and a full pool of connections to a backend

_CLOSED = b"content-length: 0\r\nconnection: close\r\n\r\n"
_TOO_MANY: Final = b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\n" + _CLOSED
_HEAD_TOO_LARGE: Final = b"HTTP/1.1 431 Request Header Fields Too Large\r\n" + _CLOSED
_TOO_SLOW: Final = b"HTTP/1.1 408 Request Timeout\r\n" + _CLOSED


def connections_limit(descriptors: int) -> int:
    """Return how many connections fit beside what else needs a descriptor; at least a half."""
    return max(descriptors - DESCRIPTORS_KEPT, descriptors // 2)


def raise_descriptors() -> int:
    """Let this process open as many files as it may; return how many that is."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS_LIMIT if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS_LIMIT)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        return wanted
    return DESCRIPTORS_LIMIT if soft == resource.RLIM_INFINITY else soft


def server_config(**options: Any) -> uvicorn.Config:
    """Return uvicorn's settings for the gateway; `options`: where it listens, what it logs.

    What a client says of its own address and scheme is believed of a TLS proxy alone: else anybody
    on this machine could pass for any address, and login again and again.
    """
    limit = connections_limit(raise_descriptors())
    return uvicorn.Config(
        "gateway.asgi:application",
        http=type("Connection", (GuardedProtocol,), {"connections_limit": limit}),
        loop="uvloop",
        ws="none",
        lifespan="on",
        server_header=False,
        proxy_headers=settings.BEHIND_TLS,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        **options,
    )


class GuardedProtocol(HttpToolsProtocol):
    """One client's connection, with its limits."""

    connections_limit = connections_limit(1_024)
    unread_answers = Unread()  # of all connections

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._part: Literal["before", "head", "body", "whole"] = "before"
        self._head_bytes = 0
        self._beside_bytes = 0  # of a body: chunk extensions and trailers, since its last piece
        self._answered: RequestResponseCycle | None = None  # others may wait behind it
        self._waits: asyncio.TimerHandle | None = None  # for the rest of a request
        self._unread: asyncio.TimerHandle | None = None  # while its client is behind
        self._untaken_bytes = 0  # at the last look
        self._gone: Callable[[], None] | None = None  # what is called at a hang-up
        self._lost = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # uvicorn narrows it, too
        super().connection_made(transport)
        if len(self.connections) > self.connections_limit:
            self._hang_up("TOO_MANY_CONNECTIONS", _TOO_MANY)
        else:
            self._wait(HEAD_SECONDS)

    def data_received(self, data: bytes) -> None:
        self._beside_bytes += len(data)
        super().data_received(data)
        if self._part == "head":
            self._head_bytes += len(data)
            over = self._head_bytes > HEAD_LIMIT_BYTES
        else:
            over = self._part == "body" and self._beside_bytes > HEAD_LIMIT_BYTES
        if over:
            self._hang_up("HEAD_TOO_LARGE", _HEAD_TOO_LARGE)
        if self._waits is not None or self.transport.is_closing():
            return
        # What is sent while an earlier request is answered has its time when its turn has come.
        if self._part == "body" and self._answered is self.cycle:
            self._wait(MESSAGE_SECONDS)
        elif self._answered is None or self._answered.response_complete:
            self._wait(HEAD_SECONDS)  # also for bytes of no request, which stop uvicorn's own clock

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._part, self._head_bytes = "head", 0
        self.scope["extensions"] = {
            CONNECTION: {"watch": self.watch, "ready": self.ready, "write": self.write_part}
        }

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header; a trailer is dropped: it may be no header (RFC 9110, section 6.5.1).

        Else it would be one where it comes with the body, and none where it comes later.
        """
        if self._part == "head":
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._wait(None)
        head_bytes = len(self.url) + sum([len(name) + len(value) for name, value in self.headers])
        if head_bytes > HEAD_LIMIT_BYTES:
            self._hang_up("HEAD_TOO_LARGE", _HEAD_TOO_LARGE)
            raise ValueError("the head is over its limit")  # so that nothing more of it is parsed
        hosts = [value for name, value in self.headers if name == b"host"]
        version = self.parser.get_http_version()
        if len(hosts) > 1 or version == "0.9" or (version == "1.1" and not hosts):
            raise ValueError("it has no one host, or no version")  # a 400: RFC 9112, section 3.2
        if hosts and self.url[:1] not in b"/*" and _host_of(self.url) != hosts[0].lower():
            raise ValueError("its target names another host")  # a 400, too: it has two readings
        super().on_headers_complete()
        self._part, self._beside_bytes = "body", 0
        if 0 < len(self.pipeline) <= WAITING_LIMIT:
            self.flow.resume_reading()  # else its client's end would not be seen

    def on_body(self, body: bytes) -> None:
        self._beside_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._wait(None)
        self._part = "whole"
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        if self._amid_an_answer:
            self._hang_up("INVALID_HTTP", b"")
        elif not self.transport.is_closing():
            metrics.turned_away("INVALID_HTTP")
            super().send_400_response(msg)

    @property
    def _amid_an_answer(self) -> bool:
        """Whether what is said now would be read as an earlier request's answer, or within one."""
        answered = self._answered
        if answered is None:
            return False
        if answered is self.cycle and self._part == "body":  # its own, which may be over already
            return answered.response_started
        return not answered.response_complete

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._answered = cycle
        super()._start_asgi_task(cycle, app)
        if self._part == "body" and cycle is self.cycle:  # it waited behind another
            self._wait(MESSAGE_SECONDS)

    def shutdown(self) -> None:
        """End once what is asked here is answered; the rest of a body is waited for less."""
        super().shutdown()
        asked = self._part != "body" or self._answered is not self.cycle
        if not asked and not self.cycle.response_started:
            self._wait(STOPPING_SECONDS)

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._unread is None:
            self._look_later()
            self.unread_answers.add(self)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._caught_up()

    def give_up(self, reason: str) -> None:
        if self._unread is None:
            return
        self._caught_up()
        metrics.turned_away(reason)
        # What waits to be written would keep it open; it may be called amid a write of its own.
        self.loop.call_soon(self.transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        self._wait(None)
        self._caught_up()
        super().connection_lost(exc)
        # uvicorn tells the newest request alone, which may be waiting behind the one that runs.
        if self._answered is not None and not self._answered.response_complete:
            self._answered.disconnected = True
            self._answered.message_event.set()
        self._lost = True
        if self._gone is not None:
            self._gone()
            self._gone = None
        # What a request was told of its connection leads back here: without these all of it, some
        # 17 KB, waits for the collector, which seldom looks at what has lived for a while.
        self.pipeline.clear()
        self.cycle = self._answered = None  # type: ignore[assignment]  # as it is before the first
        self.scope = {}  # type: ignore[typeddict-item]  # no request is read here any more
        self._unset_keepalive_if_required()  # which uvicorn leaves at a reset

    def watch(self, gone: Callable[[], None] | None) -> None:
        """Have `gone` called once the client hangs up, in place of what was; None: nothing.

        A hang-up is read like a request, so reading goes on.
        """
        self._gone = gone
        if gone is None:
            return
        if self._lost:
            self.loop.call_soon(gone)
        else:
            self.flow.resume_reading()

    def ready(self) -> bool:
        """Whether a part of the streamed body that is under way can be written without waiting."""
        cycle = self._answered
        return (
            cycle is not None
            and cycle.chunked_encoding is True
            and not (self.flow.write_paused or cycle.disconnected or cycle.response_complete)
        )

    def write_part(self, body: bytes) -> None:
        """Write a part that is not the last, as uvicorn does, but without a task that waits."""
        if body:  # an empty one would end it
            self.transport.write(b"%x\r\n%b\r\n" % (len(body), body))

    def _unsupported_upgrade_warning(self) -> None:
        """Say nothing: the request is answered as if it had asked for no other protocol."""

    def _wait(self, seconds: float | None) -> None:
        if self._waits is not None:
            self._waits.cancel()
        self._waits = None if seconds is None else self.loop.call_later(seconds, self._too_slow)

    def _too_slow(self) -> None:
        self._hang_up("REQUEST_TOO_SLOW", b"" if self._part == "before" else _TOO_SLOW)

    def _look_later(self) -> None:
        self._untaken_bytes = self.unread_bytes()
        self._unread = self.loop.call_later(UNREAD_SECONDS, self.look)

    def look(self) -> None:
        """Give up a client that has taken nothing since the last look; a slow one may go on."""
        if self.unread_bytes() < self._untaken_bytes:
            self._look_later()
        else:
            self.give_up("ANSWER_NOT_READ")

    def unread_bytes(self) -> int:
        """Return what the client hasn't taken, what waits in our system's own buffer among it."""
        queued = bytes(4)
        with contextlib.suppress(OSError, ValueError):  # it is closed, or no socket of a system's
            descriptor = self.transport.get_extra_info("socket").fileno()
            queued = fcntl.ioctl(descriptor, termios.TIOCOUTQ, queued)
        return self.transport.get_write_buffer_size() + int.from_bytes(queued, sys.byteorder)

    def _caught_up(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None
            self.unread_answers.drop(self)

    def _hang_up(self, reason: str, said: bytes) -> None:
        if not self.transport.is_closing():
            metrics.turned_away(reason)
            if said and not self._amid_an_answer:
                self.transport.write(said)
            self.transport.close()


def _host_of(target: bytes) -> bytes:
    """Return whom a request's target names that is no path."""
    return urlsplit(target).netloc.lower()
