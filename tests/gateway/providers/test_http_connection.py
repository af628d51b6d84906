"""PRV-2, SEC-3: what a backend may do to a connection, and what is made of it."""

import asyncio
import gzip

import pytest

from gateway.providers import http_pool
from gateway.providers.http_connection import HEAD_LIMIT_BYTES, INFLATED_LIMIT_BYTES
from gateway.providers.http_fetch import fetched
from gateway.providers.http_pool import Patience, Pool
from gateway.providers.http_target import head, target_of
from gateway.providers.outcomes import Cancelled, Completed, Failed, Unknown
from gateway.submission import Message
from ledger.rates import Usage
from tests.gateway.providers.calls import call
from tests.gateway.providers.raw import ANSWER, HEAD, STREAM, Raw, answers, at
from tests.gateway.providers.upstream import LIMIT_S, TEXT, against, whole


def test_an_answer_before_the_answer_is_none():
    ends, _ = answers(b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n" + ANSWER)
    assert [(text, type(outcome)) for text, outcome in ends] == [(TEXT, Completed)]


@pytest.mark.parametrize(
    "said",
    [
        HEAD + b"x: " + b"y" * 2 * HEAD_LIMIT_BYTES,
        HEAD + b"x: y\r\n" * HEAD_LIMIT_BYTES,
        b"\x16\x03\x01 no HTTP at all",
        HEAD + b"transfer-encoding: chunked\r\n\r\nnot a length\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nupgrade: other\r\nconnection: upgrade\r\n\r\nother",
    ],
    ids=["a header without an end", "headers without an end", "no HTTP", "no chunks", "upgraded"],
)
def test_what_is_no_http_or_too_much_of_it_is_unknown_since_the_request_was_sent(said):
    [(text, outcome)], _ = answers(said)
    assert (text, type(outcome), outcome.reason) == ("", Unknown, "PROVIDER_CONNECTION_LOST")


class Heard:
    """Keeps what it reads of an answer."""

    def __init__(self):
        self.headers, self.data, self.end = {}, b"", ""

    def head(self, status, headers, framed):
        self.headers = headers

    def body(self, data):
        self.data += data

    def over(self):
        self.end = "over"

    def lost(self, why):
        self.end = why


def test_what_follows_a_body_is_no_header_however_much_of_it_there_is():
    trailers = b"x-request-id: other\r\n" + b"".join(b"x-%d: y\r\n" % n for n in range(20_000))
    own = HEAD + b"x-request-id: own\r\ntransfer-encoding: chunked\r\n\r\n"
    raw = Raw(own + b"2\r\nok\r\n0\r\n" + trailers + b"\r\n")

    async def scenario():
        async with asyncio.timeout(LIMIT_S), raw:
            pool = Pool(Patience(), allow_link_local=False)
            target, heard = target_of(f"http://127.0.0.1:{raw.port}/v1"), Heard()
            connection = await pool.connection(target)
            connection.ask(head(b"GET", target, ()) + b"content-length: 0\r\n\r\n", heard)
            while not heard.end:
                await asyncio.sleep(0)
            await pool.close()
            return heard

    heard = asyncio.run(scenario())
    assert (heard.end, heard.data, heard.headers["x-request-id"]) == ("over", b"ok", "own")
    assert len(heard.headers) == 3


def test_an_answer_that_nobody_asked_for_is_nobodys():
    """SEC-3: it is not taken for the answer to the next request on that connection."""
    ends, raw = answers(ANSWER + ANSWER, times=2)
    assert [(text, type(outcome)) for text, outcome in ends] == [(TEXT, Completed)] * 2
    assert (raw.connections, raw.requests) == (2, 2)


def test_a_connection_that_is_to_be_closed_is_not_used_again():
    ends, raw = answers(ANSWER.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n", 1), times=2)
    assert [type(outcome) for _, outcome in ends] == [Completed] * 2
    assert raw.connections == 2


def test_a_compressed_answer_is_read_though_none_was_asked_for():
    packed = gzip.compress(STREAM)
    said = HEAD + b"content-encoding: gzip\r\ncontent-length: %d\r\n\r\n" % len(packed) + packed
    [(text, outcome)], _ = answers(said)
    assert (text, type(outcome)) == (TEXT, Completed)


def test_a_compressed_answer_that_would_fill_the_memory_is_not_unpacked():
    packed = gzip.compress(b" " * 4 * INFLATED_LIMIT_BYTES)
    said = HEAD + b"content-encoding: gzip\r\ncontent-length: %d\r\n\r\n" % len(packed) + packed
    [(_, outcome)], _ = answers(said)
    assert (type(outcome), outcome.reason) == (Failed, "PROVIDER_ANSWER_TOO_LARGE")


def test_a_request_that_could_not_be_written_as_a_whole_is_cancelled_for_certain():
    """DLV-2: the backend can't have read it, so it costs nothing, whatever the route declares."""

    async def scenario(provider, declared):
        large = (Message(role="user", content="x" * (32 << 20)),)
        attempt = provider.start(call(declared, messages=large))
        carrying = asyncio.create_task(attempt.carry(lambda piece: None))
        while attempt._connection is None or attempt._connection.sent:
            await asyncio.sleep(0)
        attempt.cancel("CLIENT_GONE")
        return await carrying

    outcome = at(Raw(b"", reads=False), scenario)
    assert (type(outcome), outcome.usage) == (Cancelled, Usage(input_tokens=0, output_tokens=0))


def test_whoever_comes_when_all_connections_are_used_waits_for_one(monkeypatch):
    monkeypatch.setattr(http_pool, "CONNECTIONS_LIMIT", 2)
    raw = Raw(ANSWER)

    async def scenario(provider, declared):
        attempts = [provider.start(call(declared, attempt_id=f"req_{n}.0")) for n in range(9)]
        dropped = provider.start(call(declared, attempt_id="req_9.0"))
        dropped.cancel("CLIENT_GONE")
        ends = await asyncio.gather(*(whole(each) for each in (*attempts, dropped)))
        return [type(outcome) for _, outcome in ends]

    assert at(raw, scenario) == [Completed] * 9 + [Cancelled]
    assert (raw.connections, raw.requests) == (2, 9)


def test_what_is_idle_or_wanted_by_nobody_for_too_long_is_closed():
    async def scenario(provider, declared):
        await whole(provider.start(call(declared)))
        pool = provider._pools["real-1"]
        (connection,) = pool._origins
        connection.heard_s -= http_pool.KEEP_ALIVE_SECONDS
        pool._look()
        return connection.closing

    assert at(Raw(ANSWER), scenario) is True


def test_a_rest_of_an_answer_that_never_ends_holds_no_connection():
    said = HEAD + b"transfer-encoding: chunked\r\n\r\n%x\r\n%b\r\n" % (len(STREAM), STREAM)

    async def scenario(provider, declared):
        _, outcome = await whole(provider.start(call(declared)))
        (connection,) = provider._pools["real-1"]._origins
        while not connection.closing:
            await asyncio.sleep(0.01)
        return type(outcome)

    assert at(Raw(said), scenario, patience=Patience(tail_s=0.05)) is Completed


def test_a_reading_of_metrics_that_is_over_touches_no_attempt_on_the_same_connection():
    async def scenario(upstream):
        provider, declared = upstream.provider, upstream.route
        ends = []
        for _ in range(8):
            reading = asyncio.create_task(provider.refresh(declared))
            await asyncio.sleep(0)
            ends.append(await whole(upstream.start()))
            await reading
        return {(text, type(outcome)) for text, outcome in ends}

    assert against(scenario, kv_tokens=1_000) == {(TEXT, Completed)}


def test_a_body_that_is_asked_for_is_read_up_to_its_limit_and_nothing_of_a_slow_one():
    async def scenario():
        said = b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nabcdef"
        async with asyncio.timeout(LIMIT_S), Raw(said) as raw, Raw(b"") as silent:
            pool = Pool(Patience(), allow_link_local=False)
            urls = [f"http://127.0.0.1:{each.port}/metrics" for each in (raw, raw, silent)]
            limits = ((5.0, 100), (5.0, 4), (0.05, 100))
            read = [
                await fetched(pool, url, None, seconds, limit_bytes)
                for url, (seconds, limit_bytes) in zip(urls, limits, strict=True)
            ]
            await pool.close()
            return read

    assert asyncio.run(scenario()) == [b"abcdef", b"abcd", None]


def test_sec_3_a_credential_with_a_line_break_is_sent_nowhere_and_told_to_nobody():
    with pytest.raises(ValueError, match="header Authorization has a line break") as refused:
        head(b"GET", target_of("http://a/"), (("Authorization", "Bearer sk-1\r\nX-Other: 1"),))
    assert "sk-1" not in str(refused.value)


@pytest.mark.parametrize(
    ("url", "asked"),
    [
        ("http://Host.example/v1?a=b%20c", (False, "host.example", 80, b"/v1?a=b%20c")),
        ("https://[::1]:8443/ü b", (True, "::1", 8443, b"/%C3%BC%20b")),
        ("https://bücher.example", (True, "xn--bcher-kva.example", 443, b"/")),
    ],
)
def test_a_url_is_asked_as_it_is_written_and_what_no_request_line_may_have_is_quoted(url, asked):
    target = target_of(url)
    assert (target.secure, target.host, target.port, target.path) == asked


class SecondIsSilent(Raw):
    """Answers every request but the second one."""

    async def read(self, writer):
        self.requests += 1
        if self.requests != 2:
            writer.write(self.said)


@pytest.mark.parametrize("ends", ["reads on", "is cancelled"])
def test_of_a_held_answer_nothing_more_is_read_and_its_silence_is_not_the_backends(ends):
    """SEC-3, PRV-2: what another one's silence costs after the same time."""
    chars, pieces = 60_000, 20
    delta = b'{"choices": [{"index": 0, "delta": {"content": "%b"}}]}' % (b"x" * chars)
    body = b"data: %b\n\n" % delta * pieces + STREAM
    said = HEAD + b"content-length: %d\r\n\r\n" % len(body) + body

    async def scenario(provider, declared):
        attempt, got, began = provider.start(call(declared)), [], asyncio.Event()

        def take(piece):
            got.append(len(piece.text))
            if not began.is_set():
                attempt.hold()
                began.set()

        carrying = asyncio.create_task(attempt.carry(take))
        await began.wait()
        _, silent = await whole(provider.start(call(declared)))
        assert (silent.reason, carrying.done()) == ("PROVIDER_SILENT", False)
        assert len(got) < pieces / 2
        if ends == "is cancelled":
            attempt.cancel("CLIENT_GONE")
        else:
            attempt.go_on()
        outcome = await carrying
        return outcome, await whole(provider.start(call(declared))), sum(got)

    patience = Patience(silence_s=0.05)
    outcome, (_, again), got = at(SecondIsSilent(said), scenario, patience=patience)
    assert type(again) is Completed
    if ends == "reads on":
        assert (type(outcome), got) == (Completed, pieces * chars + len(TEXT))
    else:
        assert (type(outcome), outcome.reason) == (Unknown, "CANCEL_NOT_ACKNOWLEDGED")
