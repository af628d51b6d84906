"""Whether a request of several attempts costs what they cost, each by its own rate (CST-8, LED-2).

The receipt's components are proved from the receipt alone (`ledger.receipt_cost`); what its retries
and hedges cost is proved here, from the attempts' own usage and rate keys.
"""

import sqlite3
from collections.abc import Iterator, Mapping, Sequence

from ledger.faults import Fault
from ledger.money import units_text
from ledger.queries.attempts import AttemptEnd, ends_of_many
from ledger.rate_lookup import rate_of
from ledger.rates import RateTable, Usage, batch_priced, cost_of
from ledger.receipt_cost import read_meters


def attempt_cost_faults(
    connection: sqlite3.Connection, size: int, tables: Mapping[str, RateTable]
) -> Iterator[Fault]:
    """A fault for each attempt or receipt, of requests with several attempts, that costs another
    sum than its rates and its parts give."""
    for ends in ends_of_many(connection, size):
        for end in ends:
            what = _wrong_price(end, tables)
            if what is not None:
                yield Fault(
                    kind="cost", table="attempt_event", seq=end.seq, label=end.attempt_id, what=what
                )
        what = _wrong_sum(ends)
        if what is not None:
            first = ends[0]
            yield Fault(
                kind="cost", table="receipt", seq=first.receipt_seq,
                label=f"request_id {first.request_id}", what=what,
            )  # fmt: skip


def _wrong_price(end: AttemptEnd, tables: Mapping[str, RateTable]) -> str | None:
    """Why an attempt's cost is not that of its usage by its rate; one without a rate costs none."""
    if end.rate_key is None:
        return f"it has no rate and costs {units_text(end.cost_pico)}" if end.cost_pico else None
    table = tables.get(end.rate_table_version)
    if table is None:
        return f"its rate table {end.rate_table_version} is not in the ledger"
    try:
        rate = rate_of(table, end.rate_key, end.accepted_at_us)
        if rate is None:
            return f"rate table {table.version} has no rate {end.rate_key} at its time"
        usage = Usage(
            input_tokens=end.input_tokens,
            output_tokens=end.output_tokens,
            cached_input_tokens=end.cached_input_tokens,
            meters=read_meters(end.usage_json),
        )
        cost_pico = cost_of(rate, usage, batch=batch_priced(end.priority)).total_pico
    except ValueError as error:
        return str(error)
    if cost_pico == end.cost_pico:
        return None
    return f"its cost is {units_text(end.cost_pico)}, computed {units_text(cost_pico)}"


def _wrong_sum(ends: Sequence[AttemptEnd]) -> str | None:
    """Why a receipt is not the sum of its attempts, of which one answers and the others don't."""
    first = ends[0]
    if len(ends) != first.attempts:
        return f"it says {first.attempts} attempts; {len(ends)} ended before it"
    whole_pico = sum(end.cost_pico for end in ends)
    if whole_pico != first.cost_total_pico:
        return (
            f"its attempts cost {units_text(whole_pico)}, it says "
            f"{units_text(first.cost_total_pico)}"
        )
    answering_pico = first.cost_total_pico - first.cost_retry_and_hedge_pico
    if all(
        (end.cost_pico, end.rate_key) != (answering_pico, first.receipt_rate_key) for end in ends
    ):
        return f"no attempt costs the {units_text(answering_pico)} of its answer"
    return None
