"""A gateway's ledger and book under a seeded storm: kills, duplicates, reordering, clock jumps.

The store, its projections and the book are the real ones; requests are simulated. After each step
debits = credits, pending >= 0, available = limit - posted - pending, and the new rows continue the
chain (LED-1, LED-4, LED-6, LED-7). A clock that is set back stays in its day: what the book has
spent counts from when the day and the month began.
"""

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec

from gateway.book import Book, Hold
from gateway.quota import BUDGET_PERIODS, Quota
from gateway.runtime import enter_tenants
from ledger import store as store_module
from ledger import write_ahead
from ledger.balances import balances
from ledger.errors import RecordRefused
from ledger.invariants import audit
from ledger.queries.holds import posted_pico_since
from ledger.reading import connect_read_only
from ledger.records import Record
from ledger.recovery import unfinished
from ledger.rollups.projection import Rollups
from ledger.sharing import rows_of
from ledger.store import Store
from ledger.verify import verify
from ledger.walk import Faults, Walk, rows_by_seq
from tests import factories
from tests.crashes import disk, fates
from tests.crashes.fates import Request

ROUTE = "route-a"
TENANTS = ("acme", "globex", "initech")
IN_FLIGHT_LIMIT = 12
BUDGET_PICO = 10**12
DAY_US = 86_400_000_000
NEVER = 1 << 60  # no upkeep on the store's own account: the simulation decides when

Acknowledged = Callable[[], None]


class World:
    """One ledger through many lives of its process. `step` is one thing that happens."""

    def __init__(self, template: Path, folder: Path, seed: int) -> None:
        store_module.IDLE_WAIT_S = NEVER / 1e18
        write_ahead.PAGES_BUSY = write_ahead.PAGES_IDLE = NEVER
        self.chance = random.Random(seed)
        self.folder, self.lives = folder, 0
        self.now_us = factories.NOW_US
        self.numbers = iter(range(1, 10**9))
        self.open: dict[int, Request] = {}
        self.unknown: dict[int, Request] = {}
        self.written: list[tuple[Record, ...]] = []
        self.happened: dict[str, int] = {}
        self.walk = Walk({}, Faults())
        quota = Quota(in_flight_limit=IN_FLIGHT_LIMIT, budget_pico=BUDGET_PICO)
        body = msgspec.json.encode(quota).decode()
        self.quota = quota
        self._begin(disk.read(template))
        tenants = [factories.tenant(tenant_id=name, body_json=body) for name in TENANTS]
        self._append((factories.rate_table(), *tenants))
        self._restart(disk.read(self.ledger))

    def step(self) -> None:
        """One thing happens, and everything that must hold afterwards is asked for."""
        acts = {
            self.admit: 30, self.end: 24, self.lose: 5, self.resolve: 4, self.duplicate: 6,
            self.reorder: 8, self.jump: 5, self.checkpoint: 3, self.stop: 2,
            self.kill_in_commit: 9, self.kill_in_checkpoint: 2, self.kill_at_rest: 2,
        }  # fmt: skip
        act = self.chance.choices(list(acts), list(acts.values()))[0]
        act()
        self.happened[act.__name__] = self.happened.get(act.__name__, 0) + 1
        self.now_us += self.chance.randint(1, 2_000_000)
        self.check()

    # What can happen.

    def admit(self) -> None:
        rows, done = self._admission()
        self._append(rows)
        done()

    def end(self) -> None:
        if self.open:
            rows, done = self._end_of(self._one_of(self.open))
            self._append(rows)
            done()

    def lose(self) -> None:
        if self.open:
            request = self._one_of(self.open)
            at_us = max(self.now_us, request.begun_us)
            places = self._append(fates.losing(request, at_us))
            self._lost(request, places[-1].entry_hash)
            self.book.leave_unknown(request.hold, at_us + fates.BOUND_US)

    def resolve(self) -> None:
        """A person settles an unknown: by evidence, or by writing it off."""
        if not self.unknown:
            return
        request = self._one_of(self.unknown)
        at_us, cost_pico = max(self.now_us, request.begun_us), 0
        if self.chance.random() < 0.7:
            cost_pico = fates.any_cost(request, self.chance)
            self._append(fates.resolving(request, cost_pico, at_us))
        else:
            self._append(fates.writing_off(request, at_us))
        del self.unknown[request.number]
        self.book.settle_unknown_money(
            request.tenant_id, request.hold.cost_pico, cost_pico, at_us=at_us
        )

    def duplicate(self) -> None:
        """The same commit comes again: it is refused, and nothing is half written."""
        before = self.store.head
        try:
            self.store.append(self.chance.choice(self.written)).result()
        except RecordRefused:
            assert self.store.head == before
        else:
            raise AssertionError("a commit was taken twice")

    def reorder(self) -> None:
        """Several requests' commits and a duplicate are queued at once, in any order."""
        work = [self._admission() for _ in range(self.chance.randint(1, 3))]
        ending = self.chance.sample(sorted(self.open), min(len(self.open), 2))
        work += [self._end_of(self.open[number]) for number in ending]
        self.chance.shuffle(work)
        again = self.chance.choice(self.written)
        futures = [self.store.append(rows) for rows, _ in work]
        refused = self.store.append(again)
        for (rows, done), future in zip(work, futures, strict=True):
            future.result()
            self.written.append(rows)
            done()
        assert isinstance(refused.exception(), RecordRefused)

    def jump(self) -> None:
        self.now_us += self.chance.choice([60_000_000, DAY_US // 24, DAY_US, 9 * DAY_US])

    def checkpoint(self) -> None:
        """Beside the commits, or between two of them: the store does the one and then the other."""
        self.store.flush()
        if self.chance.random() < 0.5:
            write_ahead.copy_log(self.ledger)
        else:
            self.store._writer.checkpoint()

    def stop(self) -> None:
        """Stopped in good order: what runs is lost, as after too short a drain."""
        self.store.close()
        assert disk.read(self.ledger).log == b""
        self._restart(disk.read(self.ledger))

    def kill_in_commit(self) -> None:
        """Killed while a commit is written, and not acknowledged: it is there whole, or not."""
        work = [self._admission()]
        if self.open:
            work.append(self._end_of(self._one_of(self.open)))
        rows, done = self.chance.choice(work)
        before, size = disk.read(self.ledger), self.store.head.size
        self.store.append(rows).result()
        left = disk.killed_in_commit(before, disk.read(self.ledger), self.chance)
        self._restart(left, maybe=(size, rows, done))

    def kill_in_checkpoint(self) -> None:
        before = disk.read(self.ledger)
        self.checkpoint()
        after = disk.read(self.ledger)
        self._restart(disk.killed_in_checkpoint(before, after, self.chance))

    def kill_at_rest(self) -> None:
        self._restart(disk.read(self.ledger))

    # What must hold.

    def check(self) -> None:
        """After each step: money adds up in ledger, book and model, and the chain goes on."""
        model = dict.fromkeys(TENANTS, 0)
        for request in (*self.open.values(), *self.unknown.values()):
            model[request.tenant_id] += request.hold.cost_pico
        columns = {balance.tenant_id: balance for balance in balances(self.reader)}
        for name in TENANTS:
            seen = self.book.tenant_state(name, self.now_us)
            month_us, today_us = (
                self.quota.period_us(period, self.now_us)[0] for period in BUDGET_PERIODS
            )
            posted_pico = posted_pico_since(self.reader, name, month_us)
            today_pico = posted_pico_since(self.reader, name, today_us)
            pending_pico = columns[name].pending_pico if name in columns else 0
            assert 0 <= pending_pico == model[name] == seen.pending_pico
            assert (posted_pico, today_pico) == (seen.spent_pico, seen.spent_today_pico)
            available_pico = BUDGET_PICO - posted_pico - pending_pico
            assert seen.budget_pico is not None
            assert seen.budget_pico - seen.spent_pico - seen.pending_pico == available_pico
            assert 0 <= seen.in_flight <= IN_FLIGHT_LIMIT
        for column in columns.values():
            assert column.debits_pico == column.credits_pico
            assert column.held_pico == column.pending_pico
        self._follow_chain()

    @property
    def rows(self) -> int:
        return self.walk.builder.size

    def check_whole(self) -> None:
        """The whole chain, and every rule of the audit."""
        report = verify(self.reader)
        assert report.faults == ()
        assert [one.code for one in audit(self.reader) if not one.holds] == []

    def close(self) -> None:
        self.reader.close()
        self.store.close()

    def _follow_chain(self) -> None:
        faults, walked, last = Faults(), self.walk.builder.size, self.store.head.size
        assert last >= walked, "what was acknowledged is gone"
        for seq, found in rows_by_seq(self.reader, walked + 1, last, faults):
            self.walk.step(seq, found)
        assert not faults
        assert not self.walk._faults
        assert self.walk.builder.head == self.store.head

    # How it is done.

    def _admission(self) -> tuple[tuple[Record, ...], Acknowledged]:
        """A request is weighed by the book and taken, or refused; the rows, and what follows."""
        number, tenant_id = next(self.numbers), self.chance.choice(TENANTS)
        seen = self.book.tenant_state(tenant_id, self.now_us)
        cost_pico = self.chance.randint(1, 5 * 10**9)
        fits = seen.spent_pico + seen.pending_pico + cost_pico <= BUDGET_PICO
        if seen.in_flight >= IN_FLIGHT_LIMIT or not fits:
            return fates.refusal(number, tenant_id, self.now_us), lambda: None
        hold = Hold(
            reservation_id=fates.reservation_id(number),
            tenant_id=tenant_id,
            route_id=ROUTE,
            kv_tokens=1,
            cost_pico=cost_pico,
            taken_at_us=self.now_us,
        )
        request = Request(number=number, tenant_id=tenant_id, hold=hold, begun_us=self.now_us)
        self.book.take(hold, 1)
        return fates.opening(request), lambda: self.open.update({number: request})

    def _end_of(self, request: Request) -> tuple[tuple[Record, ...], Acknowledged]:
        cost_pico, at_us = fates.any_cost(request, self.chance), max(self.now_us, request.begun_us)

        def ended() -> None:
            del self.open[request.number]
            self.book.settle(request.hold, cost_pico, at_us=at_us)

        return fates.ending(request, cost_pico, at_us), ended

    def _append(self, rows: tuple[Record, ...]):
        places = self.store.append(rows).result()
        self.written.append(rows)
        return places

    def _lost(self, request: Request, entry_hash: bytes) -> None:
        self.open.pop(request.number, None)
        self.unknown[request.number] = replace(request, unknown_hash=entry_hash)

    def _one_of(self, requests: dict[int, Request]) -> Request:
        return requests[self.chance.choice(sorted(requests))]

    def _begin(self, files: disk.Files) -> None:
        """A process opens what is on the disk: recovery, then a book made from the ledger."""
        self.lives += 1
        self.ledger = disk.place(files, self.folder / f"life-{self.lives % 2}")
        self.store = Store.open(self.ledger, projections=(Rollups(),))
        self.reader = connect_read_only(self.ledger)

    def _restart(
        self,
        files: disk.Files,
        maybe: tuple[int, tuple[Record, ...], Acknowledged] | None = None,
    ) -> None:
        self.close()
        self._begin(files)
        if maybe is not None:
            size, rows, done = maybe
            whole = size + len(rows_of(rows)[0])
            assert self.store.head.size in (size, whole), "half a commit"
            if self.store.head.size > size:
                done()
                self.written.append(rows)
        self._set_back()
        for left in unfinished(self.reader):
            request = next(
                one for one in self.open.values()
                if one.hold.reservation_id == left.reservation.reservation_id
            )  # fmt: skip
            places = self._append(fates.losing(request, max(self.now_us, request.begun_us)))
            self._lost(request, places[-1].entry_hash)
        assert not self.open, "an accepted request is gone"
        self.book = Book()
        self.book.open_route(ROUTE)
        enter_tenants(self.book, self.reader, self.now_us)

    def _set_back(self) -> None:
        """The clock of the next process may be behind that of the last; not by a day's end."""
        earlier_us = self.now_us - self.chance.choice([0, 0, 5_000_000, DAY_US // 2])
        self.now_us = max(earlier_us, self.quota.period_us("day", self.now_us)[0])


def run(template: Path, folder: Path, *, seed: int, steps: int, whole_every: int = 1_000) -> World:
    """A world that has gone through `steps` steps; AssertionError names seed and step."""
    world = World(template, folder, seed)
    for number in range(1, steps + 1):
        try:
            world.step()
            if number % whole_every == 0 or number == steps:
                world.check_whole()
        except Exception as error:
            error.add_note(f"seed {seed}, step {number}; the same seed does it again")
            raise
    return world
