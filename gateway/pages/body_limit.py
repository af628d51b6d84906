"""A limit on what is sent to the console, kept before Django stores any of it (SEC-3).

Django reads a body whole before a view runs; without this anybody could fill the disk.
"""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final

from ledger.invoices.files import FILE_LIMIT_BYTES

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

FORM_BYTES: Final = 1 << 20  # beside the files: fields, names and boundaries
BODY_LIMIT_BYTES: Final = FILE_LIMIT_BYTES + FORM_BYTES
LENGTH_DIGITS: Final = 18
_SAID: Final = f"The body is larger than {BODY_LIMIT_BYTES:,} bytes; nothing was read.\n".encode()
_HEADERS: Final = (
    (b"content-type", b"text/plain; charset=utf-8"),
    (b"content-length", str(len(_SAID)).encode()),
    (b"connection", b"close"),
)


async def within_limit(
    application: Application, scope: Scope, receive: Receive, send: Send
) -> None:
    """Answer 413 where a larger body is announced; one that grows larger is cut off."""
    if _announced(scope) > BODY_LIMIT_BYTES:
        await send({"type": "http.response.start", "status": 413, "headers": list(_HEADERS)})
        await send({"type": "http.response.body", "body": _SAID})
        return
    received_bytes = 0

    async def counted() -> Message:
        nonlocal received_bytes
        message = await receive()
        received_bytes += len(message.get("body", b""))
        return message if received_bytes <= BODY_LIMIT_BYTES else {"type": "http.disconnect"}

    await application(scope, counted, send)


def _announced(scope: Scope) -> int:
    """The body's length as its header says; 0 where none does, or it is no number."""
    for name, value in scope.get("headers", ()):
        if name == b"content-length" and value.isdigit():
            return int(value[:LENGTH_DIGITS])
    return 0
