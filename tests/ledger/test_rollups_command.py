"""`manage.py rebuild_rollups`, as an operator runs it."""

import sqlite3
from io import StringIO

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from ledger.rollups.projection import Rollups
from ledger.store import Store
from tests.ledger.receipts import receipt


@pytest.fixture
def ledger(ledger_path, settings):
    settings.WEIGHBRIDGE_DB = ledger_path
    with Store.open(ledger_path, projections=(Rollups(),)) as store:
        store.append([receipt(request_id=f"r{number}") for number in range(10)]).result()
    return ledger_path


def run(*arguments):
    out = StringIO()
    call_command("rebuild_rollups", *arguments, stdout=out, stderr=StringIO(), skip_checks=True)
    return out.getvalue()


def harm(path):
    connection = sqlite3.connect(path)
    connection.execute("UPDATE rollup_total SET receipts = 11")
    connection.commit()
    connection.close()


def test_the_check_says_that_rollups_equal_the_receipts(ledger):
    assert run("--check") == "The rollups equal the receipts.\n"


def test_the_check_fails_on_a_difference_and_rebuilding_mends_it(ledger):
    harm(ledger)
    with pytest.raises(CommandError, match=r"'receipts': 11.*'receipts': 10"):
        run("--check")
    assert run() == "Rollups rebuilt up to row 10 of the chain.\n"
    assert run("--check") == "The rollups equal the receipts.\n"


def test_rebuilding_is_refused_while_a_server_owns_the_ledger(ledger):
    harm(ledger)
    with Store.open(ledger), pytest.raises(CommandError, match="in use by process"):
        run()


def test_a_path_without_a_ledger_is_named(ledger, settings, tmp_path):
    settings.WEIGHBRIDGE_DB = tmp_path / "nowhere.sqlite3"
    with pytest.raises(CommandError, match="nowhere"):
        run("--check")
