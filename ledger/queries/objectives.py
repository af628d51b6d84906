"""Objectives, their evaluations and overrides, as declared and recorded (SPEC 12)."""

import sqlite3
from collections.abc import Sequence

from ledger.reading import fetch, fetch_one
from ledger.records import ActionOverride, ControlAction, SloDefinitionRecord, SloEvaluation
from ledger.rows import Stored, record_of, select, stored
from ledger.slo import SloDefinition
from ledger.slo_book import REVISIONS_LIMIT, in_force, timeline
from ledger.slo_defaults import DEFAULT_SLOS
from ledger.slo_text import from_json

EPISODES_LIMIT = 1_000
PHASES_LIMIT = 50
ENDED = ("undone", "declined", "lapsed")  # phases that end an episode


def revisions(
    connection: sqlite3.Connection, shipped: Sequence[SloDefinition] = DEFAULT_SLOS
) -> tuple[SloDefinition, ...]:
    """Every revision of every objective, shipped or declared: what is counted, and until when."""
    rows = fetch(connection, f"{select(SloDefinitionRecord)} ORDER BY seq LIMIT ?", (10**6,))
    declared = [record_of(SloDefinitionRecord, row) for row in rows[-REVISIONS_LIMIT:]]
    return timeline(
        (from_json(one.slo_id, one.revision, one.body_json) for one in declared), shipped
    )


def objectives(connection: sqlite3.Connection) -> tuple[SloDefinition, ...]:
    """The objectives in force: the newest revision of each that is not retired."""
    return in_force(revisions(connection))


def declared_until(connection: sqlite3.Connection) -> int:
    """The seq of the last declaration; 0 of none. When it stands still, so do the objectives."""
    return int(fetch_one(connection, "SELECT max(seq) FROM slo_definition")[0] or 0)


def last_evaluation(connection: sqlite3.Connection, slo_id: str) -> SloEvaluation | None:
    """The evaluation of the objective's newest window, in its newest revision; None of none."""
    sql = f"{select(SloEvaluation)} WHERE slo_id = ? ORDER BY end_us DESC, revision DESC LIMIT 1"
    row = fetch_one(connection, sql, (slo_id,))
    return None if row is None else record_of(SloEvaluation, row)


def evaluations(
    connection: sqlite3.Connection, slo_id: str, *, limit: int = 100
) -> list[SloEvaluation]:
    """The objective's newest evaluations, the newest first, corrections among them."""
    sql = f"{select(SloEvaluation)} WHERE slo_id = ? ORDER BY end_us DESC, revision DESC LIMIT ?"
    return [record_of(SloEvaluation, row) for row in fetch(connection, sql, (slo_id, limit))]


def evaluations_of(
    connection: sqlite3.Connection, slo_id: str, ends: Sequence[int]
) -> list[SloEvaluation]:
    """The objective's evaluations of the windows with these ends, each in its newest revision."""
    sql = f"{select(SloEvaluation)} WHERE slo_id = ? AND end_us = ? ORDER BY revision DESC LIMIT 1"
    rows = [fetch_one(connection, sql, (slo_id, end_us)) for end_us in ends]
    return [record_of(SloEvaluation, row) for row in rows if row is not None]


def counted_to(connection: sqlite3.Connection) -> int:
    """The row up to which the last recorded evaluation had counted; 0 where there is none."""
    sql = (
        "SELECT coalesce(counted_to_seq, seq) FROM slo_evaluation "
        "WHERE seq = (SELECT max(seq) FROM slo_evaluation)"
    )
    row = fetch_one(connection, sql)
    return 0 if row is None else int(row[0])


def windows_of_late(
    connection: sqlite3.Connection, since_seq: int, until_us: int, step_us: int, limit: int
) -> list[int]:
    """The ends, ascending, of windows before `until_us` with a receipt appended after a row.

    The newest `limit` of them. Reads the receipts since that row, and none before it.
    """
    sql = (
        "SELECT DISTINCT accepted_at_us / ? FROM receipt NOT INDEXED "
        "WHERE seq > ? AND accepted_at_us < ?"
    )
    steps = {row[0] for row in fetch(connection, sql, (step_us, since_seq, until_us))}
    return [(step + 1) * step_us for step in sorted(steps)[-limit:]]


def override_of(connection: sqlite3.Connection, slo_id: str, at_us: int) -> ActionOverride | None:
    """The override of an objective that holds at a time; None where none does."""
    sql = f"{select(ActionOverride)} WHERE slo_id = ? ORDER BY revision DESC LIMIT 1"
    row = fetch_one(connection, sql, (slo_id,))
    found = None if row is None else record_of(ActionOverride, row)
    return found if found and found.begins_at_us <= at_us < found.expires_at_us else None


def override_revision(connection: sqlite3.Connection, slo_id: str) -> int:
    """The revision of the objective's last override; 0 of none."""
    sql = "SELECT max(revision) FROM action_override WHERE slo_id = ?"
    return int(fetch_one(connection, sql, (slo_id,))[0] or 0)


def open_episodes(connection: sqlite3.Connection) -> list[Stored[ControlAction]]:
    """The last phase of each episode that has not ended: proposed or applied, the oldest first."""
    sql = (
        f"{select(ControlAction)} AS a INDEXED BY control_action_episode "
        "WHERE episode IS NOT NULL AND phase NOT IN (?, ?, ?) "
        "AND NOT EXISTS (SELECT 1 FROM control_action AS later "
        "WHERE later.episode = a.episode AND later.seq > a.seq) ORDER BY seq LIMIT ?"
    )
    rows = fetch(connection, sql, (*ENDED, EPISODES_LIMIT))
    return [stored(ControlAction, row) for row in rows]


def episode(connection: sqlite3.Connection, name: str) -> list[ControlAction]:
    """The phases of one episode in their order; empty where there is no such episode."""
    sql = f"{select(ControlAction)} WHERE episode = ? ORDER BY seq"
    return [record_of(ControlAction, row) for row in fetch(connection, sql, (name,))]


def begun_since(connection: sqlite3.Connection, prefix: str, since_us: int) -> int:
    """How many episodes whose name begins so were begun from a time on."""
    sql = (
        "SELECT count(*) FROM (SELECT episode FROM control_action WHERE episode >= ? "
        "AND episode < ? GROUP BY episode HAVING min(acted_at_us) >= ?)"
    )
    return int(fetch_one(connection, sql, (prefix, prefix + "\uffff", since_us))[0])


def first_acceptance_us(connection: sqlite3.Connection) -> int | None:
    """When the oldest request of the ledger was accepted; None where there is none."""
    found: int | None = fetch_one(connection, "SELECT min(accepted_at_us) FROM receipt")[0]
    return found


def phases_of(connection: sqlite3.Connection, slo_id: str) -> list[Stored[ControlAction]]:
    """The phases of an objective's newest episodes, the newest first, at most PHASES_LIMIT."""
    sql = (
        f"{select(ControlAction)} INDEXED BY control_action_episode "
        "WHERE episode >= ? AND episode < ? ORDER BY episode DESC, seq DESC LIMIT ?"
    )
    rows = fetch(connection, sql, (f"{slo_id}/", f"{slo_id}0", PHASES_LIMIT))  # "0" follows "/"
    return [stored(ControlAction, row) for row in rows]


def overrides(
    connection: sqlite3.Connection, slo_id: str, *, limit: int = 20
) -> list[ActionOverride]:
    """An objective's newest overrides, the newest first."""
    sql = f"{select(ActionOverride)} WHERE slo_id = ? ORDER BY revision DESC LIMIT ?"
    return [record_of(ActionOverride, row) for row in fetch(connection, sql, (slo_id, limit))]


def declarations(connection: sqlite3.Connection, slo_id: str) -> list[SloDefinitionRecord]:
    """The declared revisions of an objective, the newest first; a shipped one has none."""
    sql = f"{select(SloDefinitionRecord)} WHERE slo_id = ? ORDER BY revision DESC LIMIT ?"
    return [record_of(SloDefinitionRecord, row) for row in fetch(connection, sql, (slo_id, 50))]
