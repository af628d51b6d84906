"""The audit's checks of what a ledger keeps of its archives: counts, places and sums (LED-8).

The archives' files aren't asked for: `ledger.archive_check` compares them row by row.
"""

import sqlite3
from collections.abc import Iterator, Mapping

from ledger.findings import Finding, Scope
from ledger.queries.archives import Kept, archives, kept_by_archive, requests_by_tenant
from ledger.rollups import archived as sums_of
from ledger.rollups.projection import read_state
from ledger.rollups.sums import snapshot
from ledger.rollups.tables import ARCHIVED, COARSE_MIN, QUARTER, grain_us

NOTHING = Kept(rows=0, requests=0, first_seq=0, last_seq=0)
TABLE = ARCHIVED.name("total")


def archives_are_kept(scope: Scope) -> Iterator[Finding]:
    """Findings where an archive's action and the rows and requests kept of it don't agree."""
    with snapshot(scope.connection):
        known = {archive.seq: archive for archive in archives(scope.connection)}
        kept = kept_by_archive(scope.connection)
    for seq in sorted(known.keys() | kept.keys()):
        found, archive = kept.get(seq, NOTHING), known.get(seq)
        if archive is None:
            what = f"no action names this archive, of which are kept {found}"
            yield Finding(table="archived_row", label=f"archive of row {seq}", what=what)
            continue
        said = Kept(
            rows=archive.rows,
            requests=archive.requests,
            first_seq=archive.first_seq,
            last_seq=archive.last_seq,
        )
        if found != said:
            what = f"its action says {said}; kept are {found}"
            yield Finding(table="control_action", seq=seq, label=archive.file, what=what)


def archived_sums_are_requests(scope: Scope) -> Iterator[Finding]:
    """Findings where the sums of archived months are of more or fewer requests than were archived,
    by tenant; where their grains differ; and where they lie outside of what archives took."""
    try:
        with snapshot(scope.connection):
            yield from _sums_at_fault(scope.connection)
    except (sqlite3.OperationalError, LookupError, ValueError) as error:
        if isinstance(error, sqlite3.OperationalError) and not str(error).startswith("no such "):
            raise  # interrupted, or locked
        what = f"they can't be read: {error}; run rebuild_rollups with every --archive FILE"
        yield Finding(table=TABLE, what=what)


def _sums_at_fault(connection: sqlite3.Connection) -> Iterator[Finding]:
    archived = requests_by_tenant(connection)
    if not sums_of.has_archived(connection):
        yield from _miscounted(archived, {})
        return
    state = read_state(connection, ARCHIVED)
    whole = sums_of.archived_sums(connection, QUARTER, sums_of.MOST_US)
    yield from _miscounted(archived, sums_of.requests_by_tenant(connection, whole))
    for grain_min in COARSE_MIN:
        coarse = sums_of.archived_sums(connection, grain_min, sums_of.MOST_US)
        fine = sums_of.archived_sums(connection, QUARTER, state.until(grain_min))
        differing = (coarse != fine).any(axis=1).nonzero()[0]
        if len(differing):
            what = f"sums by {grain_min} minutes are not those of the quarter hours"
            yield Finding(table=TABLE, label=f"{len(differing):,} series", what=what)
    yield from _outside(connection)


def _miscounted(archived: Mapping[str, int], summed: Mapping[str, int]) -> Iterator[Finding]:
    for tenant_id in sorted(archived.keys() | summed.keys()):
        requests, counted = archived.get(tenant_id, 0), summed.get(tenant_id, 0)
        if requests != counted:
            what = f"{requests:,} requests are archived; the sums are of {counted:,}"
            yield Finding(table=TABLE, label=f"tenant {tenant_id}", what=what)


def _outside(connection: sqlite3.Connection) -> Iterator[Finding]:
    extent_us, known = sums_of.archived_extent_us(connection), archives(connection)
    if extent_us is None or not known:
        return
    first_us = min(archive.first_accepted_us for archive in known)
    first_us -= first_us % grain_us(QUARTER)
    last_us = max(archive.last_accepted_us for archive in known)
    for bucket_us in extent_us:
        if not first_us <= bucket_us <= last_us:
            what = f"it has sums of the quarter hour {bucket_us}; of that nothing was archived"
            yield Finding(table=TABLE, what=what)
