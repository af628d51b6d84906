"""The open unknowns as the page, the command and the API show them: one reading for all three."""

import sqlite3
from dataclasses import asdict
from typing import Any

from gateway.api.receipts import iso_time
from ledger.money import units_text
from ledger.queries.unknowns import Listed, at_risk, open_unknowns


def unknowns_body(
    connection: sqlite3.Connection, now_us: int, tenant_id: str | None = None
) -> dict[str, Any]:
    """The open unknowns of a tenant, or of all: age, money at risk, where each ran.

    At most UNKNOWNS_LIMIT are listed; `open` and `money_at_risk` are of all.
    """
    count, at_risk_pico = at_risk(connection, tenant_id)
    return {
        "open": count,
        "money_at_risk": units_text(at_risk_pico),
        "money_at_risk_pico": at_risk_pico,
        "unknowns": [_line(one, now_us) for one in open_unknowns(connection, tenant_id)],
    }


def _line(one: Listed, now_us: int) -> dict[str, Any]:
    age_us = max(0, now_us - one.since_us)
    return {
        **asdict(one),
        "since": iso_time(one.since_us),
        "age_us": age_us,
        "age_s": age_us // 1_000_000,
        "held": units_text(one.held_pico),
    }
