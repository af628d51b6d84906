"""Published rate tables as values, and what a key has cost over all of them (CST-7)."""

import sqlite3

import msgspec

from ledger.queries import configuration
from ledger.rate_changes import Span, history
from ledger.rates import RateTable
from ledger.reading import fetch
from ledger.rollups.tables import LIVE

KEYS_LIMIT = 50  # of one model, whose histories are read together

_KEYS_OF_MODEL = (
    "SELECT identity_id FROM model_identity WHERE logical_model = :model "
    f"UNION SELECT identity_id FROM {LIVE.name('series')} WHERE logical_model = :model "
    f"UNION SELECT route_id FROM {LIVE.name('series')} WHERE logical_model = :model "
    f"ORDER BY 1 LIMIT {KEYS_LIMIT + 1}"
)


def published_tables(connection: sqlite3.Connection) -> list[RateTable]:
    """Every published rate table, in the order of publication."""
    return [
        msgspec.json.decode(record.body_json, type=RateTable)
        for record in configuration.rate_tables(connection)
    ]


def price_histories(
    connection: sqlite3.Connection, name: str
) -> tuple[tuple[str, tuple[Span, ...]], ...]:
    """(key, its history) of the key itself, then of each identity and route of the model so named.

    Only those that a published table has ever priced, in order; KEYS_LIMIT of them at most.
    """
    keys = [row[0] for row in fetch(connection, _KEYS_OF_MODEL, {"model": name})]
    tables = published_tables(connection)
    found = [(key, history(tables, key)) for key in dict.fromkeys((name, *keys)) if key]
    return tuple(one for one in found if any(span.rates for span in one[1]))[:KEYS_LIMIT]
