"""Which request an Idempotency-Key stands for."""

import sqlite3

from ledger.reading import fetch_one
from ledger.records import IdempotencyKey
from ledger.rows import record_of, select


def claim_of(
    connection: sqlite3.Connection, tenant_id: str, key_mac: bytes
) -> IdempotencyKey | None:
    """The claim of a tenant's key; None where the key was never used."""
    row = fetch_one(
        connection,
        f"{select(IdempotencyKey)} WHERE tenant_id = ? AND key_mac = ?",
        (tenant_id, key_mac),
    )
    return None if row is None else record_of(IdempotencyKey, row)
