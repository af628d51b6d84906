"""`verify_ledger` and `checkpoint_ledger` as an operator runs them."""

import io
import json
import resource

import pytest
from django.core.management import CommandError
from django.core.management.base import OutputWrapper

from ledger.management.new_file import put_out
from ledger.store import Store
from tests import factories
from tests.ledger.commands import run
from tests.ledger.tampering import TABLES, damage, fill, seqs, tamper


@pytest.fixture
def filled(ledger_path):
    with Store.open(ledger_path) as store:
        fill(store)
    return ledger_path


def size(path):
    return sum(len(seqs(path, table)) for table in TABLES)


def test_a_sound_ledger_exits_0_and_says_how_fast_it_was_read(filled):
    status, out, err = run("verify_ledger", "--ledger", str(filled), "--at-rest")
    assert (status, err) == (0, "")
    assert f"sound; {size(filled)} rows" in out
    assert "rows/s" in out


def test_a_tampered_ledger_exits_1_and_names_table_seq_and_id(filled):
    tamper(filled, "UPDATE receipt SET tenant_id = 'other' WHERE request_id LIKE '%2'")
    status, out, err = run("verify_ledger", "--ledger", str(filled))
    assert status == 1
    line = err.splitlines()[0]
    seq = seqs(filled, "receipt")[1]
    assert line.startswith(f"altered: receipt seq {seq} (request_id {factories.request_id(2)}): ")
    assert "fault(s)" in out


def test_a_checkpoint_is_exported_kept_and_proved_against(filled, tmp_path):
    file = tmp_path / "checkpoint.json"
    assert run("checkpoint_ledger", "--ledger", str(filled), "--output", str(file))[0] == 0
    assert json.loads(file.read_text())["size"] == size(filled)
    with pytest.raises(CommandError, match="can't write"):
        run("checkpoint_ledger", "--ledger", str(filled), "--output", str(file))
    arguments = ("verify_ledger", "--ledger", str(filled), "--checkpoint", str(file))
    assert run(*arguments)[0] == 0
    file.write_text(json.dumps({"size": size(filled), "root": "00" * 32}))
    status, _, err = run(*arguments)
    assert status == 1
    assert err.startswith("checkpoint: ")


def test_what_can_not_be_read_is_said_in_a_sentence(filled, tmp_path):
    with pytest.raises(CommandError, match="can't be opened"):
        run("verify_ledger", "--ledger", str(tmp_path / "none.sqlite3"))
    with pytest.raises(CommandError, match="is no checkpoint"):
        run("verify_ledger", "--ledger", str(filled), "--checkpoint", str(tmp_path / "none"))


@pytest.mark.parametrize(
    "text",
    [
        '{"size": -1, "root": "%s"}' % ("00" * 32),
        '{"size": 1, "root": "00"}',
        '{"size": 8, "root": "%s"}' % ("zz" * 32),
        '{"size": 1, "root": "%s"}' % ("AB" * 32),
        '{"size": 1.5, "root": "%s"}' % ("00" * 32),
        "[]",
        "",
    ],
)
def test_what_is_no_checkpoint_is_refused_before_anything_is_proved(filled, tmp_path, text):
    file = tmp_path / "checkpoint.json"
    file.write_text(text)
    for command in ("verify_ledger", "export_proof"):
        arguments = ("req_1",) if command == "export_proof" else ()
        with pytest.raises(CommandError, match="is no checkpoint"):
            run(command, *arguments, "--ledger", str(filled), "--checkpoint", str(file))


COMMANDS = ("verify_ledger", "audit", "checkpoint_ledger", "export_proof")


@pytest.mark.parametrize("command", COMMANDS)
def test_a_file_that_is_no_database_is_said_in_a_sentence(command, tmp_path):
    file = tmp_path / "notes.txt"
    file.write_text("no database at all\n" * 500)
    arguments = ("req_1",) if command == "export_proof" else ()
    with pytest.raises(CommandError, match=r"notes\.txt can't be read: file is not a database"):
        run(command, *arguments, "--ledger", str(file))


def test_a_page_that_can_not_be_read_is_found_by_the_audit_and_by_the_rollups_check(
    filled, tmp_path, settings
):
    """Each check that needs the page says so; the others are run all the same."""
    settings.WEIGHBRIDGE_DB = filled
    damage(filled, "receipt")
    status, out, err = run("audit", "--ledger", str(filled))
    lines = {line.split()[1]: line.split()[0] for line in out.splitlines()}
    assert status == 1
    assert lines["ONE_FINAL_RECEIPT"] == "FAULT"
    assert lines["TRIGGERS_IN_PLACE"] == "holds"
    assert "ledger: it can't be read: database disk image is malformed; run verify_ledger" in err
    with pytest.raises(CommandError, match="database disk image is malformed"):
        run("rebuild_rollups", "--check")


def test_what_is_put_out_is_a_new_file_whole_or_none(filled, tmp_path):
    for name in ("-", "."):
        with pytest.raises(CommandError, match="takes the name of a new file"):
            run("checkpoint_ledger", "--ledger", str(filled), "--output", name)
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for path in (tmp_path, tmp_path / "link", filled):
        with pytest.raises(CommandError, match="can't write"):
            run("checkpoint_ledger", "--ledger", str(filled), "--output", str(path))
    assert not (tmp_path / "nowhere").exists()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000, limits[1]))
    try:
        with pytest.raises(CommandError, match=r"can't write .*part: File too large"):
            put_out("text" * 1_000, tmp_path / "part", OutputWrapper(io.StringIO()))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert not (tmp_path / "part").exists()


def test_a_ledger_of_an_older_version_is_not_taken_for_a_damaged_one(filled, settings, tmp_path):
    settings.WEIGHBRIDGE_DB = filled
    tamper(filled, "ALTER TABLE route_decision DROP COLUMN hold_kv_tokens", "DROP TABLE open_hold")
    for command in (
        ["archive", "--before", "2025-12", "--to", str(tmp_path / "old")],
        ["verify_ledger"], ["audit"], ["unknowns"], ["replay_decisions"],
    ):  # fmt: skip
        with pytest.raises(CommandError, match=r"no such .*migrate --database ledger"):
            run(*command)
    status, out, _ = run("ledger_health")
    (line,) = [line for line in out.splitlines() if "LEDGER_UNREADABLE" in line]
    assert (status, line.endswith("run migrate --database ledger")) == (1, True)
