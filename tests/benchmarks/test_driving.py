"""The load generator against the upstream, in this process: what is whole, and what is not."""

import asyncio
from dataclasses import replace

import pytest

from benchmarks.peers.driving import Door, drive
from benchmarks.peers.values import Load, Taken
from benchmarks.upstream import Connection, State

HEAD = b"HTTP/1.1 200 OK\r\n"


def driven(load: Load, protocol=None, *, grace_s: float = 1.0, pace_us: int = 0):
    """(what a load came to, the upstream's state) on a server of this protocol.

    Again and for longer where the machine was too busy to send anything in its time.
    """

    async def run() -> tuple[Taken, State]:
        state = State()
        state.pace_s = pace_us / 1e6
        server = await asyncio.get_running_loop().create_server(
            protocol or (lambda: Connection(state)), "127.0.0.1", 0
        )
        port = server.sockets[0].getsockname()[1]
        try:
            return await drive(Door(port=port, headers={}), load, grace_s=grace_s), state
        finally:
            server.close()

    taken, state = asyncio.run(run())
    while not taken.sent and load.seconds < 10:
        load = replace(load, seconds=2 * load.seconds)
        taken, state = asyncio.run(run())
    return taken, state


def load(**fields) -> Load:
    plain = Load(name="n", title="t", connections=2, seconds=0.05, tokens=3)
    return replace(plain, **fields)


class Answering(asyncio.Protocol):
    """Answers every request with the same pieces, one a turn of the loop."""

    def __init__(self, *pieces: bytes, close: bool = False) -> None:
        self._pieces, self._close = pieces, close

    def connection_made(self, transport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._next(0)

    def _next(self, place: int) -> None:
        if place < len(self._pieces):
            self._transport.write(self._pieces[place])
            asyncio.get_running_loop().call_soon(self._next, place + 1)
        elif self._close:
            self._transport.close()


@pytest.mark.parametrize("stream", [False, True])
def test_every_request_sent_is_answered_whole_and_was_begun_by_the_upstream(stream):
    taken, state = driven(load(stream=stream))
    assert taken.failed == 0
    assert taken.sent == taken.whole == state.begun > 0
    assert len(taken.first_ns) == (len(taken.latencies_ns) if stream else 0)


def test_a_paced_stream_takes_its_time_and_its_first_token_does_not():
    taken, _ = driven(load(stream=True, pace_us=10_000, seconds=0.3), pace_us=10_000)
    assert taken.failed == 0
    assert min(taken.latencies_ns) >= 29_000_000  # two paces more, and one for the end
    assert min(taken.first_ns) < min(taken.latencies_ns)


def test_answers_with_fewer_tokens_than_asked_for_are_not_whole():
    body = b'{"content":" mote mote"}'
    short = HEAD + b"content-length: %d\r\n\r\n%s" % (len(body), body)
    taken, _ = driven(load(seconds=0.02), lambda: Answering(short))
    assert (taken.whole, taken.latencies_ns) == (0, [])
    assert taken.short == taken.sent > 0


def test_other_statuses_are_counted_by_their_number():
    busy = b"HTTP/1.1 429 Too Many Requests\r\ncontent-length: 0\r\n\r\n"
    taken, _ = driven(load(seconds=0.02), lambda: Answering(busy))
    assert taken.statuses == {429: taken.sent}


def test_an_answer_is_the_same_however_it_is_cut():
    whole = HEAD + b"transfer-encoding: chunked\r\n\r\n12\r\n mote mote mote\r\n\r\n\r\n0\r\n\r\n"
    pieces = [whole[place : place + 1] for place in range(len(whole))]
    taken, _ = driven(load(connections=1, seconds=0.02), lambda: Answering(*pieces))
    assert taken.failed == 0
    assert taken.whole == taken.sent > 0


def test_a_connection_that_closes_after_an_answer_is_opened_again():
    body = b" mote mote mote"
    last = HEAD + b"connection: close\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body)
    taken, _ = driven(load(connections=1, seconds=0.3), lambda: Answering(last, close=True))
    assert taken.whole > 1
    assert taken.whole + taken.lost == taken.sent


def test_what_never_answers_is_unfinished_after_the_grace():
    taken, _ = driven(load(connections=3, seconds=0.01), Answering, grace_s=0.05)
    assert (taken.sent, taken.unfinished, taken.whole) == (3, 3, 0)


def test_a_stream_that_is_left_in_the_middle_is_unfinished():
    taken, state = driven(
        load(connections=1, seconds=0.01, stream=True, pace_us=1_000_000, tokens=2),
        grace_s=-2.0, pace_us=1_000_000,
    )  # fmt: skip
    assert (taken.unfinished, taken.whole, state.begun) == (1, 0, 1)
