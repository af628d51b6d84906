"""Old months in a file of their own, the chain and every sum left whole (LED-8)."""

import os
import shutil
import signal
import sqlite3
from contextlib import closing

import msgspec
import pytest

from ledger import records as r
from ledger.archive_check import archive_faults
from ledger.archive_tables import MOVED
from ledger.archiving import archive, latest_cut_us
from ledger.backup import Refused, sha256_of
from ledger.block_roots import Subtrees
from ledger.errors import LedgerNotReady
from ledger.invariants import audit
from ledger.offline_proof import problems
from ledger.proof_files import NoProof, Proof, prove_receipt
from ledger.queries.archives import ACTION, archived_request, archives
from ledger.reading import connect_read_only, read_head
from ledger.records import RECORDS
from ledger.rollups.projection import Rollups
from ledger.rollups.rebuild import first_difference, rebuild
from ledger.store import Store
from tests import factories
from tests.ledger import archived as made
from tests.ledger.tampering import row_faults, tamper, verified

MOVED_REQUESTS = len(made.OLD) - 1 - len(made.SHARED)
CONTENTS = "SELECT * FROM rollup_packed ORDER BY 1, 2"


@pytest.fixture(scope="module")
def filled(ledger_template, tmp_path_factory):
    path = tmp_path_factory.mktemp("filled") / "ledger.sqlite3"
    shutil.copyfile(ledger_template, path)
    made.fill(path)
    return path


@pytest.fixture
def ledger(filled, tmp_path):
    path = tmp_path / "ledger.sqlite3"
    shutil.copyfile(filled, path)
    return path


def counts(path):
    return {kind.TABLE: made.rows(path, f"SELECT count(*) FROM {kind.TABLE}")[0][0]
            for kind in RECORDS}  # fmt: skip


def test_whole_closed_requests_move_and_everything_else_stays(ledger, tmp_path):
    before, report = counts(ledger), verified(ledger)
    manifest = made.archived(ledger, tmp_path / "old", reason="retention")
    told, after = manifest.archive, counts(ledger)
    file = tmp_path / "old" / told.file
    held = counts(file)
    assert told.file == "archive-before-2026-01-made-20260310T000000Z.sqlite3"
    assert (told.requests, told.rows) == (MOVED_REQUESTS, sum(held.values()))
    assert manifest.checkpoint.root == report.root
    for kind in RECORDS:
        added = 1 if kind is r.ControlAction else 0
        assert after[kind.TABLE] + held[kind.TABLE] == before[kind.TABLE] + added
        assert kind in MOVED or held[kind.TABLE] == 0
    assert held["receipt"] == held["route_decision"] == MOVED_REQUESTS
    settling = made.rows(file, "SELECT count(*) FROM receipt WHERE closes = 1")[0][0]
    assert held["settlement"] + settling == MOVED_REQUESTS
    assert settling > 0
    assert (held["outcome_report"], held["attempt_decision"]) == (2, 1)
    left = {row[0] for row in made.rows(ledger, "SELECT request_id FROM receipt")}
    stay = (made.OPEN, *made.SHARED, *made.YOUNG)
    assert left == {factories.request_id(number) for number in stay}
    assert after["idempotency_key"] == before["idempotency_key"]
    assert sorted(one.name for one in (tmp_path / "old").iterdir()) == [
        told.file, f"{told.file}.json",
    ]  # fmt: skip


def test_the_chain_continues_and_every_check_holds(ledger, tmp_path):
    report = verified(ledger)
    manifest = made.archived(ledger, tmp_path / "old", reason="retention")
    after = verified(ledger, checkpoint=manifest.checkpoint)
    assert (after.faults, after.rows) == ((), report.rows + 1)
    assert after.archived == manifest.archive.rows
    with closing(connect_read_only(ledger)) as connection:
        assert [one.code for one in audit(connection) if not one.holds] == []
        assert archives(connection) == [msgspec.structs.replace(manifest.archive, seq=after.rows)]
        action = made.rows(ledger, f"SELECT subject, actor, reason FROM control_action "
                           f"WHERE action = '{ACTION}'")  # fmt: skip
        assert action == [(manifest.archive.file, "ops", "retention")]
    file = tmp_path / "old" / manifest.archive.file
    assert manifest.archive.sha256 == sha256_of(file)
    with Store.open(ledger, projections=(Rollups(),)) as store:
        assert store.append([factories.trace_event(31)]).result()[0].seq == after.rows + 1
    assert verified(ledger).sound


def test_sums_are_the_same_before_and_after_and_when_made_again(ledger, tmp_path):
    before = made.rows(ledger, CONTENTS), made.rows(ledger, "SELECT * FROM tenant_posted")
    made.archived(ledger, tmp_path / "old")
    assert (made.rows(ledger, CONTENTS), made.rows(ledger, "SELECT * FROM tenant_posted")) == before
    with closing(sqlite3.connect(ledger, isolation_level=None)) as connection:
        rebuild(connection)
        assert first_difference(connection) is None
    assert (made.rows(ledger, CONTENTS), made.rows(ledger, "SELECT * FROM tenant_posted")) == before


def test_a_proof_of_what_stays_is_as_before_and_of_what_moved_names_the_archive(ledger, tmp_path):
    with closing(connect_read_only(ledger)) as connection:
        head = read_head(connection)
        assert head is not None
        roots = [Subtrees(connection, head).leaves(0, head.size)]
    manifest = made.archived(ledger, tmp_path / "old")
    with closing(connect_read_only(ledger)) as connection:
        assert Subtrees(connection, head).leaves(0, head.size) == roots[0]
        kept = prove_receipt(connection, factories.request_id(31), manifest.checkpoint)
        assert isinstance(kept, Proof)
        assert problems(msgspec.to_builtins(kept)) == []
        gone = prove_receipt(connection, factories.request_id(1))
        assert isinstance(gone, NoProof)
        assert (gone.code, manifest.archive.file in gone.what) == ("REQUEST_ARCHIVED", True)
        place = archived_request(connection, factories.request_id(1))
        assert (place.tenant_id, place.file) == ("acme", manifest.archive.file)
        assert archived_request(connection, factories.request_id(99)) is None


@pytest.mark.parametrize(
    ("statement", "kind"),
    [
        ("UPDATE archived_row SET leaf = zeroblob(32) WHERE seq = {seq}", "altered"),
        ("UPDATE archived_row SET leaf = 'text' WHERE seq = {seq}", "altered"),
        ("UPDATE archived_row SET entry_hash = zeroblob(32) WHERE seq = {seq}", "altered"),
        ("DELETE FROM archived_row WHERE seq = {seq}", "missing"),
    ],
)
def test_a_kept_hash_that_was_altered_or_removed_is_named(ledger, tmp_path, statement, kind):
    """LED-7: what stands for an archived row is as protected as a row."""
    seq = made.archived(ledger, tmp_path / "old").archive.first_seq
    tamper(ledger, statement.format(seq=seq))
    found = row_faults(verified(ledger))
    table = "" if kind == "missing" else "archived_row"
    assert found[0] == (kind, table, seq)
    assert [fault for fault in found if fault[0] == "altered"][1:] == []


def test_the_kept_hashes_are_append_only(ledger, tmp_path):
    made.archived(ledger, tmp_path / "old")
    with closing(sqlite3.connect(ledger)) as connection:
        for statement in ("DELETE FROM archived_row", "UPDATE archived_row SET v = 2"):
            with pytest.raises(sqlite3.IntegrityError, match="append-only"):
                connection.execute(statement)


def faults_in(ledger, file):
    with closing(connect_read_only(ledger)) as connection:
        return [(f.kind, f.table, f.seq) for f in archive_faults(connection, file)]


def test_an_archive_that_was_altered_is_named_row_by_row(ledger, tmp_path):
    told = made.archived(ledger, tmp_path / "old").archive
    file = tmp_path / "old" / told.file
    assert faults_in(ledger, file) == []
    receipt, trace = (
        made.rows(file, f"SELECT min(seq) FROM {table}")[0][0]
        for table in ("receipt", "trace_event")
    )
    tamper(file)
    assert faults_in(ledger, file) == [("archive", "", None)]  # its triggers are gone
    tamper(
        file,
        f"UPDATE receipt SET tenant_id = 'other' WHERE seq = {receipt}",
        f"DELETE FROM trace_event WHERE seq = {trace}",
        "INSERT INTO trace_event SELECT 9999, v, entry_hash, event, request_id, observed_at_us, "
        "policy_revision, route_id, reasons, budget_json, snapshot_revision, trace_id "
        "FROM trace_event LIMIT 1",
    )
    assert faults_in(ledger, file) == [
        ("missing", "", trace), ("altered", "receipt", receipt), ("archive", "", None),
    ]  # fmt: skip
    file.write_bytes(b"nothing")
    assert faults_in(ledger, file) == [("archive", "", None)]
    assert faults_in(ledger, tmp_path / "other.sqlite3") == [("archive", "", None)]


def test_a_second_archive_takes_what_has_been_closed_and_aged_since(ledger, tmp_path):
    first = made.archived(ledger, tmp_path / "old")
    later = made.NOW_US + 100 * made.DAY_US
    second = made.archived(
        ledger, tmp_path / "old", now_us=later, before_us=made.BEFORE_US + 60 * made.DAY_US
    )
    assert second.archive.requests == len(made.YOUNG)
    report = verified(ledger, checkpoint=first.checkpoint)
    assert (report.faults, report.archived) == ((), first.archive.rows + second.archive.rows)
    for manifest in (first, second):
        assert faults_in(ledger, tmp_path / "old" / manifest.archive.file) == []
    with closing(connect_read_only(ledger)) as connection:
        assert first_difference(connection) is None
        assert [one.file for one in archives(connection)] == [
            first.archive.file, second.archive.file,
        ]  # fmt: skip


def refused(ledger, folder, code, **changes):
    before = made.rows(ledger, "SELECT * FROM chain_head")
    answer = archive(ledger, folder, made.ask(**changes))
    assert isinstance(answer, Refused)
    assert answer.code == code
    assert made.rows(ledger, "SELECT * FROM chain_head") == before
    assert not folder.exists() or list(folder.iterdir()) == []
    assert not ledger.with_name(ledger.name + ".archiving").exists()


def test_it_is_refused_while_a_server_or_a_reader_has_the_ledger(ledger, tmp_path):
    with Store.open(ledger):
        refused(ledger, tmp_path / "old", "LEDGER_IN_USE")
    with closing(connect_read_only(ledger)) as reader:
        reader.execute("SELECT 1 FROM receipt").fetchall()
        refused(ledger, tmp_path / "old", "LEDGER_BEING_READ")


def test_it_is_refused_where_nothing_is_old_enough_or_the_month_is_too_recent(ledger, tmp_path):
    refused(ledger, tmp_path / "old", "NOTHING_OLD_ENOUGH", before_us=factories.NOW_US)
    refused(ledger, tmp_path / "old", "TOO_RECENT", before_us=latest_cut_us(made.NOW_US) + 1)
    assert made.rows(ledger, "PRAGMA journal_mode") == [("wal",)]


def stay(number, reason):
    """What keeps a request of November from being closed, done to the ledger by its own store."""
    request = factories.request_id(number)
    if reason == "UNDER_WAY":
        return [made.moved_on(one, 0) for one in factories.request_records(number)[0]]
    begun = [
        factories.reservation(number, reservation_id="res_again"),
        factories.attempt(number, attempt_id=f"{request}.9"),
    ]
    if reason == "MONEY_HELD":
        return begun
    settled = {"reservation_id": "res_again", "kind": "voided", "cost_pico": 0}
    return [*begun, factories.settlement(number, **settled)]


@pytest.mark.parametrize("reason", ["UNDER_WAY", "MONEY_HELD", "ATTEMPT_OPEN"])
def test_what_is_not_closed_stays_and_is_told_under_its_reason(ledger, tmp_path, reason):
    number = 25 if reason == "UNDER_WAY" else 1
    with Store.open(ledger, projections=(Rollups(),)) as store:
        store.append(stay(number, reason)).result()
    told = made.archived(ledger, tmp_path / "old")
    counts = {one.code: one.requests for one in told.stayed}
    assert counts == {"UNKNOWN": 1, reason: 1, "SHARED_TASK": 2}
    assert told.archive.requests == MOVED_REQUESTS - (number in made.OLD)


def test_what_ended_after_the_cut_stays_and_is_told_so(ledger, tmp_path):
    accepted_us = made.rows(ledger, "SELECT max(accepted_at_us) FROM receipt")[0][0]
    told = made.archived(
        ledger, tmp_path / "old", before_us=accepted_us + 1, now_us=made.NOW_US + 100 * made.DAY_US
    )
    assert {one.code: one.requests for one in told.stayed} == {
        "UNKNOWN": 1, "ENDED_LATER": len(made.YOUNG), "SHARED_TASK": 2,
    }  # fmt: skip


def test_a_damaged_ledger_is_not_archived(ledger, tmp_path):
    tamper(ledger, "UPDATE receipt SET tenant_id = 'other' WHERE revision = 0")
    refused(ledger, tmp_path / "old", "CHAIN_BROKEN")


def test_sums_that_differ_from_the_receipts_stop_it(ledger, tmp_path):
    with closing(sqlite3.connect(ledger)) as connection:
        connection.execute("UPDATE tenant_posted SET low = low + 1")
        connection.commit()
    refused(ledger, tmp_path / "old", "AUDIT_FAILED")


def test_a_ledger_behind_a_link_is_archived_where_it_is_and_the_link_stays(ledger, tmp_path):
    link = tmp_path / "elsewhere" / "ledger.sqlite3"
    link.parent.mkdir()
    link.symlink_to(ledger)
    with Store.open(ledger):
        answer = archive(link, tmp_path / "old", made.ask())
        assert isinstance(answer, Refused)
        assert answer.code == "LEDGER_IN_USE"
    made.archived(link, tmp_path / "old")
    assert link.is_symlink()
    assert [one.name for one in link.parent.iterdir()] == ["ledger.sqlite3"]
    assert verified(ledger).archived > 0


def test_a_change_of_the_header_that_was_cut_short_is_undone_by_the_next_run(ledger, tmp_path):
    """What a process leaves that is killed within a rollback journal's transaction."""
    pid = os.fork()
    if pid == 0:
        connection = sqlite3.connect(ledger, isolation_level=None)
        connection.execute("PRAGMA journal_mode=DELETE").fetchall()
        connection.execute("PRAGMA cache_size=1")
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("CREATE TABLE half_done (content BLOB)")
        connection.execute("INSERT INTO half_done VALUES (zeroblob(100000))")
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(pid, 0)
    assert ledger.with_name(ledger.name + "-journal").stat().st_size
    with pytest.raises(LedgerNotReady, match="a program was killed while it changed the file"):
        connect_read_only(ledger)
    made.archived(ledger, tmp_path / "old")
    assert verified(ledger).sound
    assert made.rows(ledger, "SELECT 1 FROM sqlite_master WHERE name = 'half_done'") == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write what is read-only")
def test_what_may_not_be_written_is_not_told_as_read_by_another(ledger, tmp_path):
    ledger.chmod(0o400)
    answer = archive(ledger, tmp_path / "old", made.ask())
    assert isinstance(answer, Refused)
    assert answer.code == "CANT_WRITE"


STEPS = [
    "verify the ledger", "copy the ledger", "fill the archive", "leave hashes in place of rows",
    "make the new ledger small", "record the archive", "verify the new ledger",
    "write the manifest", "put the new ledger in place", "done",
]  # fmt: skip


def test_killed_at_any_step_it_leaves_a_whole_ledger_and_can_be_run_again(ledger, tmp_path):
    """The old ledger until the very end, then the new one; never anything between (LED-8)."""
    head = made.rows(ledger, "SELECT size FROM chain_head")
    for number, step in enumerate(STEPS):
        place = tmp_path / str(number)
        place.mkdir()
        path = place / "ledger.sqlite3"
        shutil.copyfile(ledger, path)
        pid = os.fork()
        if pid == 0:  # the process that is killed
            archive(path, place / "old", made.ask(), lambda name, at=step: killed_at(name, at))
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL, step
        report = verified(path)
        assert report.sound, step
        done = step == "done"
        assert (made.rows(path, "SELECT size FROM chain_head") != head) == done
        assert (report.archived > 0) == done
        if not done:
            again = made.archived(path, place / "old", now_us=made.NOW_US + 1_000_000)
            assert again.archive.requests == MOVED_REQUESTS
            assert verified(path).sound
            assert not path.with_name(path.name + ".archiving").exists()


def killed_at(name, step):
    if name == step:
        os.kill(os.getpid(), signal.SIGKILL)
