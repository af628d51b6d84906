"""An archive compared, row by row, with the hashes that its ledger kept (LED-7, LED-8)."""

import sqlite3
from contextlib import closing
from pathlib import Path

from ledger.archive_tables import MOVED
from ledger.backup import sha256_of
from ledger.errors import LedgerError
from ledger.faults import Fault
from ledger.older_schema import connect_as_of_today
from ledger.queries.archives import Archive, archives, kept_hashes
from ledger.reading import fetch_one
from ledger.walk import FAULTS_LIMIT, Faults, TooManyFaults, fault_at, leaf_of, rows_by_seq

ROWS_PER_STEP = 4_096


def archive_faults(
    ledger: sqlite3.Connection, file: Path, name: str | None = None
) -> tuple[Fault, ...]:
    """What is wrong with an archive, each row named; FAULTS_LIMIT at most.

    `name`: what the ledger calls it, where the file bears another name for now.
    """
    faults = Faults()
    known = {archive.file: archive for archive in archives(ledger)}
    archive = known.get(name or file.name)
    if archive is None:
        what = f"the ledger has no archive {name or file.name}; it has {', '.join(known) or 'none'}"
        return (Fault(kind="archive", label=file.name, what=what),)
    try:
        with closing(connect_as_of_today(file)) as connection:
            _compare(ledger, connection, archive, faults)
        if not faults and sha256_of(file) != archive.sha256:
            what = "its rows are those that were archived, but the file isn't: it was altered"
            faults.add(Fault(kind="archive", label=archive.file, what=what))
    except TooManyFaults:
        pass
    except (LedgerError, OSError, sqlite3.DatabaseError) as error:
        faults.append(Fault(kind="archive", label=archive.file, what=f"can't be read: {error}"))
    return tuple(faults[:FAULTS_LIMIT])


def _compare(
    ledger: sqlite3.Connection, connection: sqlite3.Connection, archive: Archive, faults: Faults
) -> None:
    found_rows = 0
    for kept in kept_hashes(ledger, archive.seq, ROWS_PER_STEP):
        places = sorted(kept)
        for first in range(places[0], places[-1] + 1, ROWS_PER_STEP):
            last = min(first + ROWS_PER_STEP - 1, places[-1])
            for seq, found in rows_by_seq(connection, first, last, faults):
                if seq not in kept:
                    continue
                if not found:
                    what = f"{archive.file} has this row no more"
                    faults.add(Fault(kind="missing", seq=seq, label=archive.file, what=what))
                    continue
                found_rows += 1
                if leaf_of(*found[0]) != kept[seq]:
                    what = f"in {archive.file} it isn't what was hashed: it was altered"
                    faults.add(fault_at("altered", *found[0], what))
    counted = sum(fetch_one(connection, f"SELECT count(*) FROM {kind.TABLE}")[0] for kind in MOVED)
    if counted > found_rows:
        what = f"it has {counted - found_rows:,} row(s) that were never archived"
        faults.add(Fault(kind="archive", label=archive.file, what=what))
