"""A small body asked of a backend: its metrics, whether it is ready, what became of a request."""

import asyncio
from collections.abc import Mapping

from gateway.providers.http_connection import Connection, Lost
from gateway.providers.http_pool import Pool, Unreachable
from gateway.providers.http_target import head, target_of


def authorization(credential: str | None) -> tuple[tuple[str, str], ...]:
    return (("Authorization", f"Bearer {credential}"),) if credential else ()


class Body:
    """Reads an answer into memory, up to a limit: what is over it is not read."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._status = 0
        self._read = bytearray()
        self.done: asyncio.Future[bytes | None] = asyncio.get_running_loop().create_future()

    def head(self, status: int, headers: Mapping[str, str], framed: bool) -> None:
        self._status = status

    def body(self, data: bytes) -> None:
        self._read += data
        if len(self._read) >= self._limit_bytes:
            del self._read[self._limit_bytes :]
            self.over()

    def over(self) -> None:
        if not self.done.done():
            self.done.set_result(bytes(self._read) if self._status == 200 else None)

    def lost(self, why: Lost) -> None:
        if not self.done.done():
            self.done.set_result(None)


async def fetched(
    pool: Pool, url: str, key: str | None, seconds: float, limit_bytes: int
) -> bytes | None:
    """Return the body of a 200, up to a limit; None of whatever else comes, or doesn't."""
    connection: Connection | None = None
    body = Body(limit_bytes)
    try:
        async with asyncio.timeout(seconds):
            target = target_of(url)
            request = head(b"GET", target, authorization(key)) + b"\r\n"
            connection = await pool.connection(target)
            connection.ask(request, body)
            return await body.done
    except (Unreachable, TimeoutError, OSError):
        return None  # of a snapshot, its age says it
    finally:
        if connection is not None and connection.serves(body):
            connection.abort()
