"""Published rate tables as values, and what a key has cost over all of them (CST-7)."""

import sqlite3

import msgspec

from ledger.queries import configuration
from ledger.rate_changes import Span, history
from ledger.rates import RateTable


def published_tables(connection: sqlite3.Connection) -> list[RateTable]:
    """Every published rate table, in the order of publication."""
    return [
        msgspec.json.decode(record.body_json, type=RateTable)
        for record in configuration.rate_tables(connection)
    ]


def price_history(connection: sqlite3.Connection, label: str) -> tuple[Span, ...]:
    """What a key, or a label as a receipt has it, has cost since the first table, span by span."""
    return history(published_tables(connection), label)
