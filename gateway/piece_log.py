"""An answer's pieces in order, for as many readers as there are: each reads from the first one."""

import asyncio

from gateway.submission import Delta, Ended
from ledger.errors import LedgerUnavailable

Piece = Delta | Ended | LedgerUnavailable


class PieceLog:
    """Appended to by the journey alone; bounded by the request's output cap."""

    def __init__(self) -> None:
        self._pieces: list[Piece] = []
        self._waiters: list[asyncio.Future[None]] = []
        self.size_chars = 0
        self.ended = False

    def append(self, piece: Piece) -> None:
        self._pieces.append(piece)
        if isinstance(piece, Delta):
            self.size_chars += piece.size_chars
        else:
            self.ended = True
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
        self._waiters.clear()

    async def piece(self, index: int) -> Piece:
        """Return the piece at an index once it is there."""
        while index >= len(self._pieces):
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            await waiter
        return self._pieces[index]
