"""Which archives a ledger has, and what is in them."""

import sqlite3
from collections.abc import Iterator

import msgspec

from ledger.archive_tables import STAYED, STAYS, UNDER_WAY
from ledger.reading import fetch, fetch_one
from ledger.records import ArchivedRow, ControlAction
from ledger.rows import record_of, select

ACTION = "ledger.archive"


class Archive(msgspec.Struct, frozen=True, kw_only=True):
    """One file of archived rows, as the ledger's control action says: `seq` is that action's."""

    file: str  # its name, without its folder
    sha256: str
    size_bytes: int
    rows: int
    requests: int
    first_seq: int
    last_seq: int
    before_us: int  # what was accepted before this time and closed
    first_accepted_us: int  # of what it took, the oldest
    last_accepted_us: int  # and the newest
    ended_before: bool = False  # what it took had also ended by then: older archives don't say so
    seq: int = 0


class ArchivedRequest(msgspec.Struct, frozen=True, kw_only=True):
    tenant_id: str
    file: str  # the archive that holds it


class Stayed(msgspec.Struct, frozen=True, kw_only=True):
    """How many of the requests that were asked for stay for one reason: each has one."""

    code: str  # stable
    why: str
    requests: int

    def __str__(self) -> str:
        return f"{self.requests:,} {self.why} ({self.code})"


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """What the ledger keeps of one archive."""

    rows: int
    requests: int
    first_seq: int
    last_seq: int

    def __str__(self) -> str:
        rows = f"{self.rows:,} rows of {self.first_seq:,} to {self.last_seq:,}"
        return f"{self.requests:,} requests, {rows}"


def archives(connection: sqlite3.Connection) -> list[Archive]:
    """All of them, the oldest first."""
    sql = f"{select(ControlAction)} WHERE action = ? ORDER BY seq"
    return [_archive(row) for row in fetch(connection, sql, (ACTION,))]


def archived_request(connection: sqlite3.Connection, request_id: str) -> ArchivedRequest | None:
    """Where a request is that the ledger itself has no more; None where it never had it."""
    row = fetch_one(
        connection,
        "SELECT a.tenant_id, c.subject FROM archived_request AS a "
        "JOIN control_action AS c ON c.seq = a.archive_seq WHERE a.request_id = ?",
        (request_id,),
    )
    return None if row is None else ArchivedRequest(tenant_id=row[0], file=row[1])


def archives_of_period(
    connection: sqlite3.Connection, start_us: int, end_us: int
) -> tuple[str, ...]:
    """The files of the archives that may hold requests accepted in start <= time < end."""
    return tuple(
        archive.file
        for archive in archives(connection)
        if archive.first_accepted_us < end_us and archive.last_accepted_us >= start_us
    )


def archives_of_attempts(
    connection: sqlite3.Connection, start_us: int, end_us: int, *, wait_us: int
) -> tuple[str, ...]:
    """The files of the archives that may hold attempts that started in start <= time < end.

    `wait_us`: how long after its acceptance an attempt of a request may start. Of an archive whose
    requests had ended before its cut, no attempt started after that.
    """
    return tuple(
        archive.file
        for archive in archives(connection)
        if archive.first_accepted_us < end_us
        and (
            archive.before_us > start_us
            if archive.ended_before
            else archive.last_accepted_us >= start_us - wait_us
        )
    )


def archived_rows(connection: sqlite3.Connection, size: int) -> int:
    """How many of the first `size` rows of the chain are in archives."""
    sql = f"SELECT count(*) FROM {ArchivedRow.TABLE} WHERE seq <= ?"
    return int(fetch_one(connection, sql, (size,))[0])


def stayed_behind(connection: sqlite3.Connection, before_us: int) -> tuple[Stayed, ...]:
    """Why requests stay that were accepted before a time, and how many, in order of the reasons.

    Asked of the new ledger while it is built, when it has the list of those that move.
    """
    counts: dict[str, int] = {}
    for sql in STAYED:
        counts |= {row[0]: row[1] for row in fetch(connection, sql, {"before_us": before_us})}
    reasons = (*((code, why) for code, why, _ in STAYS), UNDER_WAY)
    return tuple(
        Stayed(code=code, why=why, requests=counts[code])
        for code, why in reasons
        if counts.get(code)
    )


def kept_by_archive(connection: sqlite3.Connection) -> dict[int, Kept]:
    """What is kept of each archive, by the place of the action that names it."""
    rows = fetch(
        connection,
        f"SELECT archive_seq, count(*), min(seq), max(seq) FROM {ArchivedRow.TABLE} GROUP BY 1",
    )
    sql = "SELECT archive_seq, count(*) FROM archived_request GROUP BY 1"
    requests = {row[0]: row[1] for row in fetch(connection, sql)}
    found = {
        seq: Kept(rows=count, requests=requests.pop(seq, 0), first_seq=first, last_seq=last)
        for seq, count, first, last in rows
    }
    return found | {
        seq: Kept(rows=0, requests=count, first_seq=0, last_seq=0)
        for seq, count in requests.items()
    }


def requests_by_tenant(connection: sqlite3.Connection) -> dict[str, int]:
    """How many requests of each tenant are in archives."""
    sql = "SELECT tenant_id, count(*) FROM archived_request GROUP BY 1"
    return {row[0]: row[1] for row in fetch(connection, sql)}


def kept_hashes(
    connection: sqlite3.Connection, archive_seq: int, rows: int
) -> Iterator[dict[int, bytes]]:
    """The leaf hashes that are kept of an archive's rows by their seq, in order, `rows` at most."""
    sql = (
        f"SELECT seq, leaf FROM {ArchivedRow.TABLE} WHERE archive_seq = ? AND seq > ? "
        "ORDER BY seq LIMIT ?"
    )
    after = 0
    while page := fetch(connection, sql, (archive_seq, after, rows)):
        yield {row[0]: row[1] for row in page}
        after = page[-1][0]


def _archive(row: sqlite3.Row) -> Archive:
    told = msgspec.json.decode(record_of(ControlAction, row).after_json, type=Archive)
    return msgspec.structs.replace(told, seq=row[0])
