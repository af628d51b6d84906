"""Money in two columns: what was reserved against what became of it, by tenant (LED-6).

A reservation is a debit of `pending`. Its settlement moves it on: what was spent is posted (with
what it went over the reservation as an overrun of its own), the rest is released, or all of it is
written off. So reserved + overrun = posted + released + written off + pending, to the pico unit.
"""

import sqlite3

import msgspec

from ledger.carrying import CARRIED, source
from ledger.money import join
from ledger.reading import fetch
from ledger.records import Reservation, Settlement


class Balance(msgspec.Struct, frozen=True, kw_only=True):
    """One tenant's entries, in pico units. Python integers: sums outgrow 64 bits."""

    tenant_id: str
    reserved_pico: int
    overrun_pico: int
    posted_pico: int
    released_pico: int
    written_off_pico: int
    pending_pico: int  # by the reservations without a settlement
    held_pico: int  # by the table of open holds: has to be the same

    @property
    def debits_pico(self) -> int:
        return self.reserved_pico + self.overrun_pico

    @property
    def credits_pico(self) -> int:
        return self.posted_pico + self.released_pico + self.written_off_pico + self.held_pico


def _limbs(amount: str) -> str:
    return f"sum(({amount}) >> 32), sum(({amount}) & 4294967295)"


# A reservation is settled by a row of its own, o, or by its request's receipt, c. Each is looked up
# by its key: a join with both kinds of rows at once would sort them all.
_SETTLED = CARRIED[Settlement].fields
_SETTLING = (
    "SELECT r.tenant_id, r.cost_pico AS reserved_pico, "
    + ", ".join(
        f"coalesce(o.{name}, CASE WHEN c.closes = 1 THEN {_SETTLED[name]} END) AS {name}"
        for name in ("kind", "cost_pico", "overrun_pico")
    )
    + f" FROM {source(Reservation)} AS r "
    "LEFT JOIN settlement AS o ON o.reservation_id = r.reservation_id "
    "LEFT JOIN receipt AS c ON c.request_id = r.reservation_id AND c.revision = 0 AND c.closes = 1"
)
# What a posted settlement releases is what is left of its reservation, and never below nought.
_ENTRIES = (
    "SELECT tenant_id, "
    + ", ".join(
        _limbs(amount)
        for amount in (
            "reserved_pico",
            "CASE WHEN kind != 'written_off' THEN overrun_pico ELSE 0 END",
            "CASE WHEN kind = 'posted' THEN cost_pico ELSE 0 END",
            "CASE WHEN kind = 'posted' THEN max(0, reserved_pico - cost_pico) "
            "WHEN kind = 'voided' THEN reserved_pico ELSE 0 END",
            "CASE WHEN kind = 'written_off' THEN reserved_pico ELSE 0 END",
            "CASE WHEN kind IS NULL THEN reserved_pico ELSE 0 END",
        )
    )
    + f" FROM ({_SETTLING}) GROUP BY 1 ORDER BY 1"
)
_HELD = f"SELECT tenant_id, {_limbs('cost_pico')} FROM open_hold GROUP BY 1"


def balances(connection: sqlite3.Connection) -> tuple[Balance, ...]:
    """Every tenant's balance, in order of their names; the caller holds one snapshot for both."""
    held = {row[0]: join(row[1], row[2]) for row in fetch(connection, _HELD)}
    found = []
    for tenant_id, *limbs in fetch(connection, _ENTRIES):
        amounts = [join(high, low) for high, low in zip(limbs[::2], limbs[1::2], strict=True)]
        reserved, overrun, posted, released, written_off, pending = amounts
        found.append(
            Balance(
                tenant_id=tenant_id,
                reserved_pico=reserved,
                overrun_pico=overrun,
                posted_pico=posted,
                released_pico=released,
                written_off_pico=written_off,
                pending_pico=pending,
                held_pico=held.pop(tenant_id, 0),
            )
        )
    nothing = dict.fromkeys(Balance.__struct_fields__[1:], 0)
    found += [
        Balance(**(nothing | {"tenant_id": tenant_id, "held_pico": amount}))
        for tenant_id, amount in held.items()
    ]
    return tuple(found)
