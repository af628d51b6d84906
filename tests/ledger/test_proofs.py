"""Proofs of receipts and of continuation, checked with nothing but SHA-256 (LED-7)."""

import json
import sqlite3
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import msgspec
import pytest
from django.core.management import CommandError
from hypothesis import given
from hypothesis import strategies as st

from ledger import offline_proof
from ledger.block_roots import Subtrees, fill
from ledger.chain import BLOCK_ROWS, Builder, Checkpoint, checkpoint_of
from ledger.proof_files import NoProof, prove_receipt
from ledger.proofs import consistency_path, inclusion_path, root_of
from ledger.reading import connect_read_only, read_head
from ledger.records import Record
from ledger.store import Store
from tests import factories
from tests.ledger.commands import run
from tests.ledger.tampering import tamper
from tests.ledger_fixtures import ROOT, without_log

LEAVES = [sha256(bytes([n // 256, n % 256])).digest() for n in range(600)]


def roots_up_to(size):
    builder = Builder()
    found = [builder.root]
    for leaf in LEAVES[:size]:
        builder.add_leaf(leaf)
        found.append(builder.root)
    return found


ROOTS = roots_up_to(len(LEAVES))
sizes = st.integers(1, len(LEAVES))


def subtree(start, end):
    return root_of(LEAVES[start:end])


@given(size=sizes, data=st.data())
def test_an_inclusion_path_leads_to_the_root_and_from_no_other_leaf_or_place(size, data):
    index = data.draw(st.integers(0, size - 1))
    path = inclusion_path(index, size, subtree)
    assert len(path) <= size.bit_length()
    check = offline_proof.root_from_inclusion
    assert check(LEAVES[index], index, size, path) == ROOTS[size]
    assert check(b"\0" * 32, index, size, path) != ROOTS[size]
    other = data.draw(st.integers(0, size - 1))
    if other != index:
        assert check(LEAVES[index], other, size, path) != ROOTS[size]
    assert check(LEAVES[index], index, size, [*path, b"\0" * 32]) is None


@given(first=sizes, second=sizes, data=st.data())
def test_a_consistency_path_shows_one_root_inside_the_other_and_no_third(first, second, data):
    first, second = sorted((first, second))
    path = consistency_path(first, second, subtree)
    one = {"size": first, "root": ROOTS[first].hex()}
    two = {"size": second, "root": ROOTS[second].hex()}
    assert offline_proof.continues(one, two, path)
    wrong = one | {"root": ROOTS[data.draw(sizes)].hex()}
    assert offline_proof.continues(wrong, two, path) == (wrong == one)
    assert not offline_proof.continues(one, two | {"root": "00" * 32}, path)


def test_the_empty_ledger_is_continued_by_any():
    assert consistency_path(0, 5, subtree) == []
    nothing = {"size": 0, "root": root_of([]).hex()}
    assert offline_proof.continues(nothing, {"size": 5, "root": "x"}, [])
    for root in ("", "x", "00" * 32):
        assert not offline_proof.continues(nothing | {"root": root}, {"size": 5, "root": "x"}, [])


ROWS = 2 * BLOCK_ROWS + 700


@pytest.fixture(scope="module")
def long_ledger(ledger_template, tmp_path_factory):
    """A ledger of two whole blocks and more, with a receipt in each of them."""
    path = tmp_path_factory.mktemp("long") / "ledger.sqlite3"
    path.write_bytes(ledger_template.read_bytes())
    with Store.open(path) as store:
        for at in range(0, ROWS - 3, 500):
            numbers = range(at, min(at + 500, ROWS - 3))
            rows: list[Record] = [factories.trace_event(number) for number in numbers]
            if at in (1_000, 5_000, 8_500):
                rows[7] = factories.receipt(at)
            store.append(rows).result()
        store.append([factories.receipt(1, status="unknown")]).result()
        store.append([factories.receipt(2), factories.receipt(3)]).result()
    without_log(path)
    return path


def head_of(opened):
    head = read_head(opened)
    assert head is not None
    return head


@pytest.fixture
def connection(long_ledger):
    opened = connect_read_only(long_ledger)
    yield opened
    opened.close()


def test_roots_of_blocks_are_kept_as_they_end_and_are_those_of_their_rows(connection):
    kept = connection.execute("SELECT number, root FROM chain_block").fetchall()
    assert [row[0] for row in kept] == [1, 2]
    subtrees = Subtrees(connection, head_of(connection))
    for number, root in kept:
        leaves = subtrees.leaves((number - 1) * BLOCK_ROWS, number * BLOCK_ROWS)
        assert root_of(leaves) == root


def test_missing_roots_are_computed_and_can_be_filled_in(long_ledger, tmp_path):
    path = tmp_path / "ledger.sqlite3"
    path.write_bytes(long_ledger.read_bytes())
    tamper(path, "DELETE FROM chain_block WHERE number = 1")
    opened = sqlite3.connect(path, isolation_level=None)
    assert not isinstance(prove_receipt(opened, factories.request_id(1_000)), NoProof)
    assert fill(opened, head_of(opened)) == 1
    assert fill(opened, head_of(opened)) == 0
    assert opened.execute("SELECT count(*) FROM chain_block").fetchone()[0] == 2
    opened.close()


def test_a_missing_row_is_told_with_the_ledger_s_own_name(long_ledger, tmp_path):
    path = tmp_path / "ledger.sqlite3"
    path.write_bytes(long_ledger.read_bytes())
    tamper(path, "DELETE FROM trace_event WHERE seq = 3", "DELETE FROM chain_block")
    opened = connect_read_only(path)
    proof = prove_receipt(opened, factories.request_id(1_000))
    assert isinstance(proof, NoProof)
    assert proof.code == "LEDGER_DAMAGED"
    assert proof.what.startswith(f"The ledger {path} is damaged: row 3: ")
    opened.close()


@pytest.mark.parametrize("number", [1_000, 5_000, 8_500, 1, 3])
@pytest.mark.parametrize("size", [0, 1, 4_095, 4_096, 5_000, 8_192, ROWS - 1, ROWS])
def test_a_proof_of_any_receipt_since_any_checkpoint_holds_offline(connection, number, size):
    subtrees = Subtrees(connection, head_of(connection))
    earlier = Checkpoint(size=size, root=subtrees.root(0, size).hex())
    proof = prove_receipt(connection, factories.request_id(number), earlier)
    assert not isinstance(proof, NoProof)
    plain = json.loads(msgspec.json.encode(proof))
    assert offline_proof.problems(plain, {"size": size, "root": earlier.root}) == []
    assert offline_proof.problems(plain, {"size": size, "root": "00"}) != []
    assert offline_proof.problems(plain | {"seq": plain["seq"] + 1}) != []
    altered = plain["row"].replace("acme", "acne")
    assert offline_proof.problems(plain | {"row": altered}) != []
    assert len(proof.path) <= 14


def test_what_can_not_be_proved_has_a_code(connection, long_ledger, tmp_path):
    def code(*arguments):
        return prove_receipt(connection, *arguments).code

    here = factories.request_id(1)
    assert code("req_none") == "NO_SUCH_RECEIPT"
    assert code(here, Checkpoint(size=ROWS + 1, root="00" * 32)) == "CHECKPOINT_AHEAD"
    assert code(here, Checkpoint(size=9, root="00" * 32)) == "CHECKPOINT_DIFFERS"
    path = tmp_path / "ledger.sqlite3"
    path.write_bytes(long_ledger.read_bytes())
    tamper(path, "UPDATE receipt SET tenant_id = 'other'")
    opened = connect_read_only(path)
    assert prove_receipt(opened, here).code == "LEDGER_DAMAGED"
    opened.close()


def test_a_proof_is_checked_by_a_file_that_stands_alone(long_ledger, tmp_path):
    """As a tenant would: the checker copied elsewhere, a checkpoint from before, no Weighbridge."""
    with Store.open(long_ledger) as store:
        checkpoint = checkpoint_of(store.head)
    kept, proof = tmp_path / "checkpoint.json", tmp_path / "proof.json"
    kept.write_bytes(msgspec.json.encode(checkpoint))
    arguments = ("export_proof", factories.request_id(2), "--ledger", str(long_ledger))
    assert run(*arguments, "--checkpoint", str(kept), "--output", str(proof))[0] == 0
    with pytest.raises(CommandError, match="can't write"):
        run(*arguments, "--output", str(proof))
    checker = tmp_path / "offline_proof.py"
    checker.write_text((Path(ROOT) / "ledger" / "offline_proof.py").read_text())
    command = [sys.executable, "-I", str(checker), str(proof), "--checkpoint", str(kept)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"{factories.request_id(2)} is row {ROWS - 1} of {ROWS}, root ")
    proof.write_text(proof.read_text().replace("acme", "acne"))
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 1
    assert "don't lead to the root" in done.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["{proof}", "{kept}"],
        ["{proof}", "--checkpoint"],
        ["{proof}", "--checkpoint={kept}", "more"],
        ["--checkpoint", "{kept}"],
    ],
)
def test_led_7_a_checker_that_was_called_wrongly_says_nothing_holds(arguments, tmp_path, capsys):
    """A checkpoint that isn't taken for one would be a proof that was compared with nothing."""
    names = {"proof": tmp_path / "proof.json", "kept": tmp_path / "kept.json"}
    with pytest.raises(SystemExit) as leaving:
        offline_proof.main([one.format(**names) for one in arguments])
    told = capsys.readouterr()
    assert (leaving.value.code, told.out) == (2, "")
    assert "usage: " in told.err


def test_led_7_a_checkpoint_is_compared_however_it_is_named(connection, tmp_path, capsys):
    proof, kept = tmp_path / "proof.json", tmp_path / "kept.json"
    proof.write_bytes(msgspec.json.encode(prove_receipt(connection, factories.request_id(1))))
    kept.write_text(json.dumps({"size": 5, "root": "00" * 32}))
    for named in (["--checkpoint", str(kept)], [f"--checkpoint={kept}"]):
        for arguments in ([str(proof), *named], [*named, str(proof)]):
            assert offline_proof.main(arguments) == 1
            assert "says nothing of the checkpoint" in capsys.readouterr().out
    assert offline_proof.main([str(proof)]) == 0


@pytest.mark.parametrize(
    "text", ["", "# Weighbridge", "[]", "5", "{}", '{"row": 1}', '{"row": "[]"}', "[" * 100_000]
)
def test_led_7_what_is_no_proof_is_said_in_a_sentence(connection, text, tmp_path, capsys):
    proof, other = tmp_path / "proof.json", tmp_path / "other.json"
    proof.write_bytes(msgspec.json.encode(prove_receipt(connection, factories.request_id(1))))
    other.write_text(text)
    for arguments in ([str(other)], [str(proof), "--checkpoint", str(other)]):
        assert offline_proof.main(arguments) == 1
        assert capsys.readouterr().out.startswith("WRONG: this is no proof, or no checkpoint")
    assert offline_proof.main([str(tmp_path)]) == 1
    assert capsys.readouterr().out == f"WRONG: {tmp_path} can't be read: Is a directory\n"
