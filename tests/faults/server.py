"""An OpenAI- or KServe-shaped upstream that does each fault on command, byte for byte.

In a test: `async with FaultServer() as upstream: upstream.plan = Plan(die_after=3)`. As a process
of its own (load and fault runs): `python -m tests.faults.server PORT`; then PUT /plan with a
plan's fields as JSON, and GET /exchanges for what became of each request.
"""

import asyncio
import contextlib
import json
import sys
from dataclasses import asdict, dataclass, field

from tests.faults.plan import Plan, Step, refusal_body, steps, whole_body

EXCHANGES_LIMIT = 10_000
BODY_LIMIT_BYTES = 16 << 20
ANSWERED = ("/chat/completions", "/generate", "/generate_stream")
METRICS = """\
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="faulty"} 3.0
vllm:num_requests_waiting{engine="0",model_name="faulty"} 2.0
vllm:kv_cache_usage_perc{engine="0",model_name="faulty"} 0.25
vllm:generation_tokens_total{engine="0",model_name="faulty"} 1200.0
vllm:request_prompt_tokens_sum{engine="0",model_name="faulty"} 900.0
vllm:request_prompt_tokens_count{engine="0",model_name="faulty"} 9.0
"""


@dataclass(slots=True, kw_only=True, eq=False)
class Exchange:
    """One request as the upstream lived it."""

    request: dict = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)
    tokens_generated: int = 0
    tokens_after_disconnect: int = 0
    connection: int = 0  # which connection carried it, from 1
    disconnected: asyncio.Event = field(default_factory=asyncio.Event)
    stalled: asyncio.Event = field(default_factory=asyncio.Event)
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    def told(self) -> dict[str, object]:
        """What is said of it over HTTP: counts and states, no text."""
        return {
            "tokens_generated": self.tokens_generated,
            "tokens_after_disconnect": self.tokens_after_disconnect,
            "disconnected": self.disconnected.is_set(),
            "ended": self.ended.is_set(),
        }


class FaultServer:
    """Listens on a port of its own for as long as its context lasts."""

    def __init__(self, port: int = 0) -> None:
        self.plan = Plan()
        self.plans: list[Plan] = []  # each for one request, before `plan`
        self.exchanges: list[Exchange] = []
        self.metrics = METRICS
        self.stored: dict[str, bytes] = {}  # what a GET of a path is answered with
        self.asked: list[str] = []  # the paths that were asked for by GET, but /metrics
        self.is_ready = True
        self.arrived = asyncio.Event()
        self._port, self._connections = port, 0
        self._serving: set[asyncio.Task] = set()

    async def __aenter__(self) -> "FaultServer":
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self._port)
        self._port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._serving:
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self._port}/v1"

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        self._connections += 1
        try:
            await self._exchanges(reader, writer, self._connections)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the client has gone between two requests
        finally:
            self._serving.discard(task)
            writer.close()

    async def _exchanges(self, reader, writer, number: int) -> None:
        begun = b""
        while True:
            chat = self.plans[0] if self.plans else self.plan
            await asyncio.sleep(chat.accept_delay_s)
            head = begun + await reader.readuntil(b"\r\n\r\n")
            line, *fields = head.decode("latin-1").split("\r\n")
            headers = {
                name.lower(): value.strip()
                for name, _, value in (text.partition(":") for text in fields if text)
            }
            length = min(int(headers.get("content-length", 0)), BODY_LIMIT_BYTES)
            body = await reader.readexactly(length)
            method, target, _ = line.split(" ")
            if method != "POST" or not target.endswith(ANSWERED):
                await self._control(writer, method, target, body)
                begun = b""
                continue
            plan = self.plans.pop(0) if self.plans else self.plan
            exchange = Exchange(request=json.loads(body), headers=headers, connection=number)
            self.exchanges = [*self.exchanges[-EXCHANGES_LIMIT:], exchange]
            self.arrived.set()
            watching = asyncio.create_task(_watch(reader, exchange))
            try:
                keep = await Answering(plan, exchange, writer).run()
            except ConnectionError:
                exchange.disconnected.set()
                keep = False
            finally:
                exchange.ended.set()
                watching.cancel()
                await asyncio.wait([watching])
            if not keep or exchange.disconnected.is_set():
                return
            begun = b"" if watching.cancelled() else watching.result()

    async def _control(self, writer, method: str, target: str, body: bytes) -> None:
        answer, status = b"{}", b"200 OK"
        if method == "GET" and target != "/metrics":
            self.asked = [*self.asked[-EXCHANGES_LIMIT:], target]
        if target.startswith("/v2/") and not self.is_ready:
            status = b"503 Not Ready"
        elif target in self.stored:
            answer = self.stored[target]
        elif target.startswith("/v1/"):
            status = b"404 Not Found"
        elif target == "/metrics":
            answer = self.metrics.encode()
        elif (method, target) == ("PUT", "/plan"):
            self.plan = Plan(**json.loads(body))
        elif target == "/exchanges":
            answer = json.dumps([exchange.told() for exchange in self.exchanges]).encode()
        elif target == "/plan":
            answer = json.dumps(asdict(self.plan)).encode()
        head = b"HTTP/1.1 %b\r\ncontent-length: %d\r\n\r\n" % (status, len(answer))
        writer.write(head + answer)
        await writer.drain()


async def _watch(reader: asyncio.StreamReader, exchange: Exchange) -> bytes:
    """Wait for the next byte: none means that the client has gone."""
    try:
        byte = await reader.read(1)
    except ConnectionError:
        byte = b""
    if not byte:
        exchange.disconnected.set()
    return byte


class Answering:
    """Writes one planned answer."""

    def __init__(self, plan: Plan, exchange: Exchange, writer: asyncio.StreamWriter) -> None:
        self._plan, self._exchange, self._writer = plan, exchange, writer
        self._left = plan.cut_at_byte

    async def run(self) -> bool:
        """Answer; returns whether the connection may carry another request."""
        plan = self._plan
        if plan.close_before_head:
            self._tear()
            return False
        await asyncio.sleep(plan.head_delay_s)
        sent = self._exchange.request
        sent = sent.get("parameters", sent) if plan.protocol == "kserve" else sent
        refused = [name for name in plan.refuses if name in sent]
        if refused:
            body = refusal_body(plan, refused)
            length = {"content-length": str(len(body))}
            self._head("application/json", length, status=plan.refuse_status)
            return await self._write(body, chunked=False)
        if plan.status != 200 or plan.whole:
            body = whole_body(plan) if plan.whole else b'{"error": {"message": "planned"}}'
            self._head("application/json", {"content-length": str(len(body))})
            return await self._write(body, chunked=False) and not plan.close_after
        framing = {"transfer-encoding": "chunked"} if plan.framing == "chunked" else {}
        self._head(plan.content_type, framing)
        for step in steps(plan):
            if not await self._step(step):
                return False
            if step.command == "end":
                break
        if plan.framing != "chunked":
            return False
        await self._flush(b"0\r\n\r\n")
        return not plan.close_after

    async def _step(self, step: Step) -> bool:
        plan, exchange = self._plan, self._exchange
        if step.command == "die":
            self._tear()
            return False
        if step.command == "stall":
            exchange.stalled.set()
            await self._gone(step)
            return False
        if step.token is not None:
            await asyncio.sleep(plan.first_token_delay_s if step.token == 1 else plan.token_delay_s)
            exchange.tokens_generated += 1
            exchange.tokens_after_disconnect += exchange.disconnected.is_set()
        elif exchange.tokens_generated == plan.tokens:
            await asyncio.sleep(plan.tail_delay_s)
        if exchange.disconnected.is_set():
            return plan.keep_generating
        return await self._write(step.body, chunked=plan.framing == "chunked")

    async def _gone(self, step: Step) -> None:
        """Stall until the client has gone; then, if so planned, generate the rest for nobody."""
        plan, exchange = self._plan, self._exchange
        await exchange.disconnected.wait()
        if plan.keep_generating:
            left = plan.tokens - exchange.tokens_generated
            exchange.tokens_generated += left
            exchange.tokens_after_disconnect += left

    def _head(self, content_type: str, more: dict[str, str], *, status: int | None = None) -> None:
        fields = {"content-type": content_type, **more, **self._plan.headers}
        lines = [f"HTTP/1.1 {status or self._plan.status} Planned"]
        lines += [f"{name}: {value}" for name, value in fields.items()]
        self._writer.write("\r\n".join([*lines, "", ""]).encode("latin-1"))

    async def _write(self, body: bytes, *, chunked: bool) -> bool:
        """Write a part of the body, in the planned pieces; returns False where it was cut."""
        cut = self._left is not None and self._left < len(body)
        if self._left is not None:
            body = body[: self._left]
            self._left -= len(body)
        size = self._plan.split_bytes or len(body)
        for at in range(0, len(body), max(1, size)):
            piece = body[at : at + size]
            await self._flush(b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece)
        if cut:
            self._tear()
        return not cut

    async def _flush(self, data: bytes) -> None:
        if self._exchange.disconnected.is_set() and self._plan.keep_generating:
            return
        self._writer.write(data)
        await self._writer.drain()
        # A turn of the event loop between writes lets the reader get each of them alone.
        await asyncio.sleep(0)

    def _tear(self) -> None:
        with contextlib.suppress(ConnectionError):
            self._writer.close()


async def serve(port: int) -> None:
    async with FaultServer(port) as server:
        print(server.base_url, flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1])))
