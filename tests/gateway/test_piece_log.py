"""An answer's pieces: how far they may be ahead of who streams them, and what is kept (SEC-3)."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.piece_log import AHEAD_LIMIT_CHARS, PIECES_AT_ONCE, Piece, PieceLog
from gateway.submission import Delta
from ledger.errors import LedgerUnavailable

QUARTER = Delta(text="x" * (AHEAD_LIMIT_CHARS // 4), tokens=1)
SMALL = Delta(text="x", tokens=1)


class Backend:
    """What a log holds back."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def hold(self) -> None:
        self.said.append("hold")

    def go_on(self) -> None:
        self.said.append("go on")

    def cancel(self, reason: str) -> None:
        self.said.append(reason)

    async def carry(self, piece):
        raise AssertionError("nobody carries it here")


def filled(log: PieceLog, backend: Backend, *pieces: Delta) -> None:
    """As the driver does."""
    for piece in pieces:
        log.append(piece)
        if log.full:
            log.hold(backend)


def test_a_backend_is_held_once_its_answer_is_too_far_ahead_and_goes_on_at_half():
    """SEC-3: a client that doesn't read costs so much memory and no more."""
    log, backend = PieceLog(), Backend()
    reader = log.reader()
    filled(log, backend, *[QUARTER] * 4)
    assert backend.said == []
    filled(log, backend, SMALL, SMALL)
    assert backend.said == ["hold"]
    assert len(asyncio.run(reader.next())) == 6
    assert (backend.said, log.full) == (["hold", "go on"], False)


def test_what_a_reader_takes_in_parts_lets_its_backend_go_on_once_half_is_left():
    log, backend = PieceLog(), Backend()
    reader = log.reader()
    part = Delta(text="x" * (AHEAD_LIMIT_CHARS // PIECES_AT_ONCE), tokens=1)
    filled(log, backend, *[part] * (2 * PIECES_AT_ONCE))
    assert backend.said == ["hold"]
    for said in (["hold"], ["hold", "go on"]):
        assert len(asyncio.run(reader.next())) == PIECES_AT_ONCE
        assert backend.said == said


def test_nobody_is_held_for_a_reader_that_waits_nor_where_nobody_streams():
    async def waited() -> list[str]:
        log, backend = PieceLog(), Backend()
        reader = log.reader()
        for _ in range(8):
            waiting = asyncio.ensure_future(reader.next())
            await asyncio.sleep(0)
            filled(log, backend, QUARTER)
            assert await waiting == [QUARTER]
        return backend.said

    assert asyncio.run(waited()) == []
    log, backend = PieceLog(), Backend()
    filled(log, backend, *[QUARTER] * 8)  # a caller that doesn't stream gets it whole
    assert backend.said == []


def test_the_last_reader_that_leaves_and_an_end_let_the_backend_go_on():
    """LED-5: a shared request runs on when its client goes away."""
    log, backend = PieceLog(), Backend()
    reader = log.reader()
    filled(log, backend, *[QUARTER] * 5)
    reader.leave()
    filled(log, backend, *[QUARTER] * 5)
    assert backend.said == ["hold", "go on"]
    log.reader()
    filled(log, backend, *[QUARTER] * 5)
    log.append(LedgerUnavailable("no disk"))
    assert backend.said == ["hold", "go on"] * 2


def test_what_was_let_go_is_kept_no_longer_and_moves_nothing():
    async def read() -> list[int]:
        log = PieceLog()
        for piece in (QUARTER, SMALL):
            log.append(piece)
        once = log.reader(once=True)
        await once.next()
        log.append(QUARTER)
        await once.next()
        return [len(piece.text) for piece in await log.reader().next()]

    assert asyncio.run(read()) == [0, 0, len(QUARTER.text)]


class Writer:
    """Writes what comes while it may; a fault of its own where it is told to have one."""

    def __init__(self) -> None:
        self.written: list[Piece] = []
        self.ready = True
        self.fault: Exception | None = None

    def __call__(self, piece: Delta) -> bool:
        if self.fault is not None:
            raise self.fault
        if self.ready:
            self.written.append(piece)
        return self.ready


@given(
    steps=st.lists(
        st.sampled_from(["piece", "read", "block", "free", "join", "leave"]), max_size=40
    ),
    once=st.booleans(),
)
def test_each_piece_is_written_at_once_or_read_never_both_and_in_order(steps, once):
    """DLV-5: whoever else reads it, joins or leaves, and whether or not the client keeps up."""

    async def played() -> None:
        log, writer, others = PieceLog(), Writer(), []
        reader = log.reader(once=once, at_once=writer)
        waiting: asyncio.Task | None = None
        sent = 0
        for step in [*steps, "read", "free", "read"]:
            if step == "piece":
                log.append(Delta(text=str(sent), tokens=1))
                sent += 1
            elif step in ("block", "free"):
                writer.ready = step == "free"
            elif step == "join" and not once:
                others.append(log.reader())
            elif step == "leave" and others:
                others.pop().leave()
            elif step == "read" and waiting is None:
                waiting = asyncio.ensure_future(reader.next())
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            if waiting is not None and waiting.done():
                writer.written += waiting.result()
                waiting = None
        if waiting is not None:
            waiting.cancel()
        else:
            writer.written += await reader.next() if len(writer.written) < sent else ()
        assert [piece.text for piece in writer.written if isinstance(piece, Delta)] == [
            str(each) for each in range(sent)
        ]
        for other in others:  # who reads it beside gets all of it
            if sent:
                assert [piece.text for piece in await other.next()] == list(map(str, range(sent)))

    asyncio.run(played())


def test_a_fault_of_the_writing_is_its_readers_and_not_its_backends():
    async def written() -> None:
        log, writer = PieceLog(), Writer()
        reader = log.reader(at_once=writer)
        waiting = asyncio.ensure_future(reader.next())
        await asyncio.sleep(0)
        writer.fault = RuntimeError("a chunk that can't be written")
        log.append(SMALL)  # who brings it hears nothing of it
        await waiting

    with pytest.raises(RuntimeError, match="can't be written"):
        asyncio.run(written())


def test_who_was_cancelled_while_it_waited_is_written_nothing():
    async def cancelled() -> list[Piece]:
        log, writer = PieceLog(), Writer()
        reader = log.reader(at_once=writer)
        waiting = asyncio.ensure_future(reader.next())
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.sleep(0)
        log.append(SMALL)
        return writer.written

    assert asyncio.run(cancelled()) == []
