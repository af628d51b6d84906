"""What a ledger keeps of rows that are in archives, and which tables an archive takes (LED-8).

`archived_row` holds a row's place and hashes, so that the chain, the tree and every proof stay
whole without its content; it is append-only like the records. `archived_request` says in which
archive a request is; `archived_posted` what its settlements posted, as `ledger.open_work` sums it.
"""

from ledger.carrying import source
from ledger.open_work import posted
from ledger.records import (
    ArchivedRow,
    Attempt,
    AttemptDecision,
    AttemptEvent,
    OutcomeReport,
    Receipt,
    Record,
    Reservation,
    RouteDecision,
    Settlement,
    TraceEvent,
)

MOVED: tuple[type[Record], ...] = (
    RouteDecision,
    Reservation,
    Attempt,
    AttemptDecision,
    AttemptEvent,
    Settlement,
    Receipt,
    TraceEvent,
    OutcomeReport,
)
"""What belongs to one request, by its request_id. An Idempotency-Key stays: it stands for ever."""

CREATE: tuple[str, ...] = (
    f"CREATE TABLE {ArchivedRow.TABLE} (seq INTEGER PRIMARY KEY, v INTEGER NOT NULL, "
    "entry_hash BLOB NOT NULL, leaf BLOB NOT NULL, archive_seq INTEGER NOT NULL)",
    "CREATE TABLE archived_request (request_id TEXT NOT NULL PRIMARY KEY, tenant_id TEXT NOT NULL, "
    "archive_seq INTEGER NOT NULL) WITHOUT ROWID",
    "CREATE TABLE archived_posted (tenant_id TEXT NOT NULL, bucket_us INTEGER NOT NULL, "
    "high INTEGER NOT NULL, low INTEGER NOT NULL, PRIMARY KEY (tenant_id, bucket_us)) "
    "WITHOUT ROWID",
)
DROP: tuple[str, ...] = tuple(
    f"DROP TABLE IF EXISTS {table}"
    for table in (ArchivedRow.TABLE, "archived_request", "archived_posted")
)

CURRENT = (
    "r.accepted_at_us < :before_us AND NOT EXISTS "
    "(SELECT 1 FROM receipt WHERE request_id = r.request_id AND revision > r.revision)"
)
"""What makes a receipt, r, its request's last word, of a request that was asked for."""

STAYS: tuple[tuple[str, str, str], ...] = (
    ("UNKNOWN", "are unknowns: settle them, or write them off", "r.status = 'unknown'"),
    (
        "MONEY_HELD",
        "have money held for them",
        f"EXISTS (SELECT 1 FROM {source(Reservation)} AS v JOIN open_hold AS h "
        "ON h.reservation_id = v.reservation_id WHERE v.request_id = r.request_id)",
    ),
    (
        "ATTEMPT_OPEN",
        "have an attempt whose end isn't known",
        f"EXISTS (SELECT 1 FROM {source(Attempt)} AS a WHERE a.request_id = r.request_id "
        f"AND NOT EXISTS (SELECT 1 FROM {source(AttemptEvent)} AS e "
        "WHERE e.request_id = a.request_id AND e.attempt_id = a.attempt_id AND e.event = 'ended' "
        "AND e.outcome != 'unknown'))",
    ),
    ("ENDED_LATER", "ended after that time", "r.ended_at_us >= :before_us"),
    # An end that came after its period was locked is an adjustment of the next one, until that is
    # locked, too (REC-3).
    (
        "ADJUSTS_NEXT_PERIOD",
        "ended after their period was locked, and the next one isn't locked yet",
        "EXISTS (SELECT 1 FROM period_lock AS l WHERE r.accepted_at_us < l.end_us "
        "AND NOT EXISTS (SELECT 1 FROM period_lock WHERE provider = l.provider "
        "AND start_us > l.start_us) "
        f"AND EXISTS (SELECT 1 FROM {source(AttemptEvent)} AS e WHERE e.request_id = r.request_id "
        "AND e.event = 'ended' AND e.seq > l.as_of_seq))",
    ),
    # A task that several requests serve counts once among them: they can't be told apart later.
    (
        "SHARED_TASK",
        "serve a task that another request serves, too",
        "EXISTS (SELECT 1 FROM outcome_report AS o JOIN outcome_report AS p "
        "ON p.task_id = o.task_id AND p.tenant_id = o.tenant_id AND p.request_id != o.request_id "
        "WHERE o.request_id = r.request_id)",
    ),
)
"""(code, words, when a request stays whose receipt is r); it is told under the first that holds.

Those that move are final, nothing of them is held, every attempt's end is known, also in the books.
"""

UNDER_WAY = ("UNDER_WAY", "have no receipt yet")

CHOOSE = (
    "CREATE TABLE moved (request_id TEXT NOT NULL PRIMARY KEY, tenant_id TEXT NOT NULL, "
    "accepted_at_us INTEGER NOT NULL) WITHOUT ROWID",
    "INSERT INTO moved SELECT r.request_id, r.tenant_id, r.accepted_at_us FROM receipt AS r "
    f"WHERE {CURRENT}" + "".join(f" AND NOT ({condition})" for _, _, condition in STAYS),
)
"""The requests that an archive takes: accepted and ended before :before_us, and closed in every
respect, also in the books.

The list stands in the new ledger only while it is built.
"""

STAYED = (
    f"SELECT CASE {' '.join(f'WHEN {holds} THEN {code!r}' for code, _, holds in STAYS)} "
    f"END AS code, count(*) FROM receipt AS r WHERE {CURRENT} "
    "AND r.request_id NOT IN (SELECT request_id FROM moved) GROUP BY 1",
    "SELECT 'UNDER_WAY', count(*) FROM open_request AS o "
    "JOIN route_decision AS d ON d.seq = o.seq WHERE d.decided_at_us < :before_us",
)
"""(code, requests): of those that were asked for, the ones that aren't in `moved`."""

ADD_POSTED = (
    "INSERT INTO archived_posted SELECT * FROM "
    f"({posted('request_id IN (SELECT request_id FROM moved)')}) WHERE true "
    "ON CONFLICT (tenant_id, bucket_us) DO UPDATE SET high = high + excluded.high, "
    "low = low + excluded.low"
)
