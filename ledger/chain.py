"""The chain over all append-only rows, and the Merkle tree over their leaves (LED-7). Pure.

A row's leaf is sha256(0x00 || canonical bytes), its entry_hash sha256(0x01 || entry_hash of the row
before || leaf). The same leaves stand in an RFC 6962 tree, whose (size, root) is a checkpoint that
can be kept elsewhere: it proves later that nothing up to there was rewritten, not even by someone
who recomputed every hash. Sizes are numbers of rows; seq counts from 1.
"""

from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import Any

import msgspec
import orjson

GENESIS = bytes(32)
HASH_BYTES = 32
LEAF_PREFIX = b"\x00"
NODE_PREFIX = b"\x01"
BLOCK_HEIGHT = 12
BLOCK_ROWS = 1 << BLOCK_HEIGHT  # rows whose subtree's root is kept: what a proof starts from
_BLOCK_MASK = BLOCK_ROWS - 1


class Head(msgspec.Struct, frozen=True, kw_only=True):
    """Where the chain ends: rows so far, the last entry_hash, the tree's perfect subtrees."""

    size: int = 0
    entry_hash: bytes = GENESIS
    frontier: bytes = b""  # one 32-byte root for each 1 bit of size, the largest subtree first


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    """A size of the ledger and the tree's root at that size, in hexadecimal."""

    size: int
    root: str


class BadHead(ValueError):
    """A head whose parts can't belong together."""


def hexadecimal(value: Any) -> str:
    """How bytes stand in a row's JSON. TypeError for what a row can't hold."""
    if isinstance(value, bytes):
        return value.hex()
    raise TypeError(f"a row can't hold a {type(value).__name__}")


def canonical(table: str, version: int, seq: int, values: Sequence[Any]) -> bytes:
    """The bytes that a row's leaf covers: a JSON array of table, version, seq and its fields.

    `values` are the fields of that version in order; bytes stand as lower-case hexadecimal.
    TypeError for a value that has no canonical form (a lone surrogate, an integer over 64 bits).
    """
    return orjson.dumps([table, version, seq, *values], default=hexadecimal)


def leaf_hash(canonical_bytes: bytes) -> bytes:
    return sha256(LEAF_PREFIX + canonical_bytes).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """An inner node of the tree; also a link of the chain, of the hash before and the leaf."""
    return sha256(NODE_PREFIX + left + right).digest()


class Builder:
    """The chain and the tree as rows are added; `head` is its state as a value.

    A batch takes a Builder of the head, adds its rows, and makes its head the new one when the
    transaction is durable: nothing needs to be undone when it is not.
    """

    __slots__ = ("_peaks", "closed", "entry_hash", "size")

    def __init__(self, head: Head | None = None) -> None:
        head = head or Head()
        if len(head.frontier) != HASH_BYTES * head.size.bit_count():
            raise BadHead(f"a frontier of {len(head.frontier)} bytes for {head.size} rows")
        if len(head.entry_hash) != HASH_BYTES:
            raise BadHead(f"an entry hash of {len(head.entry_hash)} bytes")
        self.size = head.size
        self.entry_hash = head.entry_hash
        self.closed: list[tuple[int, bytes]] = []  # (number from 1, root) of blocks ended here
        self._peaks = [
            head.frontier[start : start + HASH_BYTES]
            for start in range(0, len(head.frontier), HASH_BYTES)
        ]

    def add(self, canonical_bytes: bytes) -> bytes:
        """The entry_hash of the next row, which is now the chain's last."""
        return self.add_all((canonical_bytes,))[0]

    def add_all(self, rows: Iterable[bytes]) -> list[bytes]:
        """The entry_hash of each next row, by its canonical bytes; the last is now the chain's."""
        # As `add_leaf`, written out: this is the hottest loop of the writer.
        peaks, size, entry_hash, hashes = self._peaks, self.size, self.entry_hash, []
        for canonical_bytes in rows:
            leaf = sha256(b"\x00" + canonical_bytes).digest()
            entry_hash = sha256(b"\x01" + entry_hash + leaf).digest()
            hashes.append(entry_hash)
            size += 1
            subtrees = size
            if size & _BLOCK_MASK == 0:
                leaf, subtrees = self._close_block(size, leaf), size >> BLOCK_HEIGHT
            while subtrees & 1 == 0:
                leaf = sha256(b"\x01" + peaks.pop() + leaf).digest()
                subtrees >>= 1
            peaks.append(leaf)
        self.size, self.entry_hash = size, entry_hash
        return hashes

    def _close_block(self, size: int, leaf: bytes) -> bytes:
        """The root of the block that the leaf of row `size` ends; kept in `closed`, for proofs."""
        for _ in range(BLOCK_HEIGHT):
            leaf = node_hash(self._peaks.pop(), leaf)
        self.closed.append((size >> BLOCK_HEIGHT, leaf))
        return leaf

    def add_leaf(self, leaf: bytes) -> None:
        """Grows the tree alone by one leaf."""
        peaks, size = self._peaks, self.size
        while size & 1:
            leaf = sha256(NODE_PREFIX + peaks.pop() + leaf).digest()
            size >>= 1
        peaks.append(leaf)
        self.size += 1

    def add_subtree(self, height: int, root: bytes) -> None:
        """Grows the tree alone by a perfect subtree of 2^`height` leaves.

        The size before has to be a multiple of that (ValueError): only there does it fit.
        """
        peaks, subtrees = self._peaks, self.size >> height
        if subtrees << height != self.size:
            raise ValueError(f"no subtree of height {height} begins after {self.size} leaves")
        while subtrees & 1:
            root = node_hash(peaks.pop(), root)
            subtrees >>= 1
        peaks.append(root)
        self.size += 1 << height

    @property
    def head(self) -> Head:
        return Head(size=self.size, entry_hash=self.entry_hash, frontier=b"".join(self._peaks))

    @property
    def root(self) -> bytes:
        """The RFC 6962 tree hash of the leaves so far; of none, sha256 of nothing."""
        if not self._peaks:
            return sha256(b"").digest()
        root = self._peaks[-1]
        for peak in reversed(self._peaks[:-1]):
            root = node_hash(peak, root)
        return root

    @property
    def checkpoint(self) -> Checkpoint:
        return Checkpoint(size=self.size, root=self.root.hex())


def checkpoint_of(head: Head) -> Checkpoint:
    """The checkpoint that a head stands for."""
    return Builder(head).checkpoint
