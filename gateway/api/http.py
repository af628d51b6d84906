"""The little HTTP that the API needs, as plain ASGI: routes, bodies with a limit, responses.

No framework on purpose: a request costs about 0.03 ms of CPU here and 0.8 ms in a Django view.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import parse_qs

import msgspec

from gateway.patience import Patience

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Header = tuple[bytes, bytes]

BODY_TIMEOUT_S = 30.0  # from the headers to the body's last byte
DRAIN_FACTOR = 8  # a body up to this many limits is read and dropped, a longer one is hung up on

QUERY_FIELDS_LIMIT = 64

JSON = b"application/json"
PROBLEM_JSON = b"application/problem+json"
OCTETS = b"application/octet-stream"
EVENT_STREAM = b"text/event-stream; charset=utf-8"

CONNECTION = "weighbridge.connection"
"""A server's extension for the request that runs. `watch` takes what is to be called once its
client hangs up, or None for nothing any more; `ready` says whether a part of its streamed body may
be given to `write` without waiting."""

Access = Literal["open", "key"]
Method = Literal["GET", "POST", "DELETE"]


class ClientGone(Exception):
    """The client hung up before its request was whole; there is nobody to answer."""


class UnreadableQuery(Exception):
    """The query string is no text, or has more than QUERY_FIELDS_LIMIT fields."""


class BodyTooLarge(Exception):
    """The body is over the limit; `hang_up` where the rest isn't worth reading."""

    def __init__(self, hang_up: bool) -> None:
        super().__init__("the body is over the limit")
        self.hang_up = hang_up


class BodyTooSlow(Exception):
    """The body didn't arrive within BODY_TIMEOUT_S."""


class Response(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A whole response; x-request-id is added where it is sent."""

    body: bytes
    status: int = 200
    content_type: bytes = JSON
    headers: tuple[Header, ...] = ()
    request_id: str | None = None
    code: str | None = None  # of a failure


class Request:
    """One exchange: what came, and the way back."""

    __slots__ = (
        "_begun",
        "_ready",
        "_receive",
        "_send",
        "_watch",
        "_whole",
        "_write",
        "headers",
        "method",
        "parameters",
        "path",
        "query_string",
        "repeated",
        "sent_start",
    )

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.query_string: bytes = scope.get("query_string", b"")
        self.parameters: tuple[str, ...] = ()  # what stood in the places of {…}
        self.headers: dict[str, str] = {
            name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]
        }
        # The names that came more than once, of whose values `headers` holds only the last.
        self.repeated: tuple[str, ...] = ()
        if len(self.headers) != len(scope["headers"]):
            counts = Counter(name.decode("latin-1") for name, _ in scope["headers"])
            self.repeated = tuple(name for name, count in counts.items() if count > 1)
        self.sent_start = False
        self._begun: Message = {}
        # An HTTP/1.0 client reads no chunked body: a stream is kept until it is whole.
        self._whole: list[bytes] | None = [] if scope.get("http_version") == "1.0" else None
        connection = (scope.get("extensions") or {}).get(CONNECTION, {})
        self._watch = connection.get("watch")
        self._ready = None if self._whole is not None else connection.get("ready")
        self._write = connection.get("write")
        self._receive = receive
        self._send = send

    @property
    def parameter(self) -> str:
        """What stood in the place of {id}."""
        return self.parameters[0] if self.parameters else ""

    def query(self) -> dict[str, list[str]]:
        """Returns the query string parsed: name -> values in order. Raises UnreadableQuery."""
        try:
            return parse_qs(
                self.query_string.decode("ascii"),
                keep_blank_values=True,
                max_num_fields=QUERY_FIELDS_LIMIT,
                errors="strict",
            )
        except ValueError:
            raise UnreadableQuery from None

    async def body(self, limit_bytes: int) -> bytes:
        """Returns the whole body. Raises BodyTooLarge, BodyTooSlow or ClientGone."""
        announced = self.headers.get("content-length", "")
        if announced.isascii() and announced.isdigit() and len(announced) <= 18:
            if int(announced) > limit_bytes:
                raise BodyTooLarge(hang_up=int(announced) > limit_bytes * DRAIN_FACTOR)
        elif announced:
            raise BodyTooLarge(hang_up=True)
        patience = Patience(BODY_TIMEOUT_S)
        try:
            return await self._read(limit_bytes)
        except asyncio.CancelledError:
            if patience.at_end():
                raise BodyTooSlow from None
            raise
        finally:
            patience.drop()

    async def _read(self, limit_bytes: int) -> bytes:
        pieces: list[bytes] = []
        size = 0
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise ClientGone
            piece = message.get("body", b"")
            size += len(piece)
            if size > limit_bytes:
                raise BodyTooLarge(hang_up=True)
            pieces.append(piece)
            if not message.get("more_body", False):
                return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def watch(self, gone: Callable[[], None] | None) -> bool:
        """Have `gone` called once the client hangs up, or None; False: the server doesn't tell."""
        if self._watch is None:
            return False
        self._watch(gone)
        return True

    async def client_gone(self) -> None:
        """Returns once the client has hung up. Only after the body was read."""
        while (await self._receive())["type"] != "http.disconnect":
            pass

    async def start(self, status: int, headers: list[Header]) -> None:
        """Send the status line and headers of a response whose body follows with `write`."""
        self.sent_start = True
        self._begun = {"type": "http.response.start", "status": status, "headers": headers}
        if self._whole is None:
            await self._send(self._begun)

    async def write(self, body: bytes, *, more: bool) -> None:
        if self._whole is not None:
            self._whole.append(body)
            if more:
                return
            body = b"".join(self._whole)
            self._whole = None
            if not any(name == b"content-length" for name, _ in self._begun["headers"]):
                self._begun["headers"].append((b"content-length", str(len(body)).encode()))
            await self._send(self._begun)
        await self._send({"type": "http.response.body", "body": body, "more_body": more})

    def ready(self) -> bool:
        """Whether `write_now` may be called: what it is given goes to the client without a wait."""
        return self._ready is not None and self._ready()

    def write_now(self, body: bytes) -> None:
        """Write a part of a streamed body that is not its last, from wherever it is made."""
        self._write(body)

    async def respond(self, response: Response, request_id: str) -> None:
        """Send a whole response; to HEAD, its headers alone."""
        headers = [
            (b"content-type", response.content_type),
            (b"content-length", str(len(response.body)).encode()),
            (b"x-request-id", request_id.encode()),
            (b"x-content-type-options", b"nosniff"),
            (b"cache-control", b"no-store"),
            *response.headers,
        ]
        await self.start(response.status, headers)
        await self.write(b"" if self.method == "HEAD" else response.body, more=False)


Handler = Callable[[Request], Awaitable[Response | None]]
"""Returns the response; None where the handler has sent it itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """One row of the API's table of URLs. `{…}` in the path stands for one segment."""

    method: Method
    path: str
    name: str
    access: Access
    handler: Handler
    scopes: tuple[str, ...] = ()  # where access is "key": the key must have one of these


class Table:
    """Finds an endpoint by method and path."""

    def __init__(self, endpoints: tuple[Endpoint, ...]) -> None:
        self.endpoints = endpoints
        self._exact: dict[str, dict[str, Endpoint]] = {}
        self._patterns: list[tuple[tuple[str, ...], dict[str, Endpoint]]] = []
        by_path: dict[str, dict[str, Endpoint]] = {}
        for endpoint in endpoints:
            by_path.setdefault(endpoint.path, {})[endpoint.method] = endpoint
        for path, methods in by_path.items():
            if "{" in path:
                self._patterns.append((tuple(path.split("/")), methods))
            else:
                self._exact[path] = methods

    def find(self, path: str) -> tuple[dict[str, Endpoint], tuple[str, ...]] | None:
        """Returns the endpoints at a path by method, and what stands for each {…}; else None."""
        exact = self._exact.get(path)
        if exact is not None:
            return exact, ()
        segments = path.split("/")
        for pattern, methods in self._patterns:
            if len(pattern) == len(segments):
                parameters = []
                for wanted, segment in zip(pattern, segments, strict=True):
                    if wanted[:1] == "{" and segment:
                        parameters.append(segment)
                    elif wanted != segment:
                        break
                else:
                    return methods, tuple(parameters)
        return None


def allowed_methods(methods: dict[str, Endpoint]) -> str:
    """Returns the value of an Allow header: HEAD goes wherever GET does."""
    return ", ".join(sorted({*methods, "HEAD"} if "GET" in methods else methods))
