"""What is in force: the declared policy, the actions on top of it, and what has to be published."""

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from gateway.control.overlay import InForce, derived, same_rules
from gateway.policy.values import RoutePolicy
from ledger.queries import configuration, objectives
from ledger.records import ControlAction, RoutePolicyRecord
from ledger.slo import ActionKind

DERIVED_BY = "control"
"""The author of derived revisions; every other one is declared: a person's, or a rollout's."""
PREFIX = "slo."
"""Of the names of the actions that objectives take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """The policies in force, and how many were ever published."""

    base: RoutePolicy  # declared
    current: RoutePolicy  # declared, or derived from it
    published: int


def standing(connection: sqlite3.Connection) -> Standing | None:
    """The policies in force; None where none was ever published."""
    base = configuration.declared_policy(connection, DERIVED_BY)
    current = configuration.current_policy(connection)
    if base is None or current is None:
        return None
    return Standing(
        base=msgspec.json.decode(base.body_json, type=RoutePolicy),
        current=msgspec.json.decode(current.body_json, type=RoutePolicy),
        published=configuration.policies_count(connection),
    )


def in_force(connection: sqlite3.Connection) -> list[InForce]:
    """The actions in force, in the order in which they were applied."""
    return [
        _action(one.record) for one in objectives.open_episodes(connection)
        if one.record.phase == "applied"
    ]  # fmt: skip


def _action(record: ControlAction) -> InForce:
    kind = msgspec.convert(record.action.removeprefix(PREFIX), type=ActionKind)
    return InForce(episode=record.episode or "", kind=kind, target=record.subject)


def publish(
    before: Standing, base: RoutePolicy, actions: Sequence[InForce], *, now_us: int, author: str
) -> tuple[list[RoutePolicyRecord], RoutePolicy]:
    """The revisions to append, and the policy that is in force then.

    `base` is the declared policy as it shall be: another one than `before.base` is published as a
    declared revision by `author`. Nothing is published where nothing changes.
    """
    records: list[RoutePolicyRecord] = []
    if not same_rules(base, before.base):
        base = msgspec.structs.replace(
            base, revision=_revision(before.base.revision, before.published + 1)
        )
        records.append(_record(base, now_us, author))
    else:
        base = before.base
    wanted = derived(base, actions)
    current = base if records else before.current
    if same_rules(wanted, current):
        return records, current
    number = before.published + len(records) + 1
    wanted = msgspec.structs.replace(wanted, revision=_revision(base.revision, number))
    # A declared policy that stands again is published again: the newest row is what is in force.
    records.append(_record(wanted, now_us, DERIVED_BY))
    return records, wanted


def overlaid(
    base: RoutePolicy, actions: Sequence[InForce], *, published: int, now_us: int
) -> RoutePolicyRecord | None:
    """The revision derived from a policy that is being declared; None where no action changes it.

    `published`: how many there are with the declared one.
    """
    wanted = derived(base, actions)
    if same_rules(wanted, base):
        return None
    wanted = msgspec.structs.replace(wanted, revision=_revision(base.revision, published + 1))
    return _record(wanted, now_us, DERIVED_BY)


def _revision(of: str, number: int) -> str:
    """A name that no other revision has: the declared one it comes from, and a running number."""
    return f"{of.partition('+')[0]}+{number}"


def _record(policy: RoutePolicy, now_us: int, author: str) -> RoutePolicyRecord:
    return RoutePolicyRecord(
        revision=policy.revision,
        body_json=msgspec.json.encode(policy).decode(),
        published_at_us=now_us,
        published_by=author,
    )
