"""The queue in front of the replicas: fair between tenants, ageing, bounded (SCH-1, ADM-8).

Weighted deficit round robin over tokens by tenant within a rank; a waiting item gains one rank
for each ageing interval, so no class is starved; where the queue is full, the least urgent class
is shed first. Pure: time is passed in, no clock and no randomness.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuePolicy:
    """Limits and weights; `quantum_tokens` times its weight is a tenant's share of one round.

    Tenants without a weight have 1. Raises ValueError on anything that is not positive.
    """

    max_items: int
    max_tokens: int
    ageing_ps: int
    quantum_tokens: int = 512
    weights: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        positive = (self.max_items, self.max_tokens, self.ageing_ps, self.quantum_tokens)
        if min(positive) < 1 or any(weight < 1 for weight in self.weights.values()):
            raise ValueError("limits, ageing, quantum and weights must be positive")


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """An item of the queue: `rank` 0 is the most urgent, `tokens` is what it will cost."""

    item: int | str
    tenant: str
    rank: int
    tokens: int
    enqueued_ps: int

    def rank_at(self, now_ps: int, ageing_ps: int) -> int:
        """Return the rank that ageing has brought it to by `now_ps`."""
        return max(0, self.rank - (now_ps - self.enqueued_ps) // ageing_ps)


class FairQueue:
    """First in, first out per tenant and rank; see the module's text for the rest."""

    def __init__(self, policy: QueuePolicy) -> None:
        self.policy = policy
        self.tokens = 0
        self._items: dict[int | str, Waiting] = {}
        self._flows: dict[tuple[str, int], dict[int | str, Waiting]] = {}
        self._ranks: dict[int, dict[int | str, Waiting]] = {}
        self._queued: dict[str, int] = {}
        self._deficits: dict[str, int] = {}
        self._ring: deque[str] = deque()

    def __len__(self) -> int:
        return len(self._items)

    def oldest_ps(self) -> int | None:
        """Return when the longest waiting item came, or None."""
        return min((_first(flow).enqueued_ps for flow in self._flows.values()), default=None)

    def offer(self, waiting: Waiting) -> list[Waiting]:
        """Enqueue an item and return what had to be shed for it, possibly the item itself.

        Shed is the least urgent class first, in it the latest comer; so nobody goes for one of
        a less urgent class. Raises ValueError where the item is queued already.
        """
        if waiting.item in self._items:
            raise ValueError(f"item {waiting.item} is queued already")
        self._enqueue(waiting)
        shed = []
        while len(self._items) > self.policy.max_items or self.tokens > self.policy.max_tokens:
            least_urgent = self._ranks[max(self._ranks)]
            last = next(reversed(least_urgent.values()))
            self.remove(last.item)
            shed.append(last)
        return shed

    def take(self, now_ps: int) -> Waiting | None:
        """Return, and dequeue, whose turn it is at `now_ps`; None where nobody waits."""
        ageing_ps = self.policy.ageing_ps
        heads: dict[str, Waiting] = {}
        best: int | None = None
        for (tenant, _), flow in self._flows.items():
            head = _first(flow)
            rank = head.rank_at(now_ps, ageing_ps)
            if best is None or rank < best:
                best, heads = rank, {tenant: head}
            elif rank == best:
                other = heads.get(tenant)
                if other is None or head.enqueued_ps < other.enqueued_ps:
                    heads[tenant] = head
        if not heads:
            return None
        chosen = heads[self._turn(heads)]
        self._deficits[chosen.tenant] -= chosen.tokens
        self.remove(chosen.item)
        return chosen

    def remove(self, item: int | str) -> bool:
        """Take an item out, as for a cancel; return whether it was there."""
        waiting = self._items.pop(item, None)
        if waiting is None:
            return False
        tenant, rank = waiting.tenant, waiting.rank
        self.tokens -= waiting.tokens
        del self._flows[tenant, rank][item], self._ranks[rank][item]
        if not self._flows[tenant, rank]:
            del self._flows[tenant, rank]
        if not self._ranks[rank]:
            del self._ranks[rank]
        self._queued[tenant] -= 1
        if not self._queued[tenant]:
            # A tenant with nothing to send keeps no claim on later rounds.
            del self._queued[tenant], self._deficits[tenant]
            self._ring.remove(tenant)
        return True

    def _enqueue(self, waiting: Waiting) -> None:
        tenant = waiting.tenant
        self._items[waiting.item] = waiting
        self._flows.setdefault((tenant, waiting.rank), {})[waiting.item] = waiting
        self._ranks.setdefault(waiting.rank, {})[waiting.item] = waiting
        self.tokens += waiting.tokens
        if tenant not in self._queued:
            self._queued[tenant] = self._deficits[tenant] = 0
            self._ring.append(tenant)
        self._queued[tenant] += 1

    def _turn(self, heads: Mapping[str, Waiting]) -> str:
        """Return the tenant to serve: the ring's first while its deficit lasts, then in turn.

        Each visit adds the tenant's quantum; as many rounds as nobody can be served in are added
        at once, so long items cost no time.
        """
        first = self._ring[0]
        if first in heads and self._deficits[first] >= heads[first].tokens:
            return first
        self._ring.rotate(-1)
        order = [tenant for tenant in self._ring if tenant in heads]
        visits = {
            tenant: max(1, -(-self._missing(heads[tenant]) // self._quantum(tenant)))
            for tenant in order
        }
        fewest = min(visits.values())
        chosen = next(tenant for tenant in order if visits[tenant] == fewest)
        rounds = fewest
        for tenant in order:
            self._deficits[tenant] += rounds * self._quantum(tenant)
            if tenant == chosen:
                rounds -= 1
        while self._ring[0] != chosen:
            self._ring.rotate(-1)
        return chosen

    def _missing(self, head: Waiting) -> int:
        return head.tokens - self._deficits[head.tenant]

    def _quantum(self, tenant: str) -> int:
        return self.policy.quantum_tokens * self.policy.weights.get(tenant, 1)


def _first(flow: dict[int | str, Waiting]) -> Waiting:
    return next(iter(flow.values()))
