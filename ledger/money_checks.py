"""The audit's checks of sums of money: to the pico unit, by tenant (LED-6)."""

from collections.abc import Iterator

from ledger.balances import Balance, balances
from ledger.findings import Finding, Scope
from ledger.money import units_text
from ledger.rollups.sums import snapshot


def _balances(scope: Scope) -> tuple[Balance, ...]:
    with snapshot(scope.connection):
        return balances(scope.connection)


def debits_equal_credits(scope: Scope) -> Iterator[Finding]:
    """A finding for each tenant whose columns differ."""
    for balance in _balances(scope):
        if balance.debits_pico != balance.credits_pico:
            difference = units_text(balance.debits_pico - balance.credits_pico)
            what = (
                f"reserved and overrun are {units_text(balance.debits_pico)} units; posted, "
                f"released, written off and pending are {units_text(balance.credits_pico)}: "
                f"{difference} apart"
            )
            yield Finding(table="reservation", label=f"tenant {balance.tenant_id}", what=what)


def pending_not_negative(scope: Scope) -> Iterator[Finding]:
    """A finding for each tenant whose held money is below nought or not that of its open rows."""
    for balance in _balances(scope):
        if balance.held_pico < 0 or balance.held_pico != balance.pending_pico:
            what = (
                f"{units_text(balance.held_pico)} units are held; its open reservations are of "
                f"{units_text(balance.pending_pico)}"
            )
            yield Finding(table="open_hold", label=f"tenant {balance.tenant_id}", what=what)
