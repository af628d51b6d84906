"""The migration that let rows be shared can be undone until a row was written with it (LED-7)."""

import os
import sqlite3
import subprocess
import sys
from contextlib import closing

from ledger.records import RouteDecision
from ledger.rows import columns
from ledger.store import Store
from ledger.triggers import trigger_differences
from tests import factories
from tests.ledger.tampering import verified
from tests.ledger.test_older_receipts import write_as_version_1
from tests.ledger_fixtures import ROOT

MIGRATE = """
import django; django.setup()
from django.core.management import call_command
from django.db import connections
for target in {targets}:
    call_command("migrate", "ledger", target, database="ledger", skip_checks=True, verbosity=0)
    with connections["ledger"].cursor() as cursor:
        cursor.execute("SELECT name FROM pragma_table_info('route_decision')")
        print(" ".join(row[0] for row in cursor.fetchall()))
"""


def migrate(path, *targets):
    """Migrates to each of these in turn, in one process: (a decision's columns after each, what it
    said where that failed)."""
    environment = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "gateway.settings",
        "WEIGHBRIDGE_VAR": str(path.parent),
        "WEIGHBRIDGE_DB": str(path),
    }
    command = [sys.executable, "-c", MIGRATE.format(targets=targets)]
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    return [set(line.split()) for line in done.stdout.splitlines()], done.stderr


def test_shared_rows_are_undone_and_done_again_where_no_row_was_written_with_them(ledger_path):
    with Store.open(ledger_path) as store:
        store.append([factories.rate_table()]).result()
    write_as_version_1(ledger_path, factories.receipt(1))
    youngest = {column.name for column in columns(RouteDecision) if column.since == 2}
    (before, after), said = migrate(ledger_path, "0017", "0020")
    assert said == ""
    assert before.isdisjoint(youngest)
    assert youngest <= after
    with closing(sqlite3.connect(ledger_path)) as connection:
        assert trigger_differences(connection) == ()
    with Store.open(ledger_path) as store:
        for commit in factories.gateway_records(2):
            store.append(commit).result()
    assert verified(ledger_path).faults == ()

    _, said = migrate(ledger_path, "0017")
    assert "1 row(s) of route_decision are of version 2" in said
    assert "restore a backup" in said
    assert migrate(ledger_path, "0020")[1] == ""  # later migrations than that one were undone
    assert verified(ledger_path).faults == ()
