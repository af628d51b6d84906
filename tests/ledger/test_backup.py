"""A backup while the ledger is written, and a restore: each proved before it counts (LED-8)."""

import threading

import pytest
from django.core.management import CommandError

from ledger import backup as backup_module
from ledger.backup import (
    Manifest,
    Refused,
    back_up,
    making,
    manifest_of,
    note_of,
    read_manifest,
    restore,
)
from ledger.chain import checkpoint_of
from ledger.errors import LedgerInUse
from ledger.store import Store
from tests import factories
from tests.factories import NOW_US
from tests.ledger.commands import run
from tests.ledger.tampering import damage, fill, tamper, verified


@pytest.fixture
def filled(ledger_path):
    with Store.open(ledger_path) as store:
        fill(store)
    return ledger_path


def everything(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_backup_is_one_file_with_a_manifest_that_says_what_it_is(filled, tmp_path):
    with Store.open(filled) as store:
        head = store.head
        made = back_up(filled, tmp_path / "copies", now_us=NOW_US)
    assert isinstance(made, Manifest)
    assert made.file == "ledger-20251124T160000Z.sqlite3"
    assert everything(tmp_path / "copies") == [made.file, f"{made.file}.json"]
    assert (made.rows, made.entry_hash) == (head.size, head.entry_hash.hex())
    assert made.checkpoint == checkpoint_of(head)
    assert read_manifest(tmp_path / "copies" / f"{made.file}.json") == made
    assert read_manifest(note_of(filled)) == made
    assert verified(tmp_path / "copies" / made.file, checkpoint=made.checkpoint).sound


def test_a_ledger_that_is_written_all_the_while_gives_a_whole_snapshot(filled, tmp_path):
    """Each commit has five rows: a copy has all of one or none, and the ledger goes on (LED-8)."""
    stop = threading.Event()
    with Store.open(filled) as store:
        before = store.head.size

        def write():
            number = 1_000
            while not stop.is_set():
                rows = [factories.trace_event(number, event=str(part)) for part in range(5)]
                store.append(rows).result()
                number += 1

        writer = threading.Thread(target=write)
        writer.start()
        try:
            copies = [
                back_up(filled, tmp_path / "copies", now_us=NOW_US + second * 1_000_000)
                for second in range(5)
            ]
        finally:
            stop.set()
            writer.join()
        after = store.head.size
    sizes = [copy.rows for copy in copies]
    assert all((size - before) % 5 == 0 for size in sizes)
    assert sizes == sorted(sizes)
    assert before <= sizes[0]
    assert sizes[-1] <= after
    assert verified(filled, checkpoint=copies[-1].checkpoint).sound


def test_a_restored_ledger_continues_its_chain(filled, tmp_path):
    made = back_up(filled, tmp_path / "copies", now_us=NOW_US)
    done = restore(tmp_path / "copies" / made.file, tmp_path / "restored")
    assert done == made
    path = tmp_path / "restored" / "ledger.sqlite3"
    with Store.open(path) as store:
        assert store.append([factories.trace_event(77)]).result()[0].seq == made.rows + 1
    assert verified(path, checkpoint=made.checkpoint, at_rest=True).sound


def refused(answer, code, folder=None):
    assert not isinstance(answer, Manifest)
    assert answer.code == code
    if folder is not None:
        assert not folder.exists() or [n for n in everything(folder) if ".lock" not in n] == []
    return True


def test_an_existing_ledger_is_never_overwritten(filled, tmp_path):
    made = back_up(filled, tmp_path / "copies", now_us=NOW_US)
    before = filled.read_bytes()
    file = tmp_path / "copies" / made.file
    assert refused(restore(file, filled.parent), "TARGET_EXISTS")
    assert filled.read_bytes() == before
    assert refused(back_up(filled, tmp_path / "copies", now_us=NOW_US), "TARGET_EXISTS")
    with Store.open(filled):
        assert refused(restore(file, filled.parent), "TARGET_EXISTS")


@pytest.mark.parametrize("where", [0.2, 0.5, 0.9])
def test_a_backup_that_was_altered_is_not_restored(filled, tmp_path, where):
    made = back_up(filled, tmp_path / "copies", now_us=NOW_US)
    file = tmp_path / "copies" / made.file
    content = bytearray(file.read_bytes())
    content[int(len(content) * where)] ^= 1
    file.write_bytes(content)
    assert refused(restore(file, tmp_path / "to"), "MANIFEST_DIFFERS", tmp_path / "to")


def test_a_forged_backup_with_a_manifest_to_match_is_not_restored(filled, tmp_path):
    """Whoever alters the copy can write its size and hash: the chain still doesn't verify."""
    made = back_up(filled, tmp_path / "copies", now_us=NOW_US)
    file = tmp_path / "copies" / made.file
    tamper(file, "UPDATE receipt SET tenant_id = 'other'")
    text = manifest_of(file).read_text()
    text = text.replace(made.sha256, backup_module.sha256_of(file))
    text = text.replace(f'"size_bytes": {made.size_bytes}', f'"size_bytes": {file.stat().st_size}')
    manifest_of(file).write_text(text)
    assert refused(restore(file, tmp_path / "to"), "CHAIN_BROKEN", tmp_path / "to")


def test_what_an_interrupted_backup_left_does_not_count(filled, tmp_path):
    made = back_up(filled, tmp_path / "copies", now_us=NOW_US)
    file = tmp_path / "copies" / made.file
    manifest_of(file).unlink()
    assert refused(restore(file, tmp_path / "to"), "NO_MANIFEST", tmp_path / "to")


def test_a_damaged_ledger_gives_no_backup_and_nothing_half_made(filled, tmp_path):
    tamper(filled, "UPDATE receipt SET tenant_id = 'other'")
    copies = tmp_path / "copies"
    assert refused(back_up(filled, copies, now_us=NOW_US), "CHAIN_BROKEN", copies)
    assert not note_of(filled).exists()
    none = tmp_path / "none.sqlite3"
    assert refused(back_up(none, copies, now_us=NOW_US), "LEDGER_UNREADABLE", copies)


def test_a_page_that_is_damaged_on_the_disk_gives_no_backup(filled, tmp_path):
    damage(filled, "receipt_time")
    copies = tmp_path / "copies"
    assert refused(back_up(filled, copies, now_us=NOW_US), "PAGES_DAMAGED", copies)


def test_a_disk_without_room_is_said_before_the_copy(filled, tmp_path, monkeypatch):
    monkeypatch.setattr(backup_module, "SPARE_BYTES", 1 << 62)
    copies = tmp_path / "copies"
    assert refused(back_up(filled, copies, now_us=NOW_US), "NOT_ENOUGH_SPACE", copies)


def test_the_commands_back_up_and_restore(filled, tmp_path):
    status, out, _ = run("backup", str(tmp_path / "copies"), "--ledger", str(filled))
    assert (status, "proved; root" in out) == (0, True)
    file = next((tmp_path / "copies").glob("*.sqlite3"))
    status, out, _ = run("restore", str(file), "--to", str(tmp_path / "to"))
    assert (status, "proved; root" in out) == (0, True)
    # In this order: a migration before it would make an empty ledger where the old one was.
    assert f"set WEIGHBRIDGE_DB to {tmp_path}/to/ledger.sqlite3, then manage.py migrate" in out
    with pytest.raises(CommandError, match="TARGET_EXISTS"):
        run("restore", str(file), "--to", str(tmp_path / "to"))


def test_a_folder_whose_parent_is_missing_is_no_place_for_a_backup(ledger_path, tmp_path):
    """A disk that isn't mounted must not fill another one and count as a backup."""
    refused = back_up(ledger_path, tmp_path / "not-mounted" / "backups", now_us=1)
    assert isinstance(refused, Refused)
    assert refused.code == "CANT_WRITE"
    assert not (tmp_path / "not-mounted").exists()


@pytest.mark.parametrize("left", ["ledger.sqlite3-wal", "ledger.sqlite3-journal"])
def test_a_log_that_an_earlier_ledger_left_is_not_taken_for_the_restored_one_s(
    filled, tmp_path, left
):
    """SQLite would play the journal back into the new file (LED-8)."""
    made = back_up(filled, tmp_path / "copies", now_us=NOW_US)
    place = tmp_path / "place"
    place.mkdir()
    (place / left).write_bytes(b"")
    assert refused(restore(tmp_path / "copies" / made.file, place), "TARGET_EXISTS")
    assert not (place / "ledger.sqlite3").exists()


@pytest.mark.parametrize(
    ("target", "code"),
    [("ledger-there.sqlite3", "TARGET_EXISTS"), ("unmounted/ledger.sqlite3", "CANT_WRITE")],
)
def test_a_link_to_a_file_that_is_not_there_is_not_replaced(filled, tmp_path, target, code):
    """Its disk may not be mounted."""
    made = back_up(filled, tmp_path / "copies", now_us=NOW_US)
    place = tmp_path / "place"
    place.mkdir()
    (place / "ledger.sqlite3").symlink_to(tmp_path / target)
    assert refused(restore(tmp_path / "copies" / made.file, place), code)
    assert (place / "ledger.sqlite3").is_symlink()


def test_a_copy_that_can_not_be_noted_beside_the_ledger_is_whole_and_says_so(filled, tmp_path):
    note_of(filled).mkdir()  # in the way
    done = back_up(filled, tmp_path / "copies", now_us=NOW_US)
    assert isinstance(done, Refused)
    assert (done.code, " is whole, but " in done.what) == ("CANT_WRITE", True)
    (file,) = (tmp_path / "copies").glob("*.sqlite3")
    assert isinstance(restore(file, tmp_path / "restored"), Manifest)


def test_an_empty_name_is_no_folder(filled, tmp_path):
    """A variable that isn't set in a script must not put the ledger where one happens to be."""
    made = back_up(filled, tmp_path / "copies", now_us=NOW_US)
    file = str(tmp_path / "copies" / made.file)
    for arguments in (
        ("backup", "", "--ledger", str(filled)),
        ("restore", file, "--to", ""),
        ("archive", "--before", "2025-01", "--to", " ", "--ledger", str(filled)),
    ):
        with pytest.raises(CommandError, match="names no folder"):
            run(*arguments)


def test_a_ledger_has_one_owner_by_whichever_name_it_is_reached(filled, tmp_path):
    """A link and the file are one ledger: two writers would break its chain."""
    link = tmp_path / "link.sqlite3"
    link.symlink_to(filled)
    with Store.open(filled), pytest.raises(LedgerInUse):
        Store.open(link)
    with Store.open(link), pytest.raises(LedgerInUse):
        Store.open(filled)


OLDER = (
    "ALTER TABLE invoice_line DROP COLUMN native_id",
    "DROP TABLE prediction_revision",
    "DROP TABLE chain_block",
    "DROP TABLE archived_row",
    "DROP TABLE archived_request",
    "DROP TABLE archived_posted",
)
"""What a file of an older version lacks, of kinds of which it has no rows."""


def test_a_backup_of_an_older_version_is_restored_and_then_migrated(ledger_path, tmp_path):
    """An upgrade must not make the backups from before it worthless (LED-8)."""
    with Store.open(ledger_path) as store:
        store.append([factories.model_identity(), factories.rate_table()]).result()
        for commit in factories.request_records(1):
            store.append(commit).result()
    tamper(ledger_path, *OLDER)
    made = back_up(ledger_path, tmp_path / "copies", now_us=NOW_US)
    assert isinstance(made, Manifest), made
    file = tmp_path / "copies" / made.file
    assert restore(file, tmp_path / "restored") == made
    assert (tmp_path / "restored" / "ledger.sqlite3").read_bytes() == file.read_bytes()
    tamper(ledger_path, "UPDATE receipt SET tenant_id = 'other'")
    later = NOW_US + 1_000_000
    assert refused(back_up(ledger_path, tmp_path / "copies", now_us=later), "CHAIN_BROKEN")


def test_a_column_that_a_row_s_hash_covers_is_not_taken_for_one_that_came_later(filled, tmp_path):
    tamper(filled, "ALTER TABLE route_decision DROP COLUMN code_revision")
    copies = tmp_path / "copies"
    assert refused(back_up(filled, copies, now_us=NOW_US), "CHAIN_BROKEN", copies)


def test_of_two_backups_that_begin_in_the_same_second_one_is_made(filled, tmp_path):
    """Neither takes the other's file from under it."""
    target = tmp_path / "copies" / "ledger-20251124T160000Z.sqlite3"
    with making(target) as partial:
        before = partial.stat()
        done = back_up(filled, tmp_path / "copies", now_us=NOW_US)
        assert refused(done, "TARGET_EXISTS")
        assert isinstance(done, Refused)
        assert done.what == f"another run is making {target}"
        assert partial.stat() == before
        partial.write_bytes(b"whole")
    assert everything(target.parent) == [target.name]
    assert refused(back_up(filled, tmp_path / "copies", now_us=NOW_US), "TARGET_EXISTS")
    assert everything(target.parent) == [target.name]
    assert target.read_bytes() == b"whole"


def test_what_a_killed_run_left_under_the_name_is_taken_over(filled, tmp_path):
    (tmp_path / "copies").mkdir()
    left = tmp_path / "copies" / "ledger-20251124T160000Z.sqlite3.partial"
    left.write_bytes(b"half a page" * 10_000)
    made = back_up(filled, tmp_path / "copies", now_us=NOW_US)
    assert isinstance(made, Manifest), made
    assert not left.exists()
    assert isinstance(restore(tmp_path / "copies" / made.file, tmp_path / "restored"), Manifest)
