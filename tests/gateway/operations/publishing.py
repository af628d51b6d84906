"""What tests of publishing share: who acts, what is in the ledger, what was said."""

import contextlib
import sqlite3
from pathlib import Path

from gateway.operations import anywhere
from gateway.operations.base import Actor, Done, Operation, Refused
from ledger.queries import configuration as stored
from ledger.reading import read_head
from ledger.records import ControlAction
from ledger.rows import record_of, select
from tests.server_fixtures import Fleet

ADMIN = Actor(name="ada", role="admin", via="command")
OPERATOR = Actor(name="otto", role="operator", via="console")
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
