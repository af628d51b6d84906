"""Minutes of real traffic at a share of what the server can do, with faults of backend and clients.

Three stretches: as fast as it goes, to know the capacity; at the share, until caches are full; at
the share for as long as asked, watched.
"""

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from tests.faults.checks import Checks
from tests.faults.load import Load, Told, one
from tests.faults.rig import Rig, rigged
from tests.soak.watch import Sample, sample

SHARE = 0.7
CACHE_KIB = 4_096  # of pages of the ledger, in place of 64 MiB: it is full after the warm-up
CAPACITY_CLIENTS = 24
AT_ONCE = 256  # exchanges under way; what is over it is not begun, and counted
AT_ONCE_BEFORE = 384  # in the warm-up, at each fault: later peaks find room that the allocator kept
FAULT_EVERY_S = 20.0
FAULT_S = 2.0
REST_LIMIT_S = 240.0  # an unknown's slot comes back a minute after its deadline
Enough = Callable[[float, int], bool]
"""Whether so many seconds and exchanges are enough."""
Plans = tuple[dict[str, object], ...]
ENDING: Plans = (
    {"stall_after": 3}, {"status": 503}, {"garbage_after": 2}, {"end_after": 4}, {"status": 500},
    {"token_delay_s": 0.02},
)  # fmt: skip
"""Faults of the backend after which the end of each attempt is known."""
PLANS: Plans = (*ENDING, {"die_after": 5}, {"close_before_head": True})
"""With those that leave unknowns, whose slots come back a minute later."""


@dataclass(slots=True, kw_only=True)
class Soaked:
    """What a soak did and saw."""

    seed: int
    capacity_rps: float = 0.0
    rate_rps: float = 0.0
    exchanges: int = 0
    not_begun: int = 0
    requests: int = 0
    receipts: int = 0
    broken_off: int = 0
    statuses: dict[int, int] = field(default_factory=dict)
    samples: list[Sample] = field(default_factory=list)
    unknowns: int = 0
    rows: int = 0


async def soak(
    template: Path, folder: Path, *, seed: int, capacity: Enough, warm_up: Enough,
    watched: Enough, plans: Plans = PLANS, sample_s: float = 5.0, tell=lambda line: None,
) -> Soaked:  # fmt: skip
    """The whole soak; each stretch lasts until its `Enough`.

    AssertionError where a receipt is lost or doubled, a hold stays, or the chain is broken.
    """
    soaked, checks, told = Soaked(seed=seed), Checks(), Told()
    async with rigged(template, folder, disk=False, keep_alive=True, cache_kib=CACHE_KIB) as rig:
        async with Load(rig, seed, clients=CAPACITY_CLIENTS, pause_s=0.0) as load:
            begun = time.monotonic()
            while not capacity(time.monotonic() - begun, len(load.told.ids)):
                await asyncio.sleep(0.05)
            soaked.capacity_rps = len(load.told.ids) / (time.monotonic() - begun)
        await checks.after(rig, load.told)
        soaked.rate_rps = SHARE * soaked.capacity_rps
        tell(f"capacity {soaked.capacity_rps:.0f}, from here on {soaked.rate_rps:.0f} requests/s")
        traffic = Traffic(rig, Random(seed), soaked, told, plans)
        await traffic.run(warm_up, None, tell)
        await traffic.run(watched, sample_s, tell)
        await _rested(rig)
        await checks.after(rig, told)
        metrics = await rig.metrics()
        assert metrics["weighbridge_in_flight_requests"] == 0
        assert metrics["weighbridge_held_kv_tokens"] == 0
        soaked.samples.append(sample(rig.pid, rig.ledger, traffic.clock_s(), len(told.ids)))
        rig.kill(15)
        assert rig.status in (0, -15), f"it ended with {rig.status}"
        checks.at_the_end(rig)
        with contextlib.closing(rig.reader()) as reader:
            (soaked.unknowns,) = reader.execute("SELECT count(*) FROM open_hold").fetchone()
        assert "Traceback" not in rig.log.read_text()
    soaked.requests, soaked.receipts, soaked.broken_off = len(told.ids), traffic.seen, told.lost
    soaked.statuses, soaked.rows = told.statuses, checks.rows
    assert told.hung == 0
    return soaked


def for_seconds(seconds: float) -> Enough:
    return lambda so_far_s, exchanges: so_far_s >= seconds


def for_exchanges(count: int) -> Enough:
    return lambda so_far_s, exchanges: exchanges >= count


class Traffic:
    """Exchanges begun at a rate, whatever becomes of those before; a fault every now and then."""

    def __init__(self, rig: Rig, chance: Random, soaked: Soaked, told: Told, plans: Plans) -> None:
        self._rig, self._chance, self._soaked, self._told = rig, chance, soaked, told
        self._begun = time.monotonic()
        self._running: set[asyncio.Task[None]] = set()
        self._plans = deque(plans)
        self._at_once = AT_ONCE
        self.seen = 0  # receipts that were told, and found in the ledger

    def clock_s(self) -> float:
        return time.monotonic() - self._begun

    async def run(self, enough: Enough, sample_s: float | None, tell) -> None:
        """Run until it is enough; with `sample_s` the server is watched at that distance."""
        begins, before = self.clock_s(), self._soaked.exchanges
        self._at_once = AT_ONCE if sample_s is not None else AT_ONCE_BEFORE
        due = fault_due = sample_due = begins
        while not enough((now := self.clock_s()) - begins, self._soaked.exchanges - before):
            while due <= now:
                due += 1 / self._soaked.rate_rps
                self._begin()
            if fault_due <= now:
                fault_due = now + FAULT_EVERY_S
                self._track(asyncio.create_task(self._fault()))
                if sample_s is None:
                    for _ in range(self._at_once - len(self._running)):
                        self._begin()
            if sample_s is not None and sample_due <= now:
                sample_due = now + sample_s
                self._sample(now)
            await asyncio.sleep(0.005)
        await asyncio.gather(*self._running)
        self._check_told()
        tell(f"{len(self._told.ids):,} requests after {self.clock_s():.0f} s")

    def _begin(self) -> None:
        if len(self._running) >= self._at_once:
            self._soaked.not_begun += 1
            return
        self._soaked.exchanges += 1
        self._track(asyncio.create_task(one(self._rig, self._chance, self._told, twice=False)))

    def _track(self, task: "asyncio.Task[None]") -> None:
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _fault(self) -> None:
        self._plans.rotate(-1)
        await self._rig.plan(tokens=16, **self._plans[0])
        await asyncio.sleep(FAULT_S)
        await self._rig.plan(tokens=16)

    def _sample(self, now: float) -> None:
        found = sample(self._rig.pid, self._rig.ledger, now, len(self._told.ids))
        self._soaked.samples.append(found)
        self._check_told()

    def _check_told(self) -> None:
        """What clients were told is in the ledger as it was told; then it is forgotten here."""
        told, self._told.receipts = self._told.receipts, {}
        with contextlib.closing(self._rig.reader()) as reader:
            for request_id, receipt in told.items():
                found = reader.execute(
                    "SELECT seq, entry_hash FROM receipt WHERE request_id = ? AND revision = 0",
                    (request_id,),
                ).fetchall()
                assert [(row[0], row[1].hex()) for row in found] == [
                    (receipt["seq"], receipt["entry_hash"])
                ]
        self.seen += len(told)


async def _rested(rig: Rig) -> None:
    """Return once the server holds no slot: an unknown's comes back after its bound."""
    ends = time.monotonic() + REST_LIMIT_S
    while (await rig.metrics())["weighbridge_in_flight_requests"]:
        assert time.monotonic() < ends, f"slots are held after {REST_LIMIT_S} s at rest"
        await asyncio.sleep(0.5)
