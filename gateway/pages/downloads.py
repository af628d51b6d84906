"""Files that a page sends piece by piece, in constant memory, under either kind of server."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import IO

from django.core.handlers.asgi import ASGIRequest
from django.http import HttpRequest, StreamingHttpResponse

PIECE_BYTES = 1 << 16


def streamed(
    request: HttpRequest,
    pieces: Iterable[bytes],
    *,
    name: str,
    content_type: str,
    rows: int | None = None,
    sha256: str | None = None,
) -> StreamingHttpResponse:
    """The pieces as a file to be saved; with its row count and hash where they are known."""
    body = _one_by_one(iter(pieces)) if isinstance(request, ASGIRequest) else pieces
    response = StreamingHttpResponse(body, content_type=content_type)
    response["Content-Disposition"] = f'attachment; filename="{name}"'
    response["Cache-Control"] = "private, no-store"
    if rows is not None:
        response["X-Row-Count"] = str(rows)
    if sha256 is not None:
        response["X-Content-SHA256"] = sha256
    return response


def pieces_of(file: IO[bytes]) -> Iterator[bytes]:
    """An open file from where it stands, closed at its end."""
    with file:
        while piece := file.read(PIECE_BYTES):
            yield piece


async def _one_by_one(pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
    """Each piece made in a thread, when the client has taken the one before."""
    while (piece := await asyncio.to_thread(next, pieces, None)) is not None:
        yield piece
