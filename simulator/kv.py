"""KV cache: what a token costs in bytes, and the prefix cache that the engine keeps in extents.

The prefix cache equals a block-by-block pool with hashes, owners and a free list (oracle.py),
but handles a run of blocks that only one job can know as one extent, and evicts lazily: between
two moments at which the order matters, allocations are only counted. Semantics: SCHEDULING 7 in
scheduler.py.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

NO_JOB = -1
ANONYMOUS = -1


def kv_bytes_per_token(*, layers: int, kv_heads: int, head_dim: int, bytes_per_element: int) -> int:
    """Return the bytes of keys and values of one token over all layers, without overheads."""
    return layers * 2 * kv_heads * head_dim * bytes_per_element


@dataclass(slots=True, kw_only=True)
class Extent:
    """Free blocks next to each other in eviction order; the last `published` are `slot`'s own."""

    blocks: int
    published: int = 0
    slot: int = NO_JOB


class PrefixCache:
    """Published hashes with their owners, and all free blocks in the order of their eviction.

    Jobs are known by slot. A job's blocks are first its tracked ones (full, within the hashes
    that came with it; published or an anonymous second copy), then its private ones. Counts are
    in blocks.
    """

    __slots__ = ("_last", "_next_key", "evictable", "evictable_blocks", "own", "owners", "tracked")

    def __init__(self, usable_blocks: int) -> None:
        self.owners: dict[int, int] = {}
        self.tracked: dict[int, Sequence[int]] = {}
        self.own: dict[int, int] = {}
        self.evictable: OrderedDict[int, Extent | None] = OrderedDict()
        self.evictable_blocks = 0
        self._next_key = -1
        self._last: Extent | None = None  # the last of all free blocks, where nobody can hit it
        self._append(usable_blocks)

    def settle(self, free_blocks: int) -> None:
        """Evict, in order, what was allocated since the last call, down to `free_blocks`."""
        surplus = self.evictable_blocks - free_blocks
        if not surplus:
            return
        self.evictable_blocks = free_blocks
        evictable = self.evictable
        while surplus:
            key = next(iter(evictable))
            extent = evictable[key]
            if extent is None:
                del evictable[key], self.owners[key]
                surplus -= 1
            elif extent.blocks > surplus:
                extent.blocks -= surplus
                if extent.published > extent.blocks:
                    extent.published = extent.blocks
                surplus = 0
            else:
                del evictable[key]
                surplus -= extent.blocks
                if extent is self._last:
                    self._last = None
                if extent.slot != NO_JOB:
                    del self.own[extent.slot]

    def lookup(self, slot: int, hashes: tuple[int, ...], limit: int) -> tuple[int, int]:
        """Return (hits, those of them without an owner) among the first `limit` blocks."""
        owners, hits, unowned = self.owners, 0, 0
        for block_hash in hashes if len(hashes) <= limit else hashes[:limit]:
            count = owners.get(block_hash)
            if count is None:
                return hits, unowned
            hits += 1
            if not count:
                unowned += 1
        key = self.own.get(slot)
        if key is not None and limit > hits:
            extent = self.evictable[key]
            assert extent is not None  # noqa: S101 - own keys always name extents
            own_hits = min(extent.published, limit - hits)
            return hits + own_hits, unowned + own_hits
        return hits, unowned

    def never_hit_next(self) -> int:
        """Return how many blocks will be evicted before the first that somebody could hit."""
        blocks = 0
        for extent in self.evictable.values():
            if extent is None or extent.slot != NO_JOB:
                break
            blocks += extent.blocks
        return blocks

    def take(self, slot: int, hashes: tuple[int, ...], limit: int) -> tuple[int, int]:
        """Look up and claim at once; return (hits, those of them without an owner)."""
        if self.own and slot in self.own:
            hits, unowned = self.lookup(slot, hashes, limit)
            self.claim(slot, hashes, hits)
            return hits, unowned
        owners, unowned, hits = self.owners, 0, 0
        for block_hash in hashes if len(hashes) <= limit else hashes[:limit]:
            count = owners.get(block_hash)
            if count is None:
                break
            owners[block_hash] = count + 1
            if not count:
                del self.evictable[block_hash]
                unowned += 1
            hits += 1
        # Who has hit all publishes no more, so that the hashes themselves can stand for its list.
        self.tracked[slot] = hashes if hits == len(hashes) else list(hashes[:hits])
        self.evictable_blocks -= unowned
        return hits, unowned

    def claim(self, slot: int, hashes: tuple[int, ...], hits: int) -> int:
        """Give `slot` the blocks that `lookup` found; return how many tracked ones had no owner.

        What `slot` had published of its own and did not hit is forgotten in place.
        """
        newly_owned = 0
        if hashes:
            owners, evictable = self.owners, self.evictable
            held = list(hashes[:hits])
            for block_hash in held:
                count = owners[block_hash]
                if not count:
                    del evictable[block_hash]
                    newly_owned += 1
                owners[block_hash] = count + 1
            self.tracked[slot] = held
            own_hits = hits - len(held)
        else:
            own_hits = hits
        self._take_own(slot, own_hits)
        self.evictable_blocks -= newly_owned + own_hits
        return newly_owned

    def publish(self, slot: int, hashes: tuple[int, ...], full_blocks: int) -> int:
        """Publish `slot`'s hashed blocks up to `full_blocks`; return how many became tracked."""
        held, owners = self.tracked[slot], self.owners
        before = len(held)
        assert isinstance(held, list)  # noqa: S101 - a tuple stands for all of the hashes
        for block_hash in hashes[before:full_blocks]:
            if block_hash in owners:
                held.append(ANONYMOUS)
            else:
                owners[block_hash] = 1
                held.append(block_hash)
        return len(held) - before

    def retract(self, slot: int, full_blocks: int) -> int:
        """Unpublish tracked blocks from `full_blocks` on; return how many became private."""
        held = self.tracked.get(slot)
        if held is None:
            return 0
        for block_hash in held[full_blocks:]:
            if block_hash != ANONYMOUS:
                del self.owners[block_hash]
        self.tracked[slot] = held[:full_blocks]
        return max(0, len(held) - full_blocks)

    def release(self, slot: int, private_blocks: int, own_published: int, keep_own: bool) -> int:
        """Free all of `slot`'s blocks, last first; return how many tracked ones became free.

        With `keep_own` the `own_published` first of the private ones can be hit by `slot` again.
        """
        if private_blocks:
            if keep_own and own_published:
                self.own[slot] = self._next_key
                self._add(Extent(blocks=private_blocks, published=own_published, slot=slot))
            else:
                self._append(private_blocks)
        held = self.tracked.pop(slot, None)
        if not held:
            return 0
        owners, evictable, freed, anonymous = self.owners, self.evictable, 0, 0
        if isinstance(held, tuple):
            for block_hash in reversed(held):
                owners[block_hash] = count = owners[block_hash] - 1
                if not count:
                    evictable[block_hash] = None
                    freed += 1
            if freed:
                self._last = None
                self.evictable_blocks += freed
            return freed
        for block_hash in reversed(held):
            if block_hash == ANONYMOUS:
                anonymous += 1
                continue
            if anonymous:
                self._append(anonymous)
                freed += anonymous
                anonymous = 0
            count = owners[block_hash] - 1
            owners[block_hash] = count
            if not count:
                evictable[block_hash] = self._last = None
                self.evictable_blocks += 1
                freed += 1
        if anonymous:
            self._append(anonymous)
            freed += anonymous
        return freed

    def forget(self, slot: int) -> None:
        """Let nobody hit the blocks any more that only `slot` could: it has ended."""
        self._take_own(slot, 0)

    def _take_own(self, slot: int, blocks: int) -> None:
        key = self.own.pop(slot, None)
        if key is None:
            return
        extent = self.evictable[key]
        assert extent is not None  # noqa: S101 - own keys always name extents
        extent.blocks -= blocks
        extent.slot, extent.published = NO_JOB, 0
        if not extent.blocks:
            del self.evictable[key]

    def _append(self, blocks: int) -> None:
        """Free blocks that nobody can hit: next to others of that kind they are one extent."""
        if self._last is not None:
            self._last.blocks += blocks
            self.evictable_blocks += blocks
        else:
            extent = Extent(blocks=blocks)
            self._add(extent)
            self._last = extent

    def _add(self, extent: Extent) -> None:
        self.evictable[self._next_key] = extent
        self._next_key -= 1
        self.evictable_blocks += extent.blocks
        self._last = None
