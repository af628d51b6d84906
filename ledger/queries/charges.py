"""Current receipts of a period with what identifies their charge, in order, a page at a time."""

import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass

from ledger.records import AttemptEvent, Receipt
from ledger.rows import HEAD_COLUMNS, record_of

PAGE_ROWS = 1_000

_FIELDS = ", ".join(f"found.{name}" for name in (*HEAD_COLUMNS, *Receipt.__struct_fields__))
# The last end of its attempts: one that came by itself, or the one that the receipt carries. Both
# as one source, in order, would be read whole: SQLite looks nothing up in a sorted union.
_SQL = f"""
SELECT {_FIELDS},
  coalesce((SELECT event.provider_request_id FROM {AttemptEvent.TABLE} AS event
            WHERE event.request_id = found.request_id AND event.event = 'ended'
            ORDER BY event.seq DESC LIMIT 1),
           CASE found.closes WHEN 1 THEN found.provider_request_id END)
FROM receipt AS found
WHERE (found.accepted_at_us, found.seq) > (:after_us, :after_seq)
  AND found.accepted_at_us < :end AND found.route_id IS NOT NULL
  AND (:tenant IS NULL OR found.tenant_id = :tenant)
  AND NOT EXISTS (SELECT 1 FROM receipt AS later WHERE later.request_id = found.request_id
                  AND later.revision > found.revision)
ORDER BY found.accepted_at_us, found.seq LIMIT {PAGE_ROWS}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChargeFilter:
    """Requests accepted in start_us <= t < end_us that ran; of one tenant, or of all."""

    start_us: int
    end_us: int
    tenant_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Charged:
    """A receipt, and the provider's id of the attempt that ended it."""

    receipt: Receipt
    provider_request_id: str | None


def charged(connection: sqlite3.Connection, wanted: ChargeFilter) -> Iterator[Charged]:
    """The whole filtered set, by acceptance; memory holds a page, and no transaction stays open."""
    after_us, after_seq = wanted.start_us, -1
    columns = len(HEAD_COLUMNS) + len(Receipt.__struct_fields__)
    while True:
        values = {"after_us": after_us, "after_seq": after_seq, "end": wanted.end_us,
                  "tenant": wanted.tenant_id}  # fmt: skip
        rows = connection.execute(_SQL, values).fetchall()
        for row in rows:
            receipt = record_of(Receipt, tuple(row)[:columns])
            yield Charged(receipt=receipt, provider_request_id=row[columns])
        if len(rows) < PAGE_ROWS:
            return
        after_us, after_seq = receipt.accepted_at_us, rows[-1][0]
