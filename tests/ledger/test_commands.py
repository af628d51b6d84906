"""`verify_ledger` and `checkpoint_ledger` as an operator runs them."""

import json

import pytest
from django.core.management import CommandError

from ledger.store import Store
from tests import factories
from tests.ledger.commands import run
from tests.ledger.tampering import TABLES, fill, seqs, tamper


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
    file.write_text(json.dumps({"size": size(filled), "root": "00"}))
    status, _, err = run(*arguments)
    assert status == 1
    assert err.startswith("checkpoint: ")


def test_what_can_not_be_read_is_said_in_a_sentence(filled, tmp_path):
    with pytest.raises(CommandError, match="can't be opened"):
        run("verify_ledger", "--ledger", str(tmp_path / "none.sqlite3"))
    with pytest.raises(CommandError, match="is no checkpoint"):
        run("verify_ledger", "--ledger", str(filled), "--checkpoint", str(tmp_path / "none"))
