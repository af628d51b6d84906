"""A Unix socket beside the ledger, over which commands hand their operations to the server.

One JSON line asks, one answers. The socket's file is its owner's alone, and the peer's user must
be the server's or root. Its path may be longer than a socket address can hold, so both ends reach
it through the folder's descriptor.
"""

import asyncio
import contextlib
import os
import pwd
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import msgspec

from gateway.operations.base import Actor, Done, Operation, Refused
from gateway.operations.executor import Executor
from gateway.operations.registry import read

MESSAGE_LIMIT_BYTES = 64 << 20  # an invoice file travels in one
ASK_TIMEOUT_S = 30.0  # from the connection to its whole line


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """One operation as it travels."""

    operation: str
    fields: msgspec.Raw


_ANSWER = msgspec.json.Decoder(Done | Refused)


def socket_path(ledger: Path) -> Path:
    """Where the server of a ledger listens: beside the file itself, also for who has a link."""
    file = ledger.resolve()
    return file.with_name(file.name + ".socket")


@contextlib.contextmanager
def _reachable(path: Path) -> Iterator[str]:
    """A short name of the socket: an address holds 107 bytes, a path may be longer."""
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


class LocalSocket:
    """The server's end. Made by `open`; `close` removes its file."""

    def __init__(self, path: Path, server: asyncio.Server) -> None:
        self._path, self._server = path, server

    @classmethod
    async def open(cls, ledger: Path, executor: Executor) -> "LocalSocket":
        """Listen beside the ledger. The caller holds its lock: a file there is a leftover."""
        path = socket_path(ledger)
        path.unlink(missing_ok=True)

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with contextlib.suppress(ConnectionError):
                result = await _answered(reader, writer, executor)
                writer.write(msgspec.json.encode(result) + b"\n")
                await writer.drain()
            writer.close()

        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        with _reachable(path) as name:
            listening.bind(name)
        path.chmod(0o600)
        server = await asyncio.start_unix_server(answer, sock=listening, limit=MESSAGE_LIMIT_BYTES)
        return cls(path, server)

    async def close(self) -> None:
        self._server.close()
        self._path.unlink(missing_ok=True)


async def _answered(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, executor: Executor
) -> Done | Refused:
    user_id = _user_id(writer.get_extra_info("socket"))
    if user_id not in (0, os.geteuid()):
        return Refused(code="ROLE_MISSING", message="The socket serves the server's own user.")
    try:
        line = await asyncio.wait_for(reader.readline(), ASK_TIMEOUT_S)
        ask = msgspec.json.decode(line, type=Ask)
    except (ValueError, TimeoutError):  # too long a line is a ValueError, as is bad JSON
        return Refused(code="INVALID_REQUEST", message="One line of JSON is expected.")
    operation = read(ask.operation, bytes(ask.fields))
    if isinstance(operation, Refused):
        return operation
    actor = Actor(name=user_name(user_id), role="admin", via="command")
    return await executor.perform(operation, actor)


def _user_id(peer: socket.socket) -> int:
    """The user that the peer's process runs as: the kernel says it, not the peer."""
    packed = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return int(struct.unpack("3i", packed)[1])


def user_name(user_id: int) -> str:
    """A system user's name, never what an environment variable says; its number without one."""
    try:
        return pwd.getpwuid(user_id).pw_name
    except KeyError:
        return f"uid-{user_id}"


def ask(ledger: Path, operation: Operation, *, timeout_s: float) -> Done | Refused | None:
    """What the ledger's server answers; None where no server listens beside it."""
    message = Ask(
        operation=operation.NAME,
        fields=msgspec.Raw(msgspec.json.encode(operation)),
    )
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(timeout_s)
        try:
            with _reachable(socket_path(ledger)) as name:
                connection.connect(name)
        except (FileNotFoundError, ConnectionRefusedError):
            return None
        connection.sendall(msgspec.json.encode(message) + b"\n")
        received = b"".join(iter(lambda: connection.recv(1 << 16), b""))
    return _ANSWER.decode(received)
