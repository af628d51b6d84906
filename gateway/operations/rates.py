"""Rate tables: drafted, compared, published ahead of the time that they take effect (CST-5, CST-7).

A published version is immutable. It prices what is accepted from its time on, never what was
accepted before.
"""

import sqlite3
from dataclasses import replace
from typing import Any, ClassVar, Final

import msgspec

from gateway.auth_roles import Role
from gateway.fleet_file.differences import differences
from gateway.fleet_file.in_force import declared_policy
from gateway.fleet_file.named import instant, named
from gateway.operations.base import Operation, Plan, Refused, Seen
from gateway.operations.drafting import (
    changes,
    drafted,
    missing_draft,
    moved,
    name_problem,
    read_body,
    refused,
)
from gateway.operations.policy_checks import around, price_faults
from gateway.operations.rate_checks import earliest_us, record_of_table, table_faults
from ledger.queries import configuration as stored
from ledger.queries import drafts
from ledger.rates import RateTable

KIND: Final = "rate_table"
INVALID: Final = "INVALID_RATES"
CORRECT: Final = "Correct the draft and publish it again."


class DraftRates(Operation, frozen=True, kw_only=True):
    """Keep a rate table as a draft, to be compared and tried on past traffic."""

    NAME: ClassVar[str] = "draft_rates"
    ROLE: ClassVar[Role] = "operator"
    NEEDS_REASON: ClassVar[bool] = False

    version: str
    table: dict[str, Any]  # its fields by name; effective_from_us may be left out
    based_on: str | None = None  # the version published last, where none is named
    note: str = ""

    def plan(self, seen: Seen) -> Plan | Refused:
        table = _read(self.version, self.table, 0)
        if isinstance(table, Refused):
            return table
        if stored.rate_table(seen.connection, self.version) is not None:
            return _taken(self.version)
        return drafted(
            seen,
            kind=KIND,
            name=self.version,
            body_json=msgspec.json.encode(table).decode(),
            based_on=self.based_on or latest_version(seen.connection),
            note=self.note,
            faults=(
                fault
                for fault in table_faults(table, seen)
                if fault.path != ("effective_from_us",)  # decided when it is published
            ),
            tree=named(table),
        )


class PublishRates(Operation, frozen=True, kw_only=True):
    """Publish a rate table, given or drafted; it prices what is accepted from its time on."""

    NAME: ClassVar[str] = "publish_rates"
    ROLE: ClassVar[Role] = "admin"

    version: str  # new: that of no published table
    table: dict[str, Any] | None = None  # None: the draft of that name
    draft_revision: int | None = None  # None: the newest
    effective_from_us: int | None = None  # None: the table's; where it has none, soon
    based_on: str | None = None  # None: what the draft says

    def plan(self, seen: Seen) -> Plan | Refused:
        connection, based_on = seen.connection, self.based_on
        if stored.rate_table(connection, self.version) is not None:
            return _taken(self.version)
        if self.table is not None:
            table = _read(self.version, self.table, 0)
            if isinstance(table, Refused):
                return table
        else:
            draft = drafts.draft(connection, KIND, self.version, self.draft_revision)
            if draft is None:
                return missing_draft(self.version, self.draft_revision)
            table = msgspec.json.decode(draft.body_json, type=RateTable)
            based_on = based_on or draft.based_on
        overtaken = moved(latest_version(connection), based_on, "rate table published last")
        if overtaken is not None:
            return overtaken
        soonest = earliest_us(connection, seen.now_us) or seen.now_us
        effective_us = self.effective_from_us or table.effective_from_us or soonest
        table = msgspec.structs.replace(table, effective_from_us=effective_us)
        faults = list(table_faults(table, seen))
        advice = CORRECT if faults else merge_advice(latest_version(connection), self.version)
        current = declared_policy(connection)
        if current is not None:
            with_it = replace(around(connection, seen.now_us), rate_tables=(table,))
            faults += [replace(each, path=("rates",)) for each in price_faults(current, with_it)]
        if faults:
            return refused(INVALID, faults, named(table), advice=advice)
        before = stored.rate_table_in_effect(connection, effective_us)
        old = None if before is None else msgspec.json.decode(before.body_json, type=RateTable)
        when = instant(effective_us).isoformat(timespec="seconds")
        return Plan(
            records=(record_of_table(table, seen),),
            summary=f"Published the rate table {self.version}, in effect from {when}.",
            subject=self.version,
            before={"version": None if old is None else old.version},
            after={
                "version": self.version,
                "effective_from_us": effective_us,
                "changes": changes(differences(old, table)) if old else [],
            },
        )


def rates_of(connection: sqlite3.Connection, version: str) -> RateTable | None:
    """The table of a published version, else the newest draft of that name, else None."""
    record = stored.rate_table(connection, version) or drafts.draft(connection, KIND, version)
    return None if record is None else msgspec.json.decode(record.body_json, type=RateTable)


def latest_version(connection: sqlite3.Connection) -> str | None:
    """The version published last, whether or not it is in effect yet; None before the first."""
    published = stored.rate_tables(connection)
    return published[-1].version if published else None


def merge_advice(latest: str | None, version: str) -> str:
    """What to do about a table that prices less than the one before it."""
    whole = "A table is whole: what it leaves out has no price."
    if latest is None:
        return f"{whole} Draft it with the prices of every route."
    return (
        f"{whole} Take the other prices from {latest}: `manage.py rates import … --version "
        f"{version} --over {latest}`, or copy them from `manage.py rates show {latest}`."
    )


def _read(version: str, tree: dict[str, Any], effective_from_us: int) -> RateTable | Refused:
    dated = {"effective_from_us": effective_from_us, **tree}
    wrong = name_problem(version, "version")
    if wrong is not None:
        return wrong
    return read_body(RateTable, dated, INVALID, version=version)


def _taken(version: str) -> Refused:
    return Refused(
        code="VERSION_EXISTS",
        message=f"{version} is published already, and a published rate table never changes. "
        "Choose a new version.",
    )
