"""Every command that opens a ledger says what is wrong with its file: a code, where, what to do."""

import os
import re
import shutil
import sqlite3
import sys

import pytest
from django.core.management.base import CommandError

import manage
from ledger.backup import manifest_of
from ledger.reading import connect_read_only
from tests import factories
from tests.ledger.commands import run
from tests.ledger.prebuilt import prebuilt
from tests.ledger.tampering import damage, tamper

PAGE_BYTES = 4_096


def fill(store):
    store.append([factories.rate_table(), factories.model_identity()]).result()
    for number in range(1, 4):
        for commit in factories.request_records(number):
            store.append(commit).result()


@pytest.fixture(scope="module")
def sound(ledger_template, tmp_path_factory):
    return prebuilt(ledger_template, tmp_path_factory.mktemp("sound"), fill)


def overwritten(sound, path):
    """The root page, the first: the file's header is whole, what tables there are isn't."""
    shutil.copyfile(sound, path)
    with path.open("r+b") as file:
        file.seek(100)
        file.write(b"\xff" * 512)


def headless(sound, path):
    shutil.copyfile(sound, path)
    with path.open("r+b") as file:
        file.write(bytes(100))


def truncated(sound, path):
    shutil.copyfile(sound, path)
    os.truncate(path, path.stat().st_size // PAGE_BYTES // 2 * PAGE_BYTES + 100)


def no_database(sound, path):
    path.write_text("no database at all\n" * 500)


def empty(sound, path):
    path.touch()


def folder(sound, path):
    path.mkdir()


def missing(sound, path):
    """Nothing is there."""


def another_database(sound, path):
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE notes (text)")
    connection.close()


def not_readable(sound, path):
    if os.geteuid() == 0:
        pytest.skip("root reads every file")
    shutil.copyfile(sound, path)
    path.chmod(0)


UNUSABLE = (
    overwritten, headless, truncated, no_database, empty, folder, missing, another_database,
    not_readable,
)  # fmt: skip


def commands(path, out):
    """Of each way to open a ledger at least one, as an operator types it; `out` is a new name."""
    days = ("2025-11-01", "2025-11-30")
    return [
        ("audit",), ("verify_ledger",), ("checkpoint_ledger",), ("export_proof", "req_1"),
        ("rebuild_rollups", "--check"), ("rebuild_rollups",),
        ("backup", str(out)), ("archive", "--before", "2025-12", "--to", str(out)),
        ("export_focus", "--from", days[0], "--to", days[1], "--out", f"{out}.csv"),
        ("unknowns",), ("slos", "export"), ("evaluate_slos",), ("policy", "list"),
        ("fleet", "export"), ("rates", "list"), ("replay_decisions",),
        ("reconcile", "--provider", "simulator", "--period", "2025-11"),
        ("calibrate", "--route", "route-a"), ("serve", "--port", "0"),
    ]  # fmt: skip


def said(command):
    """What a command says of a ledger that it can't use; the test fails where it goes on."""
    with pytest.raises(CommandError) as refused:
        run(*command)
    return str(refused.value)


@pytest.mark.parametrize("unusable", UNUSABLE)
def test_a_file_that_is_no_ledger_is_refused_by_every_command(sound, tmp_path, settings, unusable):
    path = settings.WEIGHBRIDGE_DB = tmp_path / "ledger.sqlite3"
    settings.VAR_DIR = tmp_path
    unusable(sound, path)
    for command in commands(path, tmp_path / "out"):
        text = said(command)
        named = r"[A-Z_]+: The ledger .*/ledger\.sqlite3 can't be (read|opened): "
        assert re.match(named, text), (command, text)
        assert re.search("Run: |restore the last backup|Name a file|Run this as|Look at", text)
    assert not [left for left in tmp_path.iterdir() if left.name.startswith("out")]
    status, out, _ = run("ledger_health")
    assert (status, "bad   LEDGER_UNREADABLE" in out) == (1, True)


@pytest.mark.parametrize("unusable", UNUSABLE)
def test_a_backup_that_is_no_ledger_is_not_restored(sound, tmp_path, unusable):
    path = tmp_path / "ledger.sqlite3"
    unusable(sound, path)
    manifest_of(path).write_text("{}")
    assert said(("restore", str(path), "--to", str(tmp_path / "new"))).startswith("NO_MANIFEST: ")


@pytest.mark.parametrize("table", ["receipt", "chain_head", "rollup_state", "control_action"])
def test_a_page_that_is_damaged_within_ends_no_command_without_words(
    sound, tmp_path, settings, table
):
    path = settings.WEIGHBRIDGE_DB = tmp_path / "ledger.sqlite3"
    settings.VAR_DIR = tmp_path
    shutil.copyfile(sound, path)
    damage(path, table)
    faults = 0
    for command in commands(path, tmp_path / "out"):
        if command[0] in ("serve", "fleet", "calibrate"):  # serves; ask for more than is here
            continue
        try:
            status, out, err = run(*command)
            faults += status != 0
            assert status in (0, 1), (command, out, err)
        except CommandError as refused:
            faults += 1
            assert re.match("[A-Z_]+: |The rollups|There ", str(refused)), (command, refused)
    assert faults


@pytest.mark.parametrize(
    "altered",
    [
        "entry_hash = 'text'", "entry_hash = 7", "entry_hash = x'00'", "frontier = 'text'",
        "frontier = x'00'", "size = 'many'", "size = -1", "size = 1.5", f"size = {2**62}",
    ],
)  # fmt: skip
def test_a_head_that_was_altered_is_found_whatever_it_became(sound, tmp_path, settings, altered):
    path = settings.WEIGHBRIDGE_DB = tmp_path / "ledger.sqlite3"
    shutil.copyfile(sound, path)
    tamper(path, f"UPDATE chain_head SET {altered}")
    assert run("verify_ledger")[0] == 1
    assert "CHAIN_HEAD_IS_ROWS: " in run("audit")[2]
    assert "CHAIN_HEAD" in run("ledger_health")[1]
    assert said(("backup", str(tmp_path / "out"))).startswith("CHAIN_BROKEN: ")
    if str(2**62) not in altered and altered != "entry_hash = x'00'":
        assert said(("checkpoint_ledger",)).startswith("LEDGER_DAMAGED: ")


def test_a_log_of_another_file_ends_no_command_without_words(sound, tmp_path, settings):
    """SQLite can't tell whose log it is: what it makes of it is refused, or found by the proof."""
    path = settings.WEIGHBRIDGE_DB = tmp_path / "ledger.sqlite3"
    shutil.copyfile(sound, path)
    other = shutil.copyfile(sound, tmp_path / "other.sqlite3")
    with sqlite3.connect(other) as connection:
        connection.execute("CREATE TABLE notes (text)")
        connection.execute("INSERT INTO notes VALUES (zeroblob(100000))")
    shutil.copyfile(f"{other}-wal", f"{path}-wal")
    connection.close()
    for command in (("verify_ledger",), ("audit",), ("unknowns",), ("backup", str(tmp_path / "b"))):
        try:
            assert run(*command)[0] in (0, 1)
        except CommandError as refused:
            assert re.match("[A-Z_]+: ", str(refused))


def test_what_django_meets_in_a_damaged_ledger_is_told_in_words_too(
    sound, tmp_path, settings, monkeypatch, capsys
):
    path = settings.WEIGHBRIDGE_DB = tmp_path / "ledger.sqlite3"
    no_database(sound, path)

    def opens_it(arguments):
        connect_read_only(path)

    monkeypatch.setattr("django.core.management.execute_from_command_line", opens_it)
    monkeypatch.setattr(sys, "argv", ["manage.py", "migrate"])
    with pytest.raises(SystemExit) as ended:
        manage.main()
    assert ended.value.code == 1
    assert capsys.readouterr().err.startswith(f"LEDGER_UNREADABLE: The ledger {path} can't be read")
    monkeypatch.setattr(sys, "argv", ["manage.py", "migrate", "--traceback"])
    with pytest.raises(Exception, match="can't be read"):
        manage.main()
