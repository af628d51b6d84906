"""What tests of publishing share: who acts, what is in the ledger, what was said."""

import contextlib
import sqlite3
from pathlib import Path

from gateway.fleet_file.document import write_fleet
from gateway.fleet_file.in_force import fleet_in_force
from gateway.operations import anywhere
from gateway.operations.base import Actor, Done, Operation, Refused
from gateway.operations.fleet import ApplyFleet
from ledger.queries import configuration as stored
from ledger.reading import read_head
from ledger.records import ControlAction
from ledger.rows import record_of, select
from tests.factories import NOW_US
from tests.server_fixtures import Fleet

ADMIN = Actor(name="ada", role="admin", via="command")
OPERATOR = Actor(name="otto", role="operator", via="console")
OBJECTIVE = """
[objectives.fast-first-token]
title = "The first token of the long model within 2 s"
indicator = "ttft"
target_ppm = 990_000
threshold_us = 2_000_000
period_us = 2_592_000_000_000
selector = { logical_models = ["assist-long"], input_tokens = [0, 4096] }
action = { kind = "open_incident" }
"""
SECRETS = (
    "sk-proj-Ab3dEf6hIj9kLm2nOp5q",
    "Bearer c2VjcmV0LXRva2VuLTEyMzQ1",
    "wb_0123456789abcdefghijklmnopqrstuvwxyzabcdefghijk",
    "AKIAABCDEFGHIJKLMNOP",
)


def done(fleet: Fleet, operation: Operation, actor: Actor = ADMIN) -> Done:
    result = anywhere.perform(fleet.ledger, operation, actor)
    assert isinstance(result, Done), result
    return result


def refused(fleet: Fleet, operation: Operation, actor: Actor = ADMIN) -> Refused:
    """What was said; that nothing was written is asserted here."""
    before = size(fleet)
    result = anywhere.perform(fleet.ledger, operation, actor)
    assert isinstance(result, Refused), result
    assert size(fleet) == before
    return result


def size(fleet: Fleet) -> int:
    with contextlib.closing(fleet.reader()) as connection:
        head = read_head(connection)
    assert head is not None
    return head.size


def actions(connection: sqlite3.Connection) -> list[ControlAction]:
    rows = connection.execute(f"{select(ControlAction)} ORDER BY seq").fetchall()
    return [record_of(ControlAction, row) for row in rows]


def in_force(fleet: Fleet) -> str:
    with contextlib.closing(fleet.reader()) as connection:
        record = stored.current_policy(connection)
    assert record is not None
    return record.revision


def assert_nowhere_in(folder: Path, text: str) -> None:
    """No file of the folder holds the text: not the ledger, its log, or anything beside."""
    for path in folder.rglob("*"):
        if path.is_file():
            assert text.encode() not in path.read_bytes(), path


def exported(fleet: Fleet) -> str:
    """What is in force, as a fleet file."""
    with contextlib.closing(fleet.reader()) as connection:
        return write_fleet(fleet_in_force(connection, 2 * NOW_US))


def apply(text: str, **fields) -> ApplyFleet:
    return ApplyFleet(text=text, **({"reason": "a test"} | fields))


def changed(text: str, *changes: tuple[str, str]) -> str:
    """A text with the first of each of these parts replaced."""
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new, 1)
    return text


def line_of(text: str, part: str) -> int:
    """The first line that holds a part, from 1."""
    return next(i for i, line in enumerate(text.splitlines(), 1) if part in line)
