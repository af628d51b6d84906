"""An answer's pieces: how far they may be ahead of who streams them, and what is kept (SEC-3)."""

import asyncio

from gateway.piece_log import AHEAD_LIMIT_CHARS, PIECES_AT_ONCE, PieceLog
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
    log.join()
    filled(log, backend, *[QUARTER] * 4)
    assert backend.said == []
    filled(log, backend, SMALL, SMALL)
    assert backend.said == ["hold"]
    assert len(log.since(0)) == 6
    assert (backend.said, log.full) == (["hold", "go on"], False)


def test_what_a_reader_takes_in_parts_lets_its_backend_go_on_once_half_is_left():
    log, backend = PieceLog(), Backend()
    log.join()
    part = Delta(text="x" * (AHEAD_LIMIT_CHARS // PIECES_AT_ONCE), tokens=1)
    filled(log, backend, *[part] * (2 * PIECES_AT_ONCE))
    assert [len(log.since(index)) for index in (0, 300, 600)] == [PIECES_AT_ONCE, 212, 0]
    assert backend.said == ["hold", "go on"]


def test_nobody_is_held_for_a_reader_that_waits_nor_where_nobody_streams():
    async def waited() -> list[str]:
        log, backend = PieceLog(), Backend()
        log.join()
        for _ in range(8):
            arrival = log.arrival()
            filled(log, backend, QUARTER)
            await arrival
        return backend.said

    assert asyncio.run(waited()) == []
    log, backend = PieceLog(), Backend()
    filled(log, backend, *[QUARTER] * 8)  # a caller that doesn't stream gets it whole
    assert backend.said == []


def test_the_last_reader_that_leaves_and_an_end_let_the_backend_go_on():
    """LED-5: a shared request runs on when its client goes away."""
    log, backend = PieceLog(), Backend()
    log.join()
    filled(log, backend, *[QUARTER] * 5)
    log.leave()
    filled(log, backend, *[QUARTER] * 5)
    assert backend.said == ["hold", "go on"]
    log.join()
    filled(log, backend, *[QUARTER] * 5)
    log.append(LedgerUnavailable("no disk"))
    assert backend.said == ["hold", "go on"] * 2


def test_what_was_let_go_is_kept_no_longer_and_moves_nothing():
    log = PieceLog()
    for piece in (QUARTER, SMALL, QUARTER):
        log.append(piece)
    log.let_go(0, 2)
    assert [len(piece.text) for piece in log.since(0)] == [0, 0, len(QUARTER.text)]
