"""The benchmarks' upstream: an OpenAI-compatible server that answers at once, or at a pace.

`python -P benchmarks/upstream.py PORT` (0: one that is free; it is printed). It imports nothing of
the project, so that it starts at once and costs next to nothing. Its answer is `max_tokens` pieces
of text: one body, or a stream of a chunk each, a finish, usage where asked for, and [DONE].
`PUT /pace/20000` has streams send a chunk each 20,000 µs from then on; 0, all of it in one write.
"""

import asyncio
import sys
import time
from typing import cast

import uvloop

PIECE = " mote"
PROMPT_TOKENS = 32
ID = b"000000000000"  # stands in the templates where an answer's own number goes
TOKENS_LIMIT = 4_096
BODY_LIMIT_BYTES = 4 << 20
SSE_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncache-control: no-cache\r\n"
    b"transfer-encoding: chunked\r\n\r\n"
)
METRICS = b"""\
vllm:num_requests_running{model_name="mote"} 0.0
vllm:num_requests_waiting{model_name="mote"} 0.0
vllm:kv_cache_usage_perc{model_name="mote"} 0.0
vllm:generation_tokens_total{model_name="mote"} 0.0
vllm:request_success_total{model_name="mote",finished_reason="length"} 0.0
"""
TOLD: dict[bytes, bytes] = {
    b"/metrics": METRICS,
    b"/health": b"{}",
    b"/v1/models": b'{"object":"list","data":[{"id":"mote","object":"model","owned_by":"bench"}]}',
    b"/get_model_info": b'{"is_generation":true}',
    b"/model_info": b'{"is_generation":true}',
    b"/get_server_info": b'{"model_id":"mote","dp_size":1}',
    b"/server_info": b'{"model_id":"mote","dp_size":1}',
}


class Shapes:
    """The bytes of an answer of so many tokens, made once and then only given their number."""

    def __init__(self, tokens: int) -> None:
        self.body = (
            b'{"id":"chatcmpl-%s","object":"chat.completion","created":%d,"model":"mote","choices":'
            b'[{"index":0,"message":{"role":"assistant","content":"%s"},"finish_reason":"length"}],'
            b'"usage":%s}'
        ) % (ID, time.time(), (PIECE * tokens).encode(), _usage(tokens))
        self.body = _whole(self.body)
        begins = _chunk(b'{"role":"assistant","content":"%s"}' % PIECE.encode(), b"null")
        goes_on = _chunk(b'{"content":"%s"}' % PIECE.encode(), b"null")
        self.pieces = [begins, *[goes_on] * (tokens - 1)]
        self.finish = _chunk(b"{}", b'"length"')
        self.usage = _framed(
            b'{"id":"chatcmpl-%s","object":"chat.completion.chunk","created":%d,"model":"mote",'
            b'"choices":[],"usage":%s}' % (ID, time.time(), _usage(tokens))
        )
        self.done = _framed(b"[DONE]") + b"0\r\n\r\n"
        self.streams = {
            usage: b"".join((SSE_HEAD, *self.pieces, self.end(usage))) for usage in (False, True)
        }

    def end(self, usage: bool) -> bytes:
        return self.finish + (self.usage if usage else b"") + self.done


def _usage(tokens: int) -> bytes:
    counts = (PROMPT_TOKENS, tokens, PROMPT_TOKENS + tokens)
    return b'{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d}' % counts


def _chunk(delta: bytes, finish: bytes) -> bytes:
    return _framed(
        b'{"id":"chatcmpl-%s","object":"chat.completion.chunk","created":%d,"model":"mote",'
        b'"choices":[{"index":0,"delta":%s,"finish_reason":%s}]}' % (ID, time.time(), delta, finish)
    )


def _framed(data: bytes) -> bytes:
    event = b"data: " + data + b"\n\n"
    return b"%x\r\n%s\r\n" % (len(event), event)


def _whole(body: bytes, status: bytes = b"200 OK") -> bytes:
    return b"HTTP/1.1 %s\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (
        status, len(body), body,
    )  # fmt: skip


class State:
    """What all connections share."""

    def __init__(self) -> None:
        self.shapes: dict[int, Shapes] = {}
        self.pace_s = 0.0
        self.begun = 0

    def of(self, tokens: int) -> Shapes:
        found = self.shapes.get(tokens)
        if found is None:
            found = self.shapes[tokens] = Shapes(tokens)
        return found


class Connection(asyncio.Protocol):
    """One kept-alive connection: requests are answered in order, one at a time."""

    def __init__(self, state: State) -> None:
        self._state, self._unread = state, b""
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, problem: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def data_received(self, data: bytes) -> None:
        data = self._unread + data if self._unread else data
        while data and self._timer is None:
            head_ends = data.find(b"\r\n\r\n")
            if head_ends < 0:
                break
            length = _length(data[:head_ends])
            ends = head_ends + 4 + length
            if length > BODY_LIMIT_BYTES or len(data) < ends:
                break
            self._answer(data[:head_ends], data[head_ends + 4 : ends])
            data = data[ends:]
        self._unread = data

    def _answer(self, head: bytes, body: bytes) -> None:
        method, _, rest = head.partition(b" ")
        path = rest.partition(b" ")[0].partition(b"?")[0]
        if method == b"POST" and path.endswith(b"/chat/completions"):
            self._complete(body)
        elif method == b"PUT" and path.startswith(b"/pace/"):
            self._state.pace_s = int(path[6:]) / 1e6
            self._transport.write(_whole(b"{}"))
        elif method == b"GET" and path in TOLD:
            self._transport.write(_whole(TOLD[path]))
        else:
            self._transport.write(_whole(b"{}", b"404 Not Found"))

    def _complete(self, body: bytes) -> None:
        body = body.replace(b'": ', b'":')  # some callers put spaces into their JSON
        self._state.begun += 1
        number = b"%012d" % self._state.begun
        shapes = self._state.of(min(_tokens(body), TOKENS_LIMIT))
        if b'"stream":true' not in body:
            self._transport.write(shapes.body.replace(ID, number))
            return
        usage = b'"include_usage":true' in body
        if not self._state.pace_s:
            self._transport.write(shapes.streams[usage].replace(ID, number))
            return
        self._transport.write(SSE_HEAD + shapes.pieces[0].replace(ID, number))
        pieces = [*shapes.pieces[1:], shapes.end(usage)]
        self._pace(pieces, 0, number, self._loop.time() + self._state.pace_s)

    def _pace(self, pieces: list[bytes], place: int, number: bytes, due: float) -> None:
        self._timer = self._loop.call_at(due, self._due, pieces, place, number, due)

    def _due(self, pieces: list[bytes], place: int, number: bytes, due: float) -> None:
        self._transport.write(pieces[place].replace(ID, number))
        if place + 1 < len(pieces):
            self._pace(pieces, place + 1, number, due + self._state.pace_s)
        else:
            self._timer = None
            self.data_received(b"")


def _length(head: bytes) -> int:
    lower = head.lower()
    if b"transfer-encoding: chunked" in lower:
        raise ValueError("this upstream takes bodies of a declared length only")
    _, found, length = lower.partition(b"content-length:")
    return int(length.partition(b"\r\n")[0]) if found else 0


def _tokens(body: bytes) -> int:
    for name in (b'"max_tokens":', b'"max_completion_tokens":'):
        _, found, rest = body.partition(name)
        if found:
            return int(rest.partition(b",")[0].partition(b"}")[0])
    return 1


async def serve(port: int) -> None:
    state = State()
    server = await asyncio.get_running_loop().create_server(
        lambda: Connection(state), "127.0.0.1", port, backlog=1_024
    )
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1]) if len(sys.argv) > 1 else 0))
