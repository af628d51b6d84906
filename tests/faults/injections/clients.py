"""Clients that mean harm, or have gone: raw sockets, none of which reads its answer to the end."""

import asyncio
import contextlib
import resource
import socket
import struct
from random import Random

from tests.faults.load import Load
from tests.faults.rig import TENANTS, Rig
from tests.system.wire import chat_body

IDLE = 10_000
FILES_LEFT = 200  # of the descriptor limit, for everything but the idle connections
AT_ONCE = 1_000
CONNECTING = 200  # at a time, so that the listening queue isn't the fault
LINGER_NONE = struct.pack("ii", 1, 0)  # close with a reset: a port is free again at once


async def idle_connections(rig: Rig, load: Load, chance: Random) -> None:
    """Ten thousand that say nothing, as far as this process may open them."""
    await _crowded(rig, idle_limit(), chance, b"")


def idle_limit() -> int:
    """How many idle connections this process may open, and IDLE at most."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return min(IDLE, soft - FILES_LEFT)


async def half_requests(rig: Rig, load: Load, chance: Random) -> None:
    """Connections that begin a head, or a body, and never go on."""
    body = chat_body(max_tokens=4)
    head = _head(rig, chance, len(body))
    whole = head + body
    await _crowded(rig, 200, chance, whole[: chance.choice((1, len(head) // 2, len(whole) - 1))])


async def garbage_from_clients(rig: Rig, load: Load, chance: Random) -> None:
    await _crowded(rig, 100, chance, chance.randbytes(chance.randint(1, 5_000)))


async def header_bombs(rig: Rig, load: Load, chance: Random) -> None:
    """A head of a megabyte: one long header, many, or a URL of that size."""
    long = b"b" * 1_000_000
    bombs = (
        b"GET /v1/models HTTP/1.1\r\nhost: test\r\nx-bomb: " + long,
        b"GET /v1/models HTTP/1.1\r\nhost: test\r\n" + b"x-bomb: b\r\n" * 100_000,
        b"GET /v1/models?" + long,
    )
    await _crowded(rig, 10, chance, chance.choice(bombs))


async def slow_readers(rig: Rig, load: Load, chance: Random) -> None:
    """Streams of which nobody takes a byte; the connections stay open for a while."""
    body = chat_body(model=chance.choice(("assist", "real")), max_tokens=200, stream=True,
                     ignore_eos=True)  # fmt: skip
    await rig.plan(tokens=200)
    await _crowded(rig, 40, chance, _head(rig, chance, len(body)) + body, hold_s=1.0, buffer=2_048)
    await rig.plan(tokens=16)


async def parallel_disconnects(rig: Rig, load: Load, chance: Random) -> None:
    """A thousand that ask for a stream and hang up: at once, or in its middle, all together."""
    body = chat_body(model=chance.choice(("assist", "real")), max_tokens=100, stream=True,
                     ignore_eos=True)  # fmt: skip
    await _crowded(rig, AT_ONCE, chance, _head(rig, chance, len(body)) + body,
                   hold_s=chance.choice((0.0, 0.2, 1.0)))  # fmt: skip


def _head(rig: Rig, chance: Random, length: int) -> bytes:
    return (
        f"POST /v1/chat/completions HTTP/1.1\r\nhost: test\r\nx-deadline-ms: 4000\r\n"
        f"authorization: Bearer {rig.keys[chance.choice(TENANTS)]}\r\n"
        f"content-length: {length}\r\n\r\n"
    ).encode()


async def _crowded(
    rig: Rig, count: int, chance: Random, sent: bytes, *, hold_s: float = 0.3, buffer: int = 0
) -> None:
    """Open `count` connections, say `sent` on each, hold them, and let all go at once.

    While they are held the server serves others: that is what idle ones must not prevent.
    """
    made: list[socket.socket] = []
    count = min(count, rig.most_connections or count)
    try:
        for first in range(0, count, CONNECTING):
            wave = range(first, min(count, first + CONNECTING))
            made += await asyncio.gather(*(_connected(rig, buffer) for _ in wave))
        rig.note(f"connections of {count:,} made", len(made))
        if sent:
            await asyncio.gather(*(_say(each, sent) for each in made))
        await rig.back()
        await asyncio.sleep(hold_s)
    finally:
        for each in made:
            if chance.random() < 0.5 or count > CONNECTING:
                each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_NONE)
            each.close()


async def _connected(rig: Rig, buffer: int) -> socket.socket:
    connection = socket.socket()
    connection.setblocking(False)
    if buffer:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
    await asyncio.get_running_loop().sock_connect(connection, ("127.0.0.1", rig.port))
    return connection


async def _say(connection: socket.socket, sent: bytes) -> None:
    """Send it; a server that hangs up in the middle of it is in its right."""
    with contextlib.suppress(OSError, TimeoutError):
        async with asyncio.timeout(5):
            await asyncio.get_running_loop().sock_sendall(connection, sent)


KINDS = (
    idle_connections, half_requests, garbage_from_clients, header_bombs, slow_readers,
    parallel_disconnects,
)  # fmt: skip
