"""Control actions: who changed what, and why."""

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass

from ledger.queries.distinct import distinct
from ledger.reading import fetch, fetch_one
from ledger.records import ControlAction
from ledger.rows import Stored, record_of, select, stored

SUBJECTS_LIMIT = 1_000
NAMES_LIMIT = 200


def latest_action(connection: sqlite3.Connection, action: str) -> ControlAction | None:
    """The last control action of a name; None where there was none."""
    row = fetch_one(
        connection,
        f"{select(ControlAction)} WHERE action = ? ORDER BY seq DESC LIMIT 1",
        (action,),
    )
    return None if row is None else record_of(ControlAction, row)


def drained_routes(connection: sqlite3.Connection) -> frozenset[str]:
    """The routes whose last drain has not been undone: the audit log alone says so."""
    sql = (
        "SELECT subject FROM control_action WHERE action = 'drain_route' AND seq IN "
        "(SELECT max(seq) FROM control_action WHERE action IN ('drain_route', 'undrain_route') "
        "GROUP BY subject)"
    )
    return frozenset(row[0] for row in fetch(connection, sql))


def last_of_each(
    connection: sqlite3.Connection, actions: Sequence[str]
) -> dict[str, ControlAction]:
    """The last action on each subject, of those with one of these names, by subject."""
    places = ",".join("?" * len(actions))
    sql = (
        f"{select(ControlAction)} WHERE seq IN (SELECT max(seq) FROM control_action "
        f"WHERE action IN ({places}) GROUP BY subject) LIMIT {SUBJECTS_LIMIT}"
    )
    found = [record_of(ControlAction, row) for row in fetch(connection, sql, actions)]
    return {each.subject: each for each in found}


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionsPage:
    """A page of the audit log, the newest first; `older_seq` leads to the next one."""

    actions: tuple[Stored[ControlAction], ...]
    older_seq: int | None


def actions_page(
    connection: sqlite3.Connection,
    *,
    before_seq: int | None = None,
    action: str = "",
    subject: str = "",
    actor: str = "",
    rows: int = 100,
) -> ActionsPage:
    """The actions that match every given part exactly, from before a place in the chain."""
    wanted = {"action": action, "subject": subject, "actor": actor}
    given = {name: value for name, value in wanted.items() if value}
    conditions = [*(f"{name} = ?" for name in given), "seq < ?"]
    sql = (
        f"{select(ControlAction)} WHERE {' AND '.join(conditions)} "
        f"ORDER BY seq DESC LIMIT {rows + 1}"
    )
    values = (*given.values(), 2**63 - 1 if before_seq is None else before_seq)
    found = [stored(ControlAction, row) for row in fetch(connection, sql, values)]
    more = len(found) > rows
    return ActionsPage(actions=tuple(found[:rows]), older_seq=found[rows - 1].seq if more else None)


def action_names(connection: sqlite3.Connection) -> tuple[str, ...]:
    """The names of the actions that there were, in order."""
    index = "control_action_subject"
    return distinct(connection, "control_action", "action", index, limit=NAMES_LIMIT)
