"""An answer's pieces in order, for as many readers as there are: each reads from the first one."""

import asyncio
from collections.abc import Sequence

from gateway.submission import Delta, Ended
from ledger.errors import LedgerUnavailable

Piece = Delta | Ended | LedgerUnavailable


class PieceLog:
    """Appended to by the journey alone; what a provider sends of one answer has a limit there."""

    def __init__(self) -> None:
        self._pieces: list[Piece] = []
        self._waiters: list[asyncio.Future[None]] = []
        self._for_the_end: list[asyncio.Future[None]] = []
        self._size_chars = self._sized = 0  # of how many pieces
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
            _wake(self._for_the_end)
        if self._waiters:
            _wake(self._waiters)

    def extend(self, pieces: Sequence[Delta]) -> None:
        self._pieces += pieces
        if self._waiters:
            _wake(self._waiters)

    def since(self, index: int) -> Sequence[Piece]:
        """Return all pieces from an index on that are there now."""
        return self._pieces[index:]

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
