"""An answer's pieces in order, for as many readers as there are: each reads from the first one."""

import asyncio
from collections.abc import Callable, Sequence

from gateway.providers.base import Attempted
from gateway.submission import Delta, Ended
from ledger.errors import LedgerUnavailable

PIECES_AT_ONCE = 256  # that a reader takes, so that what it makes of them is small
AHEAD_LIMIT_CHARS = 1 << 18
"""How far an answer may be ahead of whoever streams it; beyond it nothing more is read of its
backend, whose own pace is that of its slowest reader from there on."""

Piece = Delta | Ended | LedgerUnavailable
AtOnce = Callable[[Delta], bool]
"""Writes a piece in the call that brought it; False where its reader has to be woken for it."""
_TAKEN = Delta(text="", tokens=0)


class PieceLog:
    """Appended to by the journey alone; what a provider sends of one answer has a limit there."""

    def __init__(self) -> None:
        self._pieces: list[Piece] = []
        self._readers: list[PieceReader] = []
        self._for_the_end: list[asyncio.Future[None]] = []
        self._size_chars = self._sized = 0  # of how many pieces
        self._ahead_chars = 0  # of pieces that came while none of its readers waited for one
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
        readers = self._readers
        if len(readers) == 1 and readers[0].wrote(piece):
            self._pieces.append(_TAKEN if readers[0].once else piece)
            return
        self._pieces.append(piece)
        waking = self._wake()
        if not isinstance(piece, Delta):
            self.ended = True
            self.faulted = self.faulted or isinstance(piece, LedgerUnavailable)
            self._go_on()
            for waiter in self._for_the_end:
                if not waiter.done():
                    waiter.set_result(None)
            self._for_the_end.clear()
        elif readers and not waking:  # they are all behind
            self._ahead_chars += piece.size_chars
            self.full = self._ahead_chars > AHEAD_LIMIT_CHARS

    def extend(self, pieces: Sequence[Delta]) -> None:
        self._pieces += pieces
        self._wake()

    def reader(self, *, once: bool = False, at_once: AtOnce | None = None) -> "PieceReader":
        """Return a new reader of it, which has to `leave`.

        `once`: nobody reads them again, so that those which it has done with are let go. `at_once`
        is asked first for each piece that comes while this reader, its only one, waits.
        """
        reader = PieceReader(self, once, at_once)
        self._readers.append(reader)
        return reader

    def hold(self, attempted: Attempted) -> None:
        """Have no more of the answer read until half of what is ahead has been taken."""
        if self._held is None:
            self._held = attempted
            attempted.hold()

    async def whole(self) -> Sequence[Piece]:
        """Return all pieces once the last one is there; a reader of these is woken once."""
        while not self.ended:
            waiter = asyncio.get_running_loop().create_future()
            self._for_the_end.append(waiter)
            await waiter
        return self._pieces

    # Called by its readers.

    def since(self, index: int) -> Sequence[Piece]:
        """Return the pieces from an index on that are there now, at most PIECES_AT_ONCE."""
        pieces = self._pieces[index : index + PIECES_AT_ONCE]
        if self._ahead_chars:
            self._take(index, pieces)
        return pieces

    def let_go(self, index: int, count: int) -> None:
        """Keep so many pieces from an index on no longer: nobody reads them any more."""
        self._pieces[index : index + count] = [_TAKEN] * count

    def left(self, reader: "PieceReader") -> None:
        """Count one less; where nobody streams it any more, nobody is waited for."""
        self._readers.remove(reader)
        if not self._readers:
            self._ahead_chars, self.full = 0, False
            self._go_on()

    def _wake(self) -> bool:
        """Wake whoever waits for a piece; return whether anybody did."""
        waking = False
        for reader in self._readers:
            waking = reader.wake() or waking
        return waking

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


class PieceReader:
    """One who streams an answer: takes its pieces in order, as they come."""

    def __init__(self, log: PieceLog, once: bool, at_once: AtOnce | None) -> None:
        self._log, self.once, self._at_once = log, once, at_once
        self._index = self._given = 0  # where the last ones began, and how many they were
        self._waiter: asyncio.Future[None] | None = None

    async def next(self) -> Sequence[Piece]:
        """Return the pieces that are there once one is; the last ones are done with."""
        log = self._log
        if self.once and self._given:
            log.let_go(self._index, self._given)
        self._index += self._given
        self._given = 0
        while not (pieces := log.since(self._index)):
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        self._given = len(pieces)
        return pieces

    def leave(self) -> None:
        self._waiter = self._at_once = None
        self._log.left(self)

    # Called by its log.

    def wrote(self, piece: Piece) -> bool:
        """Return whether a piece that is the next one for this reader was written at once."""
        at_once, waiter = self._at_once, self._waiter
        if at_once is None or waiter is None or waiter.done() or not isinstance(piece, Delta):
            return False
        try:
            if not at_once(piece):
                return False
        except Exception as fault:  # of the writing: it is its reader's, and no fault of a backend
            waiter.set_exception(fault)
            self._waiter = None
        self._index += 1
        return True

    def wake(self) -> bool:
        """Have it take what has come; return whether it waited for that."""
        waiter, self._waiter = self._waiter, None
        if waiter is None:
            return False
        if not waiter.done():
            waiter.set_result(None)
        return True
