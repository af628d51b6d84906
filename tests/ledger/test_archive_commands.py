"""`manage.py archive` and what other commands say of archives (LED-8)."""

import itertools
import json
import shutil
import sqlite3
from contextlib import closing
from typing import Any

import pytest
from django.core.management.base import CommandError

from ledger import offline_proof
from ledger.archive_check import archive_faults
from ledger.health import health
from ledger.invariants import audit
from ledger.older_schema import connect_as_of_today
from ledger.queries.archives import archives_of_period
from ledger.reading import connect_read_only
from ledger.reconcile.running import period_of, reconcile
from ledger.reconcile.values import Binding, Plan, Refused
from ledger.rollups import packing
from ledger.rollups.rebuild import first_difference
from ledger.rollups.tables import ARCHIVED, GRAINS_MIN, LIVE
from tests import factories
from tests.ledger import archived as made
from tests.ledger.commands import run
from tests.ledger.tampering import tamper

LATER = ("ttft_objective_us", "tpot_objective_us")  # columns that older receipts don't have


@pytest.fixture(scope="module")
def filled(ledger_template, tmp_path_factory):
    path = tmp_path_factory.mktemp("filled") / "ledger.sqlite3"
    shutil.copyfile(ledger_template, path)
    made.fill(path)
    return path


@pytest.fixture
def ledger(filled, tmp_path, settings):
    path = settings.WEIGHBRIDGE_DB = tmp_path / "ledger.sqlite3"
    shutil.copyfile(filled, path)
    return path


def test_the_command_archives_and_the_others_know_the_file(ledger, tmp_path):
    status, out, _ = run("archive", "--before", "2026-01", "--to", str(tmp_path / "old"))
    (file,) = (tmp_path / "old").glob("*.sqlite3")
    assert (status, out.startswith(f"{file}: 17 requests, 97 rows of 7 to ")) == (0, True), out
    status, out, err = run("verify_ledger", "--archive", str(file))
    assert (status, err) == (0, "")
    assert "97 row(s) are in archives" in out
    found = {signal.code: signal for signal in health(ledger, now_us=made.NOW_US).signals}
    assert found["ARCHIVES"].number == 1
    assert found["ARCHIVES"].value == f"1 with 97 rows: {file.name}"
    with pytest.raises(CommandError, match=f"REQUEST_ARCHIVED.*{file.name}"):
        run("export_proof", factories.request_id(1))
    tamper(file, "UPDATE receipt SET tenant_id = 'other' WHERE seq < 20")
    status, _, err = run("verify_ledger", "--archive", str(file))
    assert (status, err.startswith("altered: receipt seq ")) == (1, True)


def test_led_7_an_archived_receipt_is_proved_from_the_file_that_has_it(ledger, tmp_path):
    run("checkpoint_ledger", "--output", str(kept := tmp_path / "checkpoint.json"))
    file = tmp_path / "old" / made.archived(ledger, tmp_path / "old").archive.file
    asked = (factories.request_id(1), "--archive", str(file), "--checkpoint", str(kept))
    status, out, _ = run("export_proof", *asked)
    proof = json.loads(out)
    assert (status, proof["earlier"]["size"]) == (0, json.loads(kept.read_text())["size"])
    assert offline_proof.problems(proof, json.loads(kept.read_text())) == []
    assert json.loads(proof["row"])[3] == factories.request_id(1)
    young = factories.request_id(made.YOUNG[0])  # in the ledger: the archive isn't asked
    assert run("export_proof", young, "--archive", str(file))[0] == 0
    with pytest.raises(CommandError, match=f"OTHER_ARCHIVE.*{file.name}"):
        run("export_proof", factories.request_id(1), "--archive", str(ledger))
    with pytest.raises(CommandError, match="NO_SUCH_RECEIPT"):
        run("export_proof", "req_never", "--archive", str(file))
    tamper(file, "UPDATE receipt SET cost_total_pico = 1")
    with pytest.raises(CommandError, match="ARCHIVE_DIFFERS"):
        run("export_proof", *asked)


def test_led_8_what_stays_is_told_with_its_reasons_in_the_text_and_in_the_json(ledger, tmp_path):
    status, out, _ = run("archive", "--before", "2026-01", "--to", str(tmp_path / "old"))
    assert (status, out.splitlines()[1:]) == (0, [
        "Stay in the ledger: 1 are unknowns: settle them, or write them off (UNKNOWN).",
        "Stay in the ledger: 2 serve a task that another request serves, too (SHARED_TASK).",
    ])  # fmt: skip
    (manifest,) = (tmp_path / "old").glob("*.json")
    told = [(one["code"], one["requests"]) for one in json.loads(manifest.read_text())["stayed"]]
    assert told == [("UNKNOWN", 1), ("SHARED_TASK", 2)]
    with pytest.raises(
        CommandError, match=r"NOTHING_OLD_ENOUGH: none of 3 request.*\(UNKNOWN\); 2"
    ):
        run("archive", "--before", "2026-01", "--to", str(tmp_path / "again"))  # the same second
    status, out, _ = run("archive", "--before", "2026-04", "--to", str(tmp_path / "o"), "--json")
    told = json.loads(out)
    assert (status, told["archive"]["requests"]) == (0, 5)
    assert [one["code"] for one in told["stayed"]] == ["UNKNOWN", "SHARED_TASK"]


@pytest.mark.parametrize(
    ("before", "what"),
    [
        ("2024-01", "NOTHING_OLD_ENOUGH: no request was accepted before that time$"),
        ("2099-01", "TOO_RECENT"),
        ("January", "is a month"),
    ],
)
def test_the_command_says_why_nothing_was_archived(ledger, tmp_path, before, what):
    with pytest.raises(CommandError, match=what):
        run("archive", "--before", before, "--to", str(tmp_path / "old"))


def test_the_sums_of_archived_months_are_made_again_from_all_the_archives(ledger, tmp_path):
    told = made.archived(ledger, tmp_path / "old").archive
    file = tmp_path / "old" / told.file
    with closing(sqlite3.connect(ledger, isolation_level=None)) as connection:
        connection.execute(f"ALTER TABLE {ARCHIVED.name('total')} ADD COLUMN older INTEGER")
    with pytest.raises(CommandError, match="rebuild_rollups --archive FILE"):
        run("rebuild_rollups")
    with pytest.raises(CommandError, match=f"not given: {told.file}"):
        run("rebuild_rollups", "--archive", str(ledger))
    assert run("rebuild_rollups", "--archive", str(file))[0] == 0
    assert run("rebuild_rollups", "--check")[0] == 0
    tamper(file, "UPDATE receipt SET tenant_id = 'other'")
    with pytest.raises(CommandError, match="isn't the archive"):
        run("rebuild_rollups", "--archive", str(file))


def test_money_that_is_forged_in_every_sum_alike_is_found_by_the_archives(ledger, tmp_path):
    """What was archived and what stays are the rollups: no row that is kept says so, the files do.

    Somebody changes the cost of an archived day in the kept sums and in the rollups, every grain.
    """
    first = tmp_path / "old" / made.archived(ledger, tmp_path / "old").archive.file
    later = made.archived(
        ledger, tmp_path / "old", now_us=made.NOW_US + 100 * made.DAY_US,
        before_us=made.BEFORE_US + 60 * made.DAY_US,
    ).archive.file  # fmt: skip
    given = [arg for file in (tmp_path / "old" / later, first) for arg in ("--archive", str(file))]
    status, out, _ = run("rebuild_rollups", "--check", *given)
    assert (status, out.strip()) == (
        0, "The rollups equal the receipts, those of 2 archive(s) among them.",
    )  # fmt: skip
    with pytest.raises(CommandError, match=f"not given: {later}"):
        run("rebuild_rollups", "--check", "--archive", str(first))
    with closing(sqlite3.connect(ledger, isolation_level=None)) as connection:
        for tables, grain_min in itertools.product((ARCHIVED, LIVE), GRAINS_MIN):
            bucket_us = connection.execute(
                f"SELECT min(bucket_us) FROM {tables.name('packed')} WHERE grain_min = {grain_min}"
            ).fetchone()[0]
            found = connection.execute(tables.find_packed, (grain_min, bucket_us)).fetchone()
            rows = packing.unpack(found).copy()
            rows[0, -1] += 1  # a pico unit of the total
            connection.execute(tables.put_packed, (grain_min, bucket_us, packing.pack(rows)))
    assert run("rebuild_rollups", "--check")[0] == 0
    with closing(connect_read_only(ledger)) as connection:
        sums = [one for one in audit(connection) if "SUMS" in one.code or "ROLLUPS" in one.code]
    assert [one.holds for one in sums] == [True, True]
    with pytest.raises(CommandError, match=r"rollup_total: kept .*cost_total_pico"):
        run("rebuild_rollups", "--check", *given)
    assert run("rebuild_rollups", *given)[0] == 0
    assert run("rebuild_rollups", "--check", *given)[0] == 0
    tamper(first, "UPDATE receipt SET tenant_id = 'other'")
    with pytest.raises(CommandError, match="isn't the archive"):
        run("rebuild_rollups", "--check", *given)


def test_an_archive_of_an_older_version_is_read_as_todays(ledger, tmp_path):
    """LED-8: an upgrade that adds a column must not make what was archived before worthless."""
    told = made.archived(ledger, tmp_path / "old").archive
    file = tmp_path / "old" / told.file
    proof = run("export_proof", factories.request_id(1), "--archive", str(file))
    tamper(file, *(f"ALTER TABLE receipt DROP COLUMN {name}" for name in LATER))
    with closing(connect_read_only(ledger)) as connection:
        faults = [str(fault) for fault in archive_faults(connection, file)]
        assert len(faults) == 1 and "its rows are those that were archived" in faults[0]
        with closing(connect_as_of_today(file)) as archive:
            assert first_difference(connection, archives=[archive]) is None
    assert run("export_proof", factories.request_id(1), "--archive", str(file)) == proof


def test_an_archived_period_is_not_reconciled_or_exported_as_if_it_were_empty(ledger, tmp_path):
    told = made.archived(ledger, tmp_path / "old").archive
    plan = Plan(provider="simulator", bindings=(Binding(route_id="route-a", model="m"),))
    with closing(connect_read_only(ledger)) as connection:
        period: Any = period_of("2025-11")
        refused = reconcile(connection, plan, period)
        assert isinstance(refused, Refused)
        assert (refused.code, told.file in refused.message) == ("PERIOD_ARCHIVED", True)
        later = period_of("2026-02")
        assert archives_of_period(connection, later.start_us, later.end_us) == ()
    out = str(tmp_path / "focus.csv")
    with pytest.raises(CommandError, match=told.file):
        run("export_focus", "--from", "2025-11-01", "--to", "2025-11-30", "--out", out)
    assert run("export_focus", "--from", "2026-02-01", "--to", "2026-02-28", "--out", out)[0] == 0


def test_an_archive_that_is_given_twice_does_not_double_its_sums(ledger, tmp_path):
    """The kept sums are all that is left of archived months: no check could tell."""
    told = made.archived(ledger, tmp_path / "old").archive
    file = tmp_path / "old" / told.file
    (tmp_path / "copy").mkdir()
    copy = shutil.copyfile(file, tmp_path / "copy" / file.name)
    before = made.rows(ledger, f"SELECT * FROM {ARCHIVED.name('total')}")
    for other in (file, copy):
        given = ("--archive", str(file), "--archive", str(other))
        with pytest.raises(CommandError, match=f"{file.name} is given twice"):
            run("rebuild_rollups", *given)
        with pytest.raises(CommandError, match=f"{file.name} is given twice"):
            run("rebuild_rollups", "--check", *given)
    assert made.rows(ledger, f"SELECT * FROM {ARCHIVED.name('total')}") == before


def test_an_archive_that_can_not_be_read_is_not_told_as_compared(ledger, tmp_path):
    told = made.archived(ledger, tmp_path / "old").archive
    file = tmp_path / told.file  # not where it was put
    status, out, err = run("verify_ledger", "--archive", str(file))
    assert (status, f"{file}: 1 fault(s)" in out) == (1, True)
    assert "can't be read: " in err
    file.write_text("no database at all\n" * 500)
    with pytest.raises(CommandError, match="can't be read: file is not a database"):
        run("export_proof", factories.request_id(1), "--archive", str(file))
