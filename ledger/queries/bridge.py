"""The bridge from one period's cost to another's, read from the rollups (CST-4)."""

import sqlite3
from datetime import UTC

from ledger.bridge import Bridge, Cell, Key, bridge
from ledger.queries.cost_sums import CostSums
from ledger.queries.costs import Filter, costs
from ledger.zones import Period

CELLS_LIMIT = 10_000


def bridge_between(
    connection: sqlite3.Connection,
    before: Period,
    after: Period,
    *,
    filters: Filter | None = None,
) -> Bridge:
    """What made `after` cost more or less than `before`, for what passes the filters.

    ValueError for filters that can't be asked for.
    """
    return bridge(
        cells(connection, before, filters=filters), cells(connection, after, filters=filters)
    )


def cells(
    connection: sqlite3.Connection, period: Period, *, filters: Filter | None = None
) -> dict[Key, Cell]:
    """What each route of each logical model served; rejected requests cost nothing and are out."""
    table = costs(
        connection,
        period,
        ("logical_model", "route"),
        zone=UTC,
        filters=filters,
        rows_limit=CELLS_LIMIT,
    )
    if table.others is not None:
        raise ValueError(f"more than {CELLS_LIMIT} routes: choose a filter")
    return {
        (row.values[0], row.values[1]): cell_of(row.sums)
        for row in table.rows
        if row.sums.receipts > row.sums.rejected
    }


def cell_of(sums: CostSums) -> Cell:
    """A row of sums as a cell; a component without tokens has no price a token, but a request."""
    pairs = {
        "input": (sums.input_tokens - sums.cached_input_tokens, sums.cost_input_pico),
        "cached_input": (sums.cached_input_tokens, sums.cost_cached_input_pico),
        "output": (sums.output_tokens, sums.cost_output_pico),
    }
    return Cell(
        requests=sums.receipts - sums.rejected,
        input_tokens=pairs["input"][0],
        cached_input_tokens=pairs["cached_input"][0],
        output_tokens=pairs["output"][0],
        **{f"{name}_pico": cost if tokens else 0 for name, (tokens, cost) in pairs.items()},
        request_pico=sums.cost_fixed_pico
        + sums.cost_other_pico
        + sum(cost for tokens, cost in pairs.values() if not tokens),
        retry_and_hedge_pico=sums.cost_retry_and_hedge_pico,
        unpriced=sums.unpriced,
    )
