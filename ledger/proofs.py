"""Proofs that can be checked without the ledger: RFC 6962 inclusion and consistency (LED-7).

An inclusion proof shows that one row stands at its place in the ledger that a checkpoint names; a
consistency proof shows that a later checkpoint continues an earlier one. Both are some dozen
hashes. `ledger/offline_proof.py` and `docs/proofs.md` say how they are checked with nothing
but SHA-256; this module makes them.
"""

from collections.abc import Callable, Sequence
from hashlib import sha256

from ledger.chain import NODE_PREFIX

Subtree = Callable[[int, int], bytes]
"""The root of the leaves start <= index < end, counted from 0."""


def split_point(size: int) -> int:
    """The largest power of two below `size`: where RFC 6962 splits a tree of more than one leaf."""
    return 1 << ((size - 1).bit_length() - 1)


def inclusion_path(index: int, size: int, subtree: Subtree) -> list[bytes]:
    """The hashes that lead from the leaf at `index` to the root of `size` leaves (RFC 6962 2.1.1).

    ValueError where there is no such leaf.
    """
    if not 0 <= index < size:
        raise ValueError(f"no leaf {index} among {size}")
    path: list[bytes] = []
    start, end = 0, size
    while end - start > 1:
        middle = start + split_point(end - start)
        if index < middle:
            path.append(subtree(middle, end))
            end = middle
        else:
            path.append(subtree(start, middle))
            start = middle
    path.reverse()
    return path


def consistency_path(first: int, second: int, subtree: Subtree) -> list[bytes]:
    """The hashes that show the root of `first` leaves inside that of `second` (RFC 6962 2.1.2).

    Empty where both are the same or the first is nothing; ValueError where the first is larger.
    """
    if not 0 <= first <= second:
        raise ValueError(f"{first} leaves can't be the beginning of {second}")
    if first in (0, second):
        return []
    path: list[bytes] = []
    start, end, whole = 0, second, True
    while first != end:
        middle = start + split_point(end - start)
        if first <= middle:
            path.append(subtree(middle, end))
            end = middle
        else:
            path.append(subtree(start, middle))
            start, whole = middle, False
    if not whole:
        path.append(subtree(start, end))
    path.reverse()
    return path


def root_of(leaves: Sequence[bytes]) -> bytes:
    """The RFC 6962 tree hash of leaf hashes; of none, sha256 of nothing."""
    if not leaves:
        return sha256(b"").digest()
    level = list(leaves)
    while len(level) > 1:
        level = [
            sha256(NODE_PREFIX + level[at] + level[at + 1]).digest()
            if at + 1 < len(level)
            else level[at]
            for at in range(0, len(level), 2)
        ]
    return level[0]
