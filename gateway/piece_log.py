"""An answer's pieces in order, for as many readers as there are: each reads from the first one."""

import asyncio
from collections.abc import Sequence

from gateway.providers.base import Attempted
from gateway.submission import Delta, Ended
from ledger.errors import LedgerUnavailable

PIECES_AT_ONCE = 256  # that a reader takes, so that what it makes of them is small
AHEAD_LIMIT_CHARS = 1 << 18
"""How far an answer may be ahead of whoever streams it; beyond it nothing more is read of its
backend, whose own pace is that of its slowest reader from there on."""

Piece = Delta | Ended | LedgerUnavailable
_TAKEN = Delta(text="", tokens=0)


class PieceLog:
    """Appended to by the journey alone; what a provider sends of one answer has a limit there."""

    def __init__(self) -> None:
        self._pieces: list[Piece] = []
        self._waiters: list[asyncio.Future[None]] = []
        self._for_the_end: list[asyncio.Future[None]] = []
        self._size_chars = self._sized = 0  # of how many pieces
        self._readers = 0  # that stream it
        self._ahead_chars = 0  # of pieces that came while none of them waited for one
        self._held: Attempted | None = None
        self.full = False  # it is as far ahead as it may be
        self.ended = False
        self.faulted = False  # one of them is

    @property
    def size_chars(self) -> int:
        """How many characters memory holds of it; added up when somebody asks."""
        unsized = self._pieces[self._sized :]
        self._sized += len(unsized)
        self._size_chars += sum([each.size_chars for each in unsized if isinstance(each, Delta)])
        return self._size_chars

    def append(self, piece: Piece) -> None:
        self._pieces.append(piece)
        if not isinstance(piece, Delta):
            self.ended = True
            self.faulted = self.faulted or isinstance(piece, LedgerUnavailable)
            self._go_on()
            _wake(self._for_the_end)
        elif self._readers and not self._waiters:  # they are all behind
            self._ahead_chars += piece.size_chars
            self.full = self._ahead_chars > AHEAD_LIMIT_CHARS
        if self._waiters:
            _wake(self._waiters)

    def extend(self, pieces: Sequence[Delta]) -> None:
        self._pieces += pieces
        if self._waiters:
            _wake(self._waiters)

    def since(self, index: int) -> Sequence[Piece]:
        """Return the pieces from an index on that are there now, at most PIECES_AT_ONCE."""
        pieces = self._pieces[index : index + PIECES_AT_ONCE]
        if self._ahead_chars:
            self._take(index, pieces)
        return pieces

    def let_go(self, index: int, count: int) -> None:
        """Keep so many pieces from an index on no longer: nobody reads them any more."""
        self._pieces[index : index + count] = [_TAKEN] * count

    def hold(self, attempted: Attempted) -> None:
        """Have no more of the answer read until half of what is ahead has been taken."""
        if self._held is None:
            self._held = attempted
            attempted.hold()

    def join(self) -> None:
        """Count one more who streams it."""
        self._readers += 1

    def leave(self) -> None:
        """Count one less; where nobody streams it any more, nobody is waited for."""
        self._readers -= 1
        if not self._readers:
            self._ahead_chars, self.full = 0, False
            self._go_on()

    def _take(self, index: int, pieces: Sequence[Piece]) -> None:
        if index + len(pieces) == len(self._pieces):
            self._ahead_chars = 0
        else:
            sizes = [each.size_chars for each in pieces if isinstance(each, Delta)]
            self._ahead_chars -= sum(sizes)
        if self._ahead_chars * 2 <= AHEAD_LIMIT_CHARS:
            self.full = False
            self._go_on()

    def _go_on(self) -> None:
        held, self._held = self._held, None
        if held is not None:
            held.go_on()

    def arrival(self) -> asyncio.Future[None]:
        """Return a future of the next piece's being there."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        return waiter

    async def whole(self) -> Sequence[Piece]:
        """Return all pieces once the last one is there; a reader of these is woken once."""
        while not self.ended:
            waiter = asyncio.get_running_loop().create_future()
            self._for_the_end.append(waiter)
            await waiter
        return self._pieces


def _wake(waiters: list[asyncio.Future[None]]) -> None:
    for waiter in waiters:
        if not waiter.done():
            waiter.set_result(None)
    waiters.clear()
