"""PRV-2: a connection that the backend has closed, or soon will, is not asked anything."""

import asyncio

import pytest

from gateway.providers import http_pool
from gateway.providers.outcomes import Completed, Unknown
from tests.gateway.providers.calls import call
from tests.gateway.providers.raw import ANSWER, Raw, at
from tests.gateway.providers.upstream import TEXT, whole


class Closing(Raw):
    """A server that closes each connection after its answer, or as the next request comes."""

    def __init__(self, *, at_the_next: bool = False, reset: bool = False) -> None:
        super().__init__(ANSWER)
        self.at_the_next, self.reset = at_the_next, reset

    async def _met(self, reader, writer):
        self.connections += 1
        self.open.add(writer)
        for answers in (True, False):
            head = await reader.readuntil(b"\r\n\r\n")
            length = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
            await reader.readexactly(int(length))
            self.requests += 1
            if answers:
                writer.write(self.said)
                if not self.at_the_next:
                    break
        writer.transport.abort() if self.reset else writer.close()


async def asked(provider, declared):
    text, outcome = await whole(provider.start(call(declared)))
    return text, type(outcome)


def pool_of(provider):
    return provider._pools["real-1"]


async def until_closed(provider):
    while pool_of(provider)._origins:
        await asyncio.sleep(0)


@pytest.mark.parametrize("reset", [False, True])
def test_a_backend_that_closes_after_each_answer_loses_no_request(reset):
    raw = Closing(reset=reset)

    async def scenario(provider, declared):
        first = await asked(provider, declared)
        await until_closed(provider)
        ends = [first]
        for _ in range(4):
            ends.append(await asked(provider, declared))
            assert not any(pool_of(provider)._idle.values())
        return ends

    assert at(raw, scenario) == [(TEXT, Completed)] * 5
    assert (raw.connections, raw.requests) == (5, 5)


def test_a_close_that_the_event_loop_has_not_come_to_is_seen_before_the_connection_is_used():
    async def scenario(provider, declared):
        await asked(provider, declared)
        pool = pool_of(provider)
        (connection,) = pool._origins
        target = next(iter(pool._idle))
        connection._transport.pause_reading()  # so that nothing tells it of the close
        for writer in raw.open:
            writer.close()
        while not connection._poll.poll(0):
            await asyncio.sleep(0)
        assert not connection.closing
        end = await asked(provider, declared)
        return end, connection.closing, pool._closes(target)

    raw = Raw(ANSWER)
    assert at(raw, scenario) == ((TEXT, Completed), True, True)
    assert (raw.connections, raw.requests) == (2, 2)


def test_a_request_that_crosses_the_close_is_unknown_and_the_next_ones_get_fresh_connections():
    raw = Closing(at_the_next=True)

    async def scenario(provider, declared):
        ends = [await asked(provider, declared) for _ in range(5)]
        (until_s,) = pool_of(provider)._closes_until_s.values()
        left_s = until_s - asyncio.get_running_loop().time()
        return ends, 0 < left_s <= http_pool.CLOSES_SECONDS

    completed = (TEXT, Completed)
    assert at(raw, scenario) == ([completed, ("", Unknown), *[completed] * 3], True)
    assert raw.connections == 4


def test_after_a_while_connections_are_kept_again():
    raw = Raw(ANSWER)

    async def scenario(provider, declared):
        await asked(provider, declared)
        pool = pool_of(provider)
        (origin,) = pool._idle
        pool._learn(origin)
        await asked(provider, declared)
        kept = len(pool._idle.get(origin, ()))
        pool._closes_until_s[origin] -= http_pool.CLOSES_SECONDS
        await asked(provider, declared)
        await asked(provider, declared)
        return kept, len(pool._idle[origin]), pool._closes_until_s

    assert at(raw, scenario) == (0, 1, {})
    assert (raw.connections, raw.requests) == (3, 4)


def test_a_connection_that_was_idle_for_too_long_is_not_used_though_nobody_has_looked_yet():
    raw = Raw(ANSWER)

    async def scenario(provider, declared):
        await asked(provider, declared)
        (connection,) = pool_of(provider)._origins
        connection.heard_s -= http_pool.KEEP_ALIVE_SECONDS
        end = await asked(provider, declared)
        return end, pool_of(provider)._closes_until_s  # its own doing teaches it nothing

    assert at(raw, scenario) == ((TEXT, Completed), {})
    assert raw.connections == 2
