"""Whether a receipt's cost is what its usage and its rate table give (LED-2, CST-1). Pure."""

from collections.abc import Mapping
from typing import NamedTuple

from ledger.money import units_text
from ledger.rates import Cost, RateTable, Usage, batch_priced, cost_of, rate_of
from ledger.records import Receipt

NOTHING = Cost(input_pico=0, cached_input_pico=0, output_pico=0, fixed_pico=0)


class Charged(NamedTuple):
    """The fields of a receipt that say what it cost and why: a whole one takes longer to make."""

    revision: int
    resolves_hash: bytes | None
    rate_key: str | None
    rate_table_version: str
    priority: str
    input_tokens: int
    cached_input_tokens: int
    output_tokens: int
    cost_input_pico: int
    cost_cached_input_pico: int
    cost_output_pico: int
    cost_fixed_pico: int
    cost_retry_and_hedge_pico: int
    cost_total_pico: int


def expected_cost(receipt: Receipt | Charged, tables: Mapping[str, RateTable]) -> Cost | str:
    """The receipt's cost computed again, without retries and hedges; or why it can't be.

    A receipt without a rate key was not priced: its cost is nothing.
    """
    if receipt.rate_key is None:
        return NOTHING
    table = tables.get(receipt.rate_table_version)
    if table is None:
        return f"its rate table {receipt.rate_table_version} is not in the ledger"
    rate = rate_of(table, receipt.rate_key)
    if rate is None:
        return f"rate table {table.version} has no rate {receipt.rate_key}"
    usage = Usage(
        input_tokens=receipt.input_tokens,
        output_tokens=receipt.output_tokens,
        cached_input_tokens=receipt.cached_input_tokens,
    )
    try:
        return cost_of(rate, usage, batch=batch_priced(receipt.priority))
    except ValueError as error:
        return str(error)


def cost_fault(receipt: Receipt | Charged, tables: Mapping[str, RateTable]) -> str | None:
    """None when every component and the total are exact; else what differs, in units."""
    expected = expected_cost(receipt, tables)
    if isinstance(expected, str):
        return expected
    pairs = (
        ("input", receipt.cost_input_pico, expected.input_pico),
        ("cached input", receipt.cost_cached_input_pico, expected.cached_input_pico),
        ("output", receipt.cost_output_pico, expected.output_pico),
        ("fixed", receipt.cost_fixed_pico, expected.fixed_pico),
        (
            "total",
            receipt.cost_total_pico,
            expected.total_pico + receipt.cost_retry_and_hedge_pico,
        ),
    )
    wrong = [
        f"{name} is {units_text(recorded)}, computed {units_text(computed)}"
        for name, recorded, computed in pairs
        if recorded != computed
    ]
    return "; ".join(wrong) or None
