"""One connection to a backend: a request written, its answer read, one after the other (PRV-2).

No task and no timer of its own: what comes is handed on from the event loop's own call, and the
pool looks now and then at what has been silent for too long. Redirects are not followed, no proxy
of the environment is used, no cookie is kept.
"""

import asyncio
import select
import time
import zlib
from collections.abc import Callable, Mapping
from typing import Any, Literal, Protocol, cast

import httptools

HEAD_LIMIT_BYTES = 1 << 16  # of an answer: its status line and headers
INFLATED_LIMIT_BYTES = 1 << 20  # of what one read of a compressed body may become
COMPRESSED = frozenset({"gzip", "x-gzip", "deflate"})  # that are read, though none is asked for
REST_LIMIT_BYTES = 1 << 16  # of a body that nobody wants any more

Lost = Literal["closed", "garbage", "silent", "too_large"]
"""Why an exchange has no end: the connection is gone, what came is no HTTP, nothing came, or one
read of a compressed body is over its limit."""


def encoding_of(headers: Mapping[str, str]) -> str:
    """Return how a body is encoded, in lower case; `identity` where it isn't."""
    return headers.get("content-encoding", "").strip().lower() or "identity"


class Reader(Protocol):
    """Who reads an answer. Each is called on the event loop; after `over` or `lost` none is."""

    def head(self, status: int, headers: Mapping[str, str], framed: bool) -> None:
        """Take the head; names are in lower case, of a repeated one the last counts.

        `framed`: a length or chunks tell the body's end from a lost connection.
        """

    def body(self, data: bytes) -> None:
        """Take what came of the body in one read."""

    def over(self) -> None:
        """Take the end of the answer."""

    def lost(self, why: Lost) -> None:
        """Take that no end will come."""


class Connection(asyncio.Protocol):
    """`returned` is called once an exchange is over, with whether another one may follow."""

    def __init__(self, returned: Callable[["Connection", bool], None]) -> None:
        self._returned = returned
        self._transport: asyncio.Transport = cast(asyncio.Transport, None)
        self._reader: Reader | None = None
        self._busy = False  # an answer is awaited, wanted or not
        self._bodies: list[bytes] = []
        self.on_body = self._bodies.append  # called by the parser; C alone
        self._parser = httptools.HttpResponseParser(self)
        self._headers: dict[str, str] = {}
        self._head_bytes = 0
        self._head_read = self._head_told = self._whole = self._framed = self._lasts = False
        self._inflate: Any = None
        self._unread_bytes = 0  # of the rest of a body that nobody wants
        self._unwritten = False
        self._now_s: Callable[[], float] = time.monotonic  # until it has an event loop
        self._poll = select.poll()
        self._ended_there = False  # the backend has ended it, by a FIN
        self._asked = 0  # requests
        self.held = False  # nothing is read of it for now
        self.hung_up = False  # the backend ended it between two answers, without a word
        self.heard_s = 0.0  # when it was last written to or heard of, by the loop's clock
        self.let_go_s = 0.0

    @property
    def closing(self) -> bool:
        return self._transport is None or self._transport.is_closing()

    @property
    def stale(self) -> bool:
        """Whether nothing may be asked over it: what can be read of an idle one is its end.

        Asks the system, for the event loop may not have come to it yet; a microsecond.
        """
        return self.closing or bool(self._poll.poll(0))

    @property
    def busy(self) -> bool:
        return self._busy

    @property
    def wanted(self) -> bool:
        """Whether somebody still reads the answer that is awaited."""
        return self._reader is not None

    def serves(self, reader: Reader) -> bool:
        """Return whether the answer that is awaited is this reader's."""
        return self._reader is reader

    @property
    def sent(self) -> bool:
        """Whether the request was handed to the network as a whole: else none can have read it.

        Over TLS what still waits behind the encryption counts as handed over.
        """
        return not self._unwritten

    def ask(self, request: bytes, reader: Reader) -> None:
        """Write a request, whose answer `reader` gets. Only on a connection that isn't busy."""
        self._reader, self._busy, self.heard_s = reader, True, self._now_s()
        self._asked += 1
        self._headers = {}
        self._head_bytes = self._unread_bytes = 0
        self._head_read = self._head_told = self._whole = self._framed = self._lasts = False
        self._inflate = None
        self._transport.write(request)

    def let_go(self) -> None:
        """Want no more of this answer: its little rest is read so that another may follow."""
        self._reader, self.let_go_s = None, self._now_s()
        self.go_on()

    def abort(self) -> None:
        """Close at once; whoever reads is told nothing any more."""
        self._reader = None
        if not self.closing:
            self._transport.abort()

    def hold(self) -> None:
        """Read nothing more for now."""
        if not self.held and not self.closing:
            self.held = True
            self._transport.pause_reading()

    def go_on(self) -> None:
        """Read on; its silence begins now."""
        if self.held and not self.closing:
            self.held, self.heard_s = False, self._now_s()
            self._transport.resume_reading()

    def give_up(self, why: Lost) -> None:
        """Close at once, and say so to whoever reads."""
        reader, self._reader = self._reader, None
        self.abort()
        if reader is not None:
            reader.lost(why)

    # Called by the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._now_s = asyncio.get_running_loop().time
        self._poll.register(transport.get_extra_info("socket").fileno(), select.POLLIN)
        # So that pause_writing says whether anything is left unwritten. Over TLS a transport pauses
        # at its limit already, so at 0 it would for ever: nothing left is below 1 there.
        over_tls = transport.get_extra_info("sslcontext") is not None
        self._transport.set_write_buffer_limits(high=1 if over_tls else 0)

    def pause_writing(self) -> None:
        self._unwritten = True

    def resume_writing(self) -> None:
        self._unwritten = False

    def data_received(self, data: bytes) -> None:
        self.heard_s = self._now_s()
        if not self._busy:  # said without being asked: nothing that follows can be told apart
            self._transport.abort()
            return
        if not self._head_read:
            self._head_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self._told(garbage=True)
            return
        if not self._head_read and self._head_bytes > HEAD_LIMIT_BYTES:
            self.give_up("garbage")
            return
        self._told()

    def eof_received(self) -> None:
        self._ended_there = True

    def connection_lost(self, exc: Exception | None) -> None:
        reader, self._reader = self._reader, None
        busy, self._busy = self._busy, False
        # One that crosses the next request on the way ends without a byte of its answer.
        idle = not busy or (self._asked > 1 and not self._head_bytes)
        self.hung_up = idle and (self._ended_there or exc is not None)
        if reader is not None:
            # A body without a length ends so; what was framed, or has no head, was lost.
            if busy and self._head_told and not self._framed and exc is None:
                reader.over()
            else:
                reader.lost("closed")
        self._returned(self, False)
        del self._parser  # it holds this in turn: both are freed now, without the collector

    # Called by the parser, in the middle of `data_received`.

    def on_message_begin(self) -> None:
        if self._whole:
            raise ValueError("an answer that nobody asked for")

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._head_read:
            return  # a trailer: whoever reads has the head by now, and they may be without end
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        if self._parser.get_status_code() < 200:  # an answer of its own follows
            self._headers = {}
            return
        headers = self._headers
        self._head_read, self._lasts = True, self._parser.should_keep_alive()
        self._framed = "content-length" in headers or "transfer-encoding" in headers
        if encoding_of(headers) in COMPRESSED:
            self._inflate = zlib.decompressobj(zlib.MAX_WBITS | 32)

    def on_message_complete(self) -> None:
        self._whole = self._whole or self._head_read

    def _told(self, *, garbage: bool = False) -> None:
        """Hand on what one read has brought: head, body, end, in this order."""
        if self._head_read and not self._head_told:
            self._head_told = True
            if self._reader is not None:
                self._reader.head(self._parser.get_status_code(), self._headers, self._framed)
        if self._bodies:
            bodies = self._bodies
            data = bodies[0] if len(bodies) == 1 else b"".join(bodies)
            bodies.clear()
            self._take(data)
        if garbage and not self._whole:
            self.give_up("garbage")
        elif self._whole and self._busy:
            self._end(again=not garbage)

    def _take(self, data: bytes) -> None:
        if self._reader is None:
            self._unread_bytes += len(data)
            if self._unread_bytes > REST_LIMIT_BYTES:
                self._transport.abort()
            return
        if self._inflate is not None:
            try:
                data = self._inflate.decompress(data, INFLATED_LIMIT_BYTES)
            except zlib.error:
                self.give_up("garbage")
                return
            if self._inflate.unconsumed_tail:
                self.give_up("too_large")
                return
        self._reader.body(data)

    def _end(self, *, again: bool) -> None:
        reader, self._reader, self._busy = self._reader, None, False
        if reader is not None:
            reader.over()
        if self.closing:
            return  # connection_lost gives it back
        if again and self._lasts and not self._unwritten:
            self._returned(self, True)
        else:
            self._transport.abort()
