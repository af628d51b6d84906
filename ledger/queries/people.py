"""Tenants and their keys as the console lists them: every revision, revoked keys too."""

import sqlite3
from dataclasses import dataclass

from ledger.reading import fetch
from ledger.records import ApiKey, ApiKeyRevocation, Tenant
from ledger.rows import record_of, select

ROWS_LIMIT = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyState:
    """A key as it was made, and its revocation where there is one."""

    key: ApiKey
    revocation: ApiKeyRevocation | None

    def usable_at(self, now_us: int) -> bool:
        expires_at_us = self.key.expires_at_us
        return self.revocation is None and (expires_at_us is None or expires_at_us > now_us)


def tenant_revisions(connection: sqlite3.Connection, tenant_id: str) -> list[Tenant]:
    """A tenant's revisions, the newest first, at most ROWS_LIMIT; empty where it doesn't exist."""
    sql = f"{select(Tenant)} WHERE tenant_id = ? ORDER BY revision DESC LIMIT {ROWS_LIMIT}"
    return [record_of(Tenant, row) for row in fetch(connection, sql, (tenant_id,))]


def keys_of(connection: sqlite3.Connection, tenant_id: str | None = None) -> list[KeyState]:
    """The keys of a tenant, or of all, the newest first, at most ROWS_LIMIT."""
    where, values = ("WHERE tenant_id = ?", (tenant_id,)) if tenant_id is not None else ("", ())
    sql = f"{select(ApiKey)} {where} ORDER BY seq DESC LIMIT {ROWS_LIMIT}"
    keys = [record_of(ApiKey, row) for row in fetch(connection, sql, values)]
    sql = f"{select(ApiKeyRevocation)} WHERE key_id IN ({', '.join('?' * len(keys))})"
    gone = [
        record_of(ApiKeyRevocation, row)
        for row in fetch(connection, sql, [key.key_id for key in keys])
    ]
    by_id = {revocation.key_id: revocation for revocation in gone}
    return [KeyState(key=key, revocation=by_id.get(key.key_id)) for key in keys]
