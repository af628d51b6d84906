"""Health: what is wrong comes first, the audit on demand and within its time, the checkpoint."""

import sqlite3
from pathlib import Path

import msgspec
import pytest
from django.test import Client

from gateway.pages import health_view
from gateway.pages.health_view import THRESHOLDS, run_audit, wrong
from ledger.chain import Checkpoint, checkpoint_of
from ledger.health import Health, Signal, health
from ledger.invariants import CHECKS
from ledger.reading import connect_read_only, read_head
from tests.gateway.pages.test_receipts import HX, text_of

QUICK = [check.code for check in CHECKS if not check.slow]


def test_what_is_wrong_comes_first_and_says_what_to_do():
    signals = tuple(
        Signal(code=state, title=state, value="v", state=state) for state in ("ok", "watch", "bad")
    )
    assert [each.code for each in wrong(Health(state="bad", signals=signals))] == ["bad", "watch"]


def test_every_signal_that_can_be_wrong_has_its_threshold(own_ledger: Path):
    """The writer's own and the faults say themselves when they are bad."""
    found = {signal.code for signal in health(own_ledger, now_us=0).signals}
    assert found - THRESHOLDS.keys() == {"SYNCHRONOUS", "FILE_SIZE", "ARCHIVES"}


def test_the_page_lists_every_signal_by_code(own_ledger: Path, viewer: Client):
    said = text_of(viewer.get("/health"))
    for signal in health(own_ledger, now_us=0).signals:
        assert signal.code in said
    assert "What to do: run backup, to another disk." in said
    assert "no server runs in this process" in said
    assert "Run the quick checks" in said
    assert b"<html" not in viewer.get("/health", headers=HX).content


def test_the_audit_runs_on_demand_and_says_what_it_left_out(own_ledger: Path, viewer: Client):
    said = text_of(viewer.get("/health?audit=quick"))
    for check in CHECKS:
        assert check.code in said
    assert said.count("holds") >= len(QUICK)
    assert "Reads every receipt: the command runs it" in said
    assert "Run again" in said


def test_a_broken_rule_names_its_rows(own_ledger: Path, viewer: Client):
    connection = sqlite3.connect(own_ledger)
    connection.execute("DROP TRIGGER IF EXISTS append_only_receipt_update")
    (name,) = connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchone()
    connection.execute(f"DROP TRIGGER {name}")
    connection.commit()
    connection.close()
    said = text_of(viewer.get("/health?audit=quick"))
    assert "fault" in said
    assert "TRIGGERS_IN_PLACE" in said
    assert "run verify_ledger, then migrate --database ledger" in said


def test_an_audit_that_has_no_time_left_reports_no_check_as_holding(
    own_ledger: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(health_view, "STEPS_A_LOOK", 1)
    found = run_audit(own_ledger, seconds=-1.0)
    assert found is not None
    assert [each.result for each in found] == [None] * len(CHECKS)
    assert {each.chip for each in found} == {"no_data"}
    assert sum("no time was left" in each.why_not for each in found) == len(QUICK)


def test_one_audit_runs_at_a_time(own_ledger: Path, viewer: Client):
    with health_view._auditing:
        assert run_audit(own_ledger) is None
        assert "Another audit runs now" in text_of(viewer.get("/health?audit=quick"))
    assert run_audit(own_ledger) is not None


def test_the_checkpoint_is_the_chain_s_size_and_root(own_ledger: Path, viewer: Client):
    """LED-7."""
    connection = connect_read_only(own_ledger)
    head = read_head(connection)
    connection.close()
    assert head is not None
    answer = viewer.get("/health/checkpoint.json")
    assert msgspec.json.decode(answer.content, type=Checkpoint) == checkpoint_of(head)
    assert f'filename="checkpoint-{head.size}.json"' in answer["Content-Disposition"]
