"""A client of the API in memory: ASGI calls, whole responses, and a very small gateway."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

from gateway.api.application import Application, api_application
from gateway.api.auth import ALL_SCOPES, KEY_RANDOM_BYTES, KeyRing, mint_key
from gateway.api.http import CONNECTION
from gateway.api.ports import Run
from gateway.idempotency import Claims
from gateway.operations.base import Refused
from gateway.policy.values import TenantState
from gateway.submission import Delta, Ended, Filed, Refusal, Submission
from ledger.reading import connect_read_only
from ledger.store import LedgerUnavailable
from tests.factories import NOW_US, receipt
from tests.gateway.clock import VirtualClock

BODY_LIMIT_BYTES = 10_000
REQUEST_ID = "req_1k1efb08g00h7nem6ae199cdv2q"


@dataclass(frozen=True, kw_only=True)
class Running:
    request_id: str = REQUEST_ID
    created_us: int = NOW_US
    logical_model: str = "assistant-large"
    route_id: str = "route-a"
    identity_id: str = "mid_a"
    fingerprint: str = "sim-mid_a"
    simulated: bool = True
    degraded_from: str | None = None
    handed_over_us: int | None = NOW_US

    def kept_output(self) -> tuple[bool, int]:
        return True, 5


def filed(**fields) -> Filed:
    return Filed(
        receipt=receipt(request_id=REQUEST_ID, **fields),
        seq=7,
        prev_hash=b"\x01" * 32,
        entry_hash=b"\x02" * 32,
    )


def ended(finish_reason="stop", **fields) -> Ended:
    return Ended(finish_reason=finish_reason, filed=filed(**fields))


class SmallJourney:
    """Admits all or refuses all, then yields the given pieces; notes what was asked of it."""

    def __init__(self) -> None:
        self.pieces: list = [Delta(text="Hel", tokens=1), Delta(text="lo", tokens=1), ended()]
        self.run = Running()
        self.runs: tuple[Run, ...] = ()  # instead of `run`, where there are several
        self.refusal: Refusal | None = None
        self.fault: Exception | None = None
        self.submissions: list[Submission] = []
        self.cancelled = asyncio.Event()
        self.hold_before: int | None = None  # a piece that waits until the run is cancelled

    async def admit_together(self, submissions) -> Refusal | tuple[Run, ...]:
        self.submissions += submissions
        if self.fault is not None:
            raise self.fault
        return self.refusal or self.runs or (self.run,) * len(submissions)

    async def deliver(self, run: Run) -> AsyncIterator[Delta | Ended]:
        for position, piece in enumerate(self.pieces):
            if position == self.hold_before:
                await self.cancelled.wait()
            if isinstance(piece, Exception):
                raise piece
            yield piece

    async def batches(
        self, run: Run, choice: int = 0, *, once: bool = False, at_once=None
    ) -> AsyncGenerator[tuple[int, list[Delta | Ended]], None]:
        async for piece in self.deliver(run):
            if at_once is None or isinstance(piece, Ended) or not at_once(piece):
                yield choice, [piece]

    async def whole(self, run: Run) -> list[Delta | Ended]:
        return [piece async for piece in self.deliver(run)]

    async def cancel(self, run: Run) -> None:
        self.cancelled.set()

    async def cancel_by_name(self, tenant_id: str, request_id: str, wait_s: float) -> bool | None:
        return None


def keys_of(*tenants, scopes=ALL_SCOPES, **fields):
    """The keys of tenants by name, and the ring that knows them."""
    made = {
        tenant: mint_key(
            bytes([number + 1]) * KEY_RANDOM_BYTES,
            tenant_id=tenant,
            created_at_us=NOW_US,
            created_by="tests",
            scopes=scopes,
            **fields,
        )
        for number, tenant in enumerate(tenants)
    }
    return {tenant: key for tenant, (key, _) in made.items()}, KeyRing(r for _, r in made.values())


class NoOperations:
    """A server in which nothing can be changed: the tests of operations have a real one."""

    async def perform(self, operation, actor):
        return Refused(code="CONFLICT", message="nothing can be changed here")


class SmallGateway:
    """The ports of the API over a SmallJourney and a ledger file."""

    def __init__(self, ledger_path=None, *, scopes=ALL_SCOPES) -> None:
        self.clock = VirtualClock(NOW_US)
        self.key_of, self.keys = keys_of("tenant-a", "tenant-b", scopes=scopes)
        self.journey: Any = SmallJourney()
        self.claims = Claims(self.clock, "a secret", self.reader)
        self.problems: tuple[str, ...] = ()
        self.operations = NoOperations()
        self.tenant_state: TenantState | None = None
        self._ledger_path = ledger_path

    def models(self):
        return ("assistant-large", "assistant-small")

    def versions(self, model):
        return {"assistant-large": ("mid_a",), "assistant-small": ("mid_a", "mid_b")}.get(model, ())

    def allowance(self, tenant_id):
        return self.tenant_state

    def ready(self):
        return not self.problems, self.problems

    def reader(self):
        return connect_read_only(self._ledger_path)

    async def commit(self, records):
        raise LedgerUnavailable("nothing is written here: the tests of writes have a real server")

    def application(self) -> Application:
        return api_application(self, body_limit_bytes=BODY_LIMIT_BYTES)


@dataclass(kw_only=True)
class Reply:
    status: int = 0
    headers: dict = field(default_factory=dict)
    body: bytes = b""
    messages: int = 0
    at_once: int = 0  # parts of the body that came without one

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def error(self):
        return self.json["error"]

    @property
    def events(self):
        """The data of each server-sent event in order: JSON values, and "[DONE]"."""
        blocks = self.body.decode().split("\n\n")
        assert blocks.pop() == ""
        data = [line[6:] for b in blocks for line in b.split("\n") if line.startswith("data: ")]
        return [text if text == "[DONE]" else json.loads(text) for text in data]


class Client:
    """Calls an ASGI application as a server would, one exchange at a time."""

    def __init__(self, gateway: SmallGateway, tenant: str | None = "tenant-a") -> None:
        self.gateway = gateway
        self.application = gateway.application()
        self.tenant = tenant
        self.ready: Callable[[], bool] | None = None  # of a server that writes parts at once

    def get(self, path, **headers) -> Reply:
        return self.call("GET", path, headers=headers)

    def chat(self, body=None, *, headers=None, again=(), **fields) -> Reply:
        """POST a chat: `body` as it is, or the smallest valid one with `fields` added."""
        if body is None:
            messages = [{"role": "user", "content": "Hi"}]
            body = json.dumps({"model": "assistant-large", "messages": messages, **fields}).encode()
        return self.call("POST", "/v1/chat/completions", body=body, headers=headers, again=again)

    def call(
        self, method, path, *, body=b"", headers=None, hang_up_after=None, again=(), version="1.1"
    ) -> Reply:
        return asyncio.run(
            self.exchange(method, path, body, headers or {}, hang_up_after, again, version)
        )

    async def exchange(
        self, method, path, body, headers, hang_up_after=None, again=(), version="1.1"
    ) -> Reply:
        """One exchange. The client hangs up once `hang_up_after` messages of the reply came.

        `again`: pairs of headers that come after the others, whatever their names.
        """
        self.gateway.journey.cancelled = asyncio.Event()
        sent = {"content-length": str(len(body)), **headers}
        if self.tenant:
            sent = {"authorization": f"Bearer {self.gateway.key_of[self.tenant]}", **sent}
        path, _, query = path.partition("?")
        scope = {
            "type": "http",
            "http_version": version,
            "method": method,
            "path": path,
            "query_string": query.encode(),
            "headers": [(n.encode(), v.encode("latin-1")) for n, v in (*sent.items(), *again)],
        }
        reply, gone = Reply(), asyncio.Event()
        incoming = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive():
            if incoming:
                return incoming.pop(0)
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(message):
            reply.messages += 1
            if message["type"] == "http.response.start":
                reply.status = message["status"]
                reply.headers = {n.decode(): v.decode() for n, v in message["headers"]}
            else:
                reply.body += message["body"]
            if reply.messages == hang_up_after:
                gone.set()

        def write(part: bytes) -> None:
            reply.at_once += 1
            reply.body += part

        if self.ready is not None:
            scope["extensions"] = {CONNECTION: {"ready": self.ready, "write": write}}
        if hang_up_after == 0:
            gone.set()
        await self.application(scope, receive, send)
        return reply
