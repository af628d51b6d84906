"""What must hold after every fault: receipts, sums, chain, and what clients were told."""

import asyncio
import contextlib
import sqlite3
import time

from ledger.balances import balances
from ledger.carrying import source
from ledger.invariants import audit
from ledger.money import PICO_PER_UNIT
from ledger.queries.unknowns import at_risk
from ledger.queries.violations import NOT_HELD_BUT_UNKNOWN
from ledger.reading import read_head
from ledger.records import Reservation, Settlement
from ledger.verify import verify
from ledger.walk import Faults, Walk, rows_by_seq
from tests.faults.load import Told
from tests.faults.rig import RATES, Rig
from tests.system.watching import CURRENT, open_money_pico

QUIET_S = 180.0  # an end that is known is tried for 39 s; a busy machine takes longer
HELD_ERROR_UNITS = 1e-9  # a gauge is a float

_NOT_ONE = (
    "SELECT d.request_id FROM route_decision AS d LEFT JOIN receipt AS r "
    f"ON r.request_id = d.request_id AND {CURRENT} WHERE d.seq > ? "
    "GROUP BY d.request_id HAVING count(r.seq) != 1"
)
_UNSETTLED = (
    f"SELECT request_id FROM {source(Reservation)} "
    f"WHERE reservation_id NOT IN (SELECT reservation_id FROM {source(Settlement)})"
)


class Checks:
    """Follows one ledger through many faults: each row of the chain is walked once."""

    def __init__(self) -> None:
        self._faults = Faults()
        self._walk = Walk({RATES.version: RATES}, self._faults)
        self._decisions = 0  # the last decision's seq that was looked at

    @property
    def rows(self) -> int:
        return self._walk.builder.size

    async def after(self, rig: Rig, told: Told) -> None:
        """Wait until nothing runs, then ask for everything. AssertionError says what is wrong."""
        assert told.hung == 0, f"{told.hung} exchanges had no end"
        await self._quiet(rig)
        with contextlib.closing(rig.reader()) as reader:
            reader.execute("BEGIN")  # one snapshot: an enquiry may settle an unknown meanwhile
            self._receipts(reader, told)
            self._sums(reader)
            self._chain(reader)
            held = open_money_pico(reader) / PICO_PER_UNIT
            unsettled = len(reader.execute(_UNSETTLED).fetchall())
        await self._held(rig, held, unsettled)

    def at_the_end(self, rig: Rig) -> None:
        """Of a stopped server's ledger: every hash, every cost, every rule of the audit."""
        with contextlib.closing(rig.reader()) as reader:
            report = verify(reader, at_rest=True)
            assert report.faults == (), report.faults[:3]
            assert report.unfinished == 0
            broken = [each for each in audit(reader, at_rest=True) if not each.holds]
            assert broken == [], [(each.code, each.findings[:2]) for each in broken]

    async def _quiet(self, rig: Rig) -> None:
        ends = time.monotonic() + QUIET_S
        while True:
            with contextlib.closing(rig.reader()) as reader:
                (running,) = reader.execute("SELECT count(*) FROM open_request").fetchone()
            if not running:
                return
            assert time.monotonic() < ends, f"{running} requests have no receipt after {QUIET_S} s"
            await asyncio.sleep(0.05)

    def _receipts(self, reader: sqlite3.Connection, told: Told) -> None:
        (last,) = reader.execute("SELECT coalesce(max(seq), 0) FROM route_decision").fetchone()
        wrong = reader.execute(_NOT_ONE, (self._decisions,)).fetchall()
        assert wrong == [], f"without exactly one current receipt: {[row[0] for row in wrong][:3]}"
        for request_id in told.ids | set(told.receipts):
            found = reader.execute(
                "SELECT seq, entry_hash, status FROM receipt WHERE request_id = ? AND revision = 0",
                (request_id,),
            ).fetchone()
            assert found is not None, f"{request_id} was told to a client and has no receipt"
            receipt = told.receipts.get(request_id)
            if receipt is not None:
                told_so = (receipt["seq"], receipt["entry_hash"], receipt["status"])
                assert told_so == (found[0], found[1].hex(), found[2]), request_id
        self._decisions = last

    def _sums(self, reader: sqlite3.Connection) -> None:
        for column in balances(reader):
            assert column.debits_pico == column.credits_pico, column
            assert column.held_pico == column.pending_pico >= 0, column
        unknown, unknown_pico = at_risk(reader)
        (held,) = reader.execute("SELECT count(*) FROM open_hold").fetchone()
        assert (held, open_money_pico(reader)) == (unknown, unknown_pico), "a hold that leaked"
        (head,) = reader.execute("SELECT size FROM chain_head").fetchone()
        loose = reader.execute(NOT_HELD_BUT_UNKNOWN, {"size": head}).fetchall()
        assert loose == [], f"unknown and nothing held: {[tuple(row) for row in loose][:3]}"

    def _chain(self, reader: sqlite3.Connection) -> None:
        faults, head = self._faults, read_head(reader)
        assert head is not None
        walked = self._walk.builder.size
        assert head.size >= walked, f"{walked - head.size} rows that were there are gone"
        for seq, found in rows_by_seq(reader, walked + 1, head.size, faults):
            self._walk.step(seq, found)
        assert not faults, faults[:3]
        assert self._walk.builder.head == head

    async def _held(self, rig: Rig, money_units: float, unsettled: int) -> None:
        """The book holds the open unknowns' money, and no more slots than there are of them."""
        ends = time.monotonic() + QUIET_S
        while True:
            metrics = await rig.metrics()
            slots = metrics["weighbridge_in_flight_requests"]
            kv_tokens = metrics["weighbridge_held_kv_tokens"]
            units = metrics["weighbridge_held_cost_units"]
            if (
                slots <= unsettled
                and (slots or not kv_tokens)
                and abs(units - money_units) < HELD_ERROR_UNITS
            ):
                return
            with contextlib.closing(rig.reader()) as reader:  # an enquiry may settle one meanwhile
                money_units = open_money_pico(reader) / PICO_PER_UNIT
                unsettled = len(reader.execute(_UNSETTLED).fetchall())
            said = f"{slots:.0f} slots, {kv_tokens:.0f} KV, {units} units held"
            assert time.monotonic() < ends, f"{said}; open: {unsettled}, {money_units} units"
            await asyncio.sleep(0.05)
