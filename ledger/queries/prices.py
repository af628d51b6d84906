"""Published rate tables as values, and what a key has cost over all of them (CST-7)."""

import sqlite3
from collections.abc import Sequence

import msgspec

from ledger.queries import configuration
from ledger.rate_changes import Span, history
from ledger.rate_lookup import label_of
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


_NAMES_LIMIT = 10_000
_NAMES = (
    "SELECT identity_id FROM model_identity UNION SELECT logical_model FROM model_identity "
    f"UNION SELECT logical_model FROM {LIVE.name('series')} "
    f"UNION SELECT route_id FROM {LIVE.name('series')} LIMIT {_NAMES_LIMIT}"
)
_IDENTITIES_OF_ROUTE = (
    f"SELECT DISTINCT identity_id FROM {LIVE.name('series')} WHERE route_id = ? "
    f"ORDER BY 1 LIMIT {KEYS_LIMIT}"
)


def known_names(connection: sqlite3.Connection) -> frozenset[str]:
    """Every identity and model, and every route that has run anything: at most 10,000 names."""
    return frozenset(row[0] for row in fetch(connection, _NAMES, ()) if row[0])


def identities_of_route(connection: sqlite3.Connection, route_id: str) -> tuple[str, ...]:
    """The identities that a route has run, in order; KEYS_LIMIT of them at most."""
    rows = fetch(connection, _IDENTITIES_OF_ROUTE, (route_id,))
    return tuple(row[0] for row in rows if row[0])


def published_tables(connection: sqlite3.Connection) -> list[RateTable]:
    """Every published rate table, in the order of publication."""
    return [
        msgspec.json.decode(record.body_json, type=RateTable)
        for record in configuration.rate_tables(connection)
    ]


def price_histories(
    connection: sqlite3.Connection, name: str, identities: Sequence[str] = ()
) -> tuple[tuple[str, tuple[Span, ...]], ...]:
    """(key, its history) of the key itself, then of the `identities` through which it is priced,
    then of each identity and route of the model so named; of each also its rates for some uses.

    Only those that a published table has ever priced, in order; KEYS_LIMIT of them at most.
    """
    of_model = [row[0] for row in fetch(connection, _KEYS_OF_MODEL, {"model": name})]
    tables = published_tables(connection)
    labels: dict[str, dict[str, None]] = {}
    for table in tables:
        for rate in table.rates:
            labels.setdefault(rate.key, {})[label_of(rate)] = None
    keys = dict.fromkeys((name, *identities, *of_model))
    wanted = dict.fromkeys(each for key in keys if key for each in (key, *labels.get(key, ())))
    found = [(label, history(tables, label)) for label in wanted]
    return tuple(one for one in found if any(span.rates for span in one[1]))[:KEYS_LIMIT]
