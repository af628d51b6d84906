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


@dataclass(slots=True)
class Extent:
    """Free blocks next to each other in eviction order; the last `published` are `slot`'s own."""

    blocks: int
    published: int = 0
    slot: int = NO_JOB


@dataclass(slots=True)
class Run:
    """A whole chain that only jobs with that very chain hold: `holders` of them, free without any.

    While it is free it is one entry, `key`, in the order of eviction, its last block first. Once
    somebody comes with another chain that begins alike, it is counted block by block again; `loose`
    are the blocks still in its entry then, in reverse.
    """

    hashes: tuple[int, ...]
    holders: int
    key: int
    loose: list[int] | None = None


class PrefixCache:
    """Published hashes with their owners, and all free blocks in the order of their eviction.

    Jobs are known by slot. A job's blocks are first its tracked ones (full, within the hashes
    that came with it; published or an anonymous second copy), then its private ones. Counts are
    in blocks. What `owners` says of a run's blocks is only that they are there. `tracked` holds
    the hashes themselves for a job that found all of them, by which it may share a run.
    """

    __slots__ = (
        *("_inside", "_last", "_next_key", "_runs", "evictable", "evictable_blocks", "own"),
        *("owners", "tracked"),
    )

    def __init__(self, usable_blocks: int) -> None:
        self.owners: dict[int, int] = {}
        self.tracked: dict[int, Sequence[int]] = {}
        self.own: dict[int, int] = {}
        self.evictable: OrderedDict[int, Extent | Run | None] = OrderedDict()
        self.evictable_blocks = 0
        self._runs: dict[int, Run] = {}  # by each of their hashes
        self._inside: dict[int, Run] = {}  # the run in whose entry a loose block is
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
            elif isinstance(extent, Run):
                self._loosen(extent)
                while surplus and extent.loose:
                    block_hash = extent.loose.pop()
                    del self.owners[block_hash], self._inside[block_hash]
                    surplus -= 1
                if not extent.loose:
                    del evictable[key]
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
        if not self._runs.keys().isdisjoint(hashes):
            for block_hash in hashes:
                if block_hash in self._runs:
                    self._loosen(self._runs[block_hash])
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
            assert isinstance(extent, Extent)  # noqa: S101 - own keys always name extents
            own_hits = min(extent.published, limit - hits)
            return hits + own_hits, unowned + own_hits
        return hits, unowned

    def never_hit_next(self) -> int:
        """Return how many blocks will be evicted before the first that somebody could hit."""
        blocks = 0
        for extent in self.evictable.values():
            if not isinstance(extent, Extent) or extent.slot != NO_JOB:
                break
            blocks += extent.blocks
        return blocks

    def take(self, slot: int, hashes: tuple[int, ...], limit: int) -> tuple[int, int]:
        """Look up and claim at once; return (hits, those of them without an owner)."""
        run = self._runs.get(hashes[0]) if hashes else None
        if run is not None and run.hashes == hashes and len(hashes) <= limit and not self.own:
            self.tracked[slot] = hashes
            run.holders += 1
            hits = len(hashes)
            if run.holders > 1:
                return hits, 0
            del self.evictable[run.key]
            self.evictable_blocks -= hits
            return hits, hits
        hits, unowned = self.lookup(slot, hashes, limit)
        self.claim(slot, hashes, hits)
        if hits == len(hashes):
            self.tracked[slot] = hashes
        return hits, unowned

    def claim(self, slot: int, hashes: tuple[int, ...], hits: int) -> int:
        """Give `slot` the blocks that `lookup` found; return how many tracked ones had no owner.

        What `slot` had published of its own and did not hit is forgotten in place.
        """
        newly_owned = 0
        if hashes:
            owners = self.owners
            held = list(hashes[:hits])
            for block_hash in held:
                count = owners[block_hash]
                if not count:
                    self._remove(block_hash)
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
        if held is None or len(held) <= full_blocks:
            return 0
        assert isinstance(held, list)  # noqa: S101 - who has hit all has computed as much
        for block_hash in held[full_blocks:]:
            if block_hash != ANONYMOUS:
                del self.owners[block_hash]
        retracted = len(held) - full_blocks
        del held[full_blocks:]
        return retracted

    def release(self, slot: int, private_blocks: int, own_published: int, keep_own: bool) -> int:
        """Free all of `slot`'s blocks, last first; return how many tracked ones became free.

        With `keep_own` the `own_published` first of the private ones can be hit by `slot` again.
        """
        if private_blocks:
            if keep_own and own_published:
                self.own[slot] = self._next_key
                self._add(Extent(private_blocks, own_published, slot))
            elif self._last is not None:
                self._last.blocks += private_blocks
                self.evictable_blocks += private_blocks
            else:
                self._append(private_blocks)
        held = self.tracked.pop(slot, None)
        if not held:
            return 0
        if isinstance(held, tuple):
            run = self._runs.get(held[0])
            if run is not None:  # nobody else can hold its blocks
                run.holders -= 1
                if run.holders:
                    return 0
                run.key = self._next_key
                self._next_key -= 1
                self.evictable[run.key] = run
                self._last = None
                self.evictable_blocks += len(held)
                return len(held)
            if all(self.owners[block_hash] == 1 for block_hash in held):
                run = Run(held, 0, self._next_key)
                self._runs.update(dict.fromkeys(held, run))
                self._next_key -= 1
                self.evictable[run.key] = run
                self._last = None
                self.evictable_blocks += len(held)
                return len(held)
        owners, evictable, freed, anonymous = self.owners, self.evictable, 0, 0
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

    def _loosen(self, run: Run) -> None:
        """Count a run block by block; where it is free, its entry keeps its place."""
        if run.loose is not None:
            return
        for block_hash in run.hashes:
            del self._runs[block_hash]
        self.owners.update(dict.fromkeys(run.hashes, run.holders))
        if not run.holders:
            run.loose = list(run.hashes)
            self._inside.update(dict.fromkeys(run.hashes, run))

    def _remove(self, block_hash: int) -> None:
        """Take a published block out of the free ones: it is owned again."""
        run = self._inside.pop(block_hash, None)
        if run is None:
            del self.evictable[block_hash]
            return
        assert run.loose is not None  # noqa: S101 - blocks lie in the entries of loose runs only
        run.loose.remove(block_hash)
        if not run.loose:
            del self.evictable[run.key]

    def _take_own(self, slot: int, blocks: int) -> None:
        key = self.own.pop(slot, None)
        if key is None:
            return
        extent = self.evictable[key]
        assert isinstance(extent, Extent)  # noqa: S101 - own keys always name extents
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
            extent = Extent(blocks)
            self._add(extent)
            self._last = extent

    def _add(self, extent: Extent) -> None:
        self.evictable[self._next_key] = extent
        self._next_key -= 1
        self.evictable_blocks += extent.blocks
        self._last = None
