"""Servers that must not start say so in a sentence, and harm nothing."""

import contextlib
import json
import shutil
from pathlib import Path

from tests.server import Server
from tests.server_fixtures import Fleet
from tests.system.commands import refused_serve
from tests.system.watching import assert_each_decision_has_one_receipt

TENANT = "support-desk"


def test_a_second_server_on_a_ledger_is_refused_and_the_first_serves_on(
    server: Server, shared_fleet: Fleet
):
    assert server.call("/readyz")[0] == 200
    status, said = refused_serve(server.ledger)
    assert status == 1
    assert f"in use by process {server.process.pid}" in said
    assert "stop that one, or name another file with WEIGHBRIDGE_DB" in said
    assert "Traceback" not in said

    assert server.call("/readyz")[0] == 200
    _, _, body = server.chat("Hello", key=server.keys[TENANT], max_tokens=2)
    assert json.loads(body)["receipt"]["status"] == "completed"
    with contextlib.closing(shared_fleet.reader()) as reader:
        assert_each_decision_has_one_receipt(reader)


def test_a_server_without_a_ledger_says_how_to_make_one(tmp_path: Path):
    status, said = refused_serve(tmp_path / "absent" / "ledger.sqlite3")
    assert status == 1
    assert "there is no such file. Run: python manage.py migrate --database ledger" in said
    assert "Traceback" not in said
    assert not (tmp_path / "absent" / "ledger.sqlite3").exists()


def test_a_server_over_a_file_without_tables_says_how_to_make_them(tmp_path: Path):
    ledger = tmp_path / "ledger.sqlite3"
    ledger.touch()
    status, said = refused_serve(ledger)
    assert status != 0
    assert "Run: python manage.py migrate --database ledger" in said
    assert "Traceback" not in said


def test_a_server_over_an_empty_ledger_says_that_nothing_is_published(
    ledger_template: Path, tmp_path: Path
):
    ledger = tmp_path / "ledger.sqlite3"
    shutil.copyfile(ledger_template, ledger)
    status, said = refused_serve(ledger)
    assert status != 0
    assert "no route policy is published; run `make demo`" in said
    assert "Traceback" not in said
