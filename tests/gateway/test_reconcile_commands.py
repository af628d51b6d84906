"""The commands of docs/reconcile.md, as they stand there, on a ledger with real traffic."""

import os
import pwd
import re
import shlex
import sqlite3
from functools import partial
from pathlib import Path

import msgspec
import pytest
from django.core.management import CommandError

from ledger.focus.checking import check
from tests.gateway.operations.books import START_US, append, costs, request, usual
from tests.ledger.commands import run

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = (ROOT / "docs" / "reconcile.md").read_text()
USAGE = (
    b'{"object": "page", "has_more": false, "data": [{"start_time": 1788220800, "end_time":'
    b' 1788307200, "results": [{"object": "organization.usage.completions.result",'
    b' "model": "gpt-5", "input_tokens": 2000, "input_cached_tokens": 0, "output_tokens": 400}]}]}'
)


@pytest.fixture
def folder(ledger_path, tmp_path, monkeypatch, settings) -> Path:
    """A folder with the document's files, and a ledger whose September they describe."""
    settings.WEIGHBRIDGE_DB = ledger_path
    route = {"route_id": "gpt-5-route"}
    for number in (1, 2):
        records = request(number, START_US + number)
        append(ledger_path, [_with(record, **route) for record in records])
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / "usage.json").write_bytes(USAGE)
    (folder / "costs-1.json").write_bytes(costs((0, usual(2)), more=True))
    (folder / "costs-2.json").write_bytes(costs(*((day, []) for day in range(1, 30))))
    (folder / "plan.json").write_text(_block("{"))
    monkeypatch.chdir(folder)
    return folder


def _with(record, **changes):
    known = {name: value for name, value in changes.items() if hasattr(record, name)}
    return msgspec.structs.replace(record, **known)


def _block(start: str) -> str:
    """The indented block of the document that begins so."""
    blocks = re.findall(r"(?:^    .*\n)+", DOCUMENT, flags=re.M)
    found = next(block for block in blocks if block.strip().startswith(start))
    return re.sub(r"^    ", "", found, flags=re.M)


def documented() -> list[list[str]]:
    """The arguments of every command of the document, in order."""
    lines = re.findall(r"^    python manage\.py (.+)$", DOCUMENT, flags=re.M)
    return [shlex.split(line) for line in lines]


def _account(name: str, uid: int) -> pwd.struct_passwd:
    """The system's entry of a user by this name: it says who runs a command."""
    return pwd.struct_passwd((name, "x", uid, os.getegid(), "", os.sep, ""))


def test_the_document_does_what_it_says(folder, monkeypatch):
    """REC-1..3, CST-9: imported, compared, signed, locked and exported by the document's lines."""
    said = []
    run_id = ""
    for arguments in documented():
        signer = "sign" in arguments[1] or "lock" in arguments[1]
        monkeypatch.setattr(pwd, "getpwuid", partial(_account, "bob" if signer else "ann"))
        status, out, err = run(*(one.replace("RUN", run_id) for one in arguments))
        assert (status, err) == (0, ""), arguments
        said.append(out)
        if arguments[0] == "reconcile":
            run_id = out.split(":")[0]
    assert [arguments[0] for arguments in documented()] == [
        "import_invoice", "import_invoice", "reconcile", "operate", "operate", "export_focus",
        "check_focus",
    ]  # fmt: skip
    assert "0.0072 USD in all lines" in said[1]
    assert "ours 0.0072 + differences 0 = theirs 0.0072" in said[2]
    assert "opening 0, closing 0; exact" in said[2]
    assert "Locked 2026-09 of openai; it closes at 0." in said[4]
    assert "4 rows, sha256" in said[5]
    assert "4 rows keep to FOCUS 1.2" in said[6]
    assert check((folder / "charges.csv").read_text()).conforms
    with sqlite3.connect(folder / "september.sqlite3") as connection:
        assert connection.execute("SELECT count(*) FROM rows").fetchone() == (6,)
    assert (folder / "september.csv").read_text().count("\n") == 7


def test_every_code_of_a_refusal_is_documented():
    sources = [
        *(ROOT / "ledger" / "invoices").glob("*.py"),
        *(ROOT / "ledger" / "reconcile").glob("*.py"),
        ROOT / "gateway" / "operations" / "reconciliation.py",
        ROOT / "gateway" / "reconciling.py",
    ]
    given = r'(?:code=|Unreadable\(\s*|_Missing\(\s*|\.bad\(\s*[^,]+,\s*)"([A-Z_0-9]+)"'
    codes = {code for path in sources for code in re.findall(given, path.read_text())}
    assert len(codes) > 40
    assert {code for code in codes if f"`{code}`" not in DOCUMENT} == set()


def test_the_same_files_again_are_told_and_change_nothing(folder):
    arguments = ("import_invoice", "costs-1.json", "costs-2.json")
    run(*arguments)
    status, out, _ = run(*arguments)
    assert status == 0
    assert "imported before" in out


def test_a_run_made_again_says_and_writes_the_same(folder):
    run("import_invoice", "costs-1.json", "costs-2.json")
    arguments = ("reconcile", "--provider", "openai", "--period", "2026-09", "--plan", "plan.json")
    first = run(*arguments, "--csv", "a.csv", "--sqlite", "a.sqlite3")[1]
    again = run(*arguments, "--csv", "b.csv", "--sqlite", "b.sqlite3")[1]
    assert again == first.replace("a.csv", "b.csv").replace("a.sqlite3", "b.sqlite3")
    for kind in ("csv", "sqlite3"):
        assert (folder / f"a.{kind}").read_bytes() == (folder / f"b.{kind}").read_bytes()


def test_what_can_not_be_used_is_said_with_its_place(folder):
    with pytest.raises(CommandError, match="INCOMPLETE_PAGES"):
        run("import_invoice", "costs-1.json")
    (folder / "bad.csv").write_text(
        "usage_date_utc,model,cost_usd,token_type\n2026-09-01,m,ten,x\n"
    )
    with pytest.raises(CommandError, match="NOT_A_NUMBER: line 2, column 3: cost_usd"):
        run("import_invoice", "bad.csv")
    with pytest.raises(CommandError, match=r"none\.json can't be read"):
        run("import_invoice", "none.json")
    arguments = ("reconcile", "--provider", "openai", "--period", "2026-09", "--plan", "plan.json")
    with pytest.raises(CommandError, match=r"NO_COST_REPORT: .* was imported: import_invoice one"):
        run(*arguments)
    run("import_invoice", "usage.json")
    with pytest.raises(CommandError, match=r"was imported; its usage report has no money: import"):
        run(*arguments)
    (folder / "plan.json").write_text('{"provider": "openai"}')
    with pytest.raises(CommandError, match=r"plan\.json is no plan"):
        run("reconcile", "--provider", "openai", "--period", "2026-09", "--plan", "plan.json")


def test_a_month_that_differs_exits_1_and_says_by_how_much(folder):
    (folder / "costs-3.json").write_bytes(costs((0, usual(8)), (1, [])))
    run("import_invoice", "costs-3.json")
    arguments = ("reconcile", "--provider", "openai", "--period", "2026-09", "--plan", "plan.json")
    status, out, err = run(*arguments)
    assert status == 1
    assert out.startswith("rec_")
    assert err == "differs by 0.0216 USD: differing tokens 0.0216\n"
    (folder / "there.csv").write_text("")
    with pytest.raises(CommandError, match=r"there\.csv"):
        run(*arguments, "--csv", "there.csv")


def test_an_export_is_never_overwritten_and_a_bad_file_is_named(folder):
    (folder / "there.csv").write_text("")
    period = ("--from", "2026-09-01", "--to", "2026-09-01")
    with pytest.raises(CommandError, match=r"there\.csv can't be written"):
        run("export_focus", *period, "--out", "there.csv")
    with pytest.raises(CommandError, match="no time zone"):
        run("export_focus", *period, "--zone", "Mars", "--out", "new.csv")
    assert not (folder / "new.csv").exists()
    with pytest.raises(CommandError, match="21 MISSING_COLUMN, 1 UNKNOWN_COLUMN"):
        (folder / "other.csv").write_text("a\n1\n")
        run("check_focus", "other.csv")


def test_beside_a_running_server_the_server_writes_it(fleet, tmp_path, settings, monkeypatch):
    settings.WEIGHBRIDGE_DB = fleet.ledger
    monkeypatch.chdir(tmp_path)
    Path("costs.json").write_bytes(costs((0, usual(2))))
    with fleet.serving():
        status, out, _ = run("import_invoice", "costs.json")
        assert (status, "Imported 2 lines of openai" in out) == (0, True)
        with pytest.raises(CommandError, match=r"BINDINGS: no policy has a real route.*--plan"):
            run("reconcile", "--provider", "openai", "--period", "2026-09")
