"""Texts that would be something else where they arrive: formulas, headers, paths, markup, SQL."""

import ast
import csv
import io
import re
from pathlib import Path

import pytest

from ledger.spreadsheets import safe_cell
from tests.security.raw import LAST, statuses
from tests.server import ROOT, Server

FORMULAS = (
    "=1+1", "+1", "-1", "@SUM(A1)", "\t=1+1", "\r=1+1", "\n=1+1", "=cmd|' /C calc'!A0",
    " =1+1", "＝1+1", "＋1", "－1", "＠A1",
)  # fmt: skip


@pytest.mark.parametrize("text", FORMULAS)
def test_no_cell_of_an_export_is_a_formula(text: str):
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\r\n").writerow([safe_cell(text)])
    (cell,) = next(csv.reader(io.StringIO(buffer.getvalue(), newline="")))
    assert cell == f"'{text}"


def test_every_writer_of_csv_makes_its_cells_safe():
    """What a module writes as CSV goes through safe_cell, there or where its rows are made."""
    rows_made_in = {"ledger/focus/exporting.py": "ledger/focus/charges.py"}
    writers = [
        path.relative_to(ROOT).as_posix()
        for package in ("gateway", "ledger")
        for path in (ROOT / package).rglob("*.py")
        if re.search(r"csv\.(writer|DictWriter)", path.read_text())
    ]
    assert len(writers) >= 4
    for name in writers:
        assert "safe_cell(" in (ROOT / rows_made_in.get(name, name)).read_text(), name


TRAVERSALS = (
    "/static/../gateway/settings.py", "/static/%2e%2e/gateway/settings.py",
    "/static/..%2fgateway/settings.py", "/static/%252e%252e/manage.py", "/static//etc/passwd",
    "/static/....//manage.py", "/static/..%5cmanage.py", "/static/css/../../../pyproject.toml",
    "/static/%00", "/static/css/", "//etc/passwd", "/receipts/..%2f..%2fmanage.py",
    "/releases/rollout/..%2f..%2fmanage.py", "/rates/version/%2e%2e/%2e%2e/manage.py",
)  # fmt: skip


@pytest.mark.parametrize("path", TRAVERSALS)
def test_no_path_leads_out_of_what_is_served(server: Server, path: str):
    status, headers, body = server.call(path)
    assert status in (301, 302, 400, 404)
    assert headers.get("location", "/login").startswith("/") and "Traceback" not in body.decode()
    for secret in (b"SECRET_KEY", b"root:", b"DJANGO_SETTINGS"):
        assert secret not in body


@pytest.mark.parametrize("at", ["/login?next=%0d%0aset-cookie:%20a=b", "/x%0d%0aset-cookie:%20a=b"])
def test_no_answer_gets_a_header_from_a_url(server: Server, at: str):
    _, headers, body = server.call(at)
    assert headers.get("set-cookie", "csrftoken=").startswith("csrftoken=")
    assert b"\r\nset-cookie" not in body


def test_no_answer_gets_a_header_from_a_header(server: Server):
    """An id or a trace that a client chose comes back cleaned, or not at all."""
    for name in (b"x-request-id", b"traceparent", b"idempotency-key", b"x-session-id"):
        head = b"GET /v1/models HTTP/1.1\r\nhost: test\r\n" + name + b": a\x0d\x0ab: c\r\n\r\n"
        assert statuses(server, head + LAST) in ([401, 200], [400])
    _, headers, _ = server.call("/v1/models", headers={"x-request-id": "chosen"})
    assert headers["x-request-id"].startswith("xch_")


def test_a_line_of_the_log_is_never_a_clients(server: Server):
    told = len(server.log.read_text())
    statuses(server, b"GET /v1/\x0aFORGED HTTP/1.1\r\nhost: test\r\n\r\n" + LAST)
    server.call("/%0aFORGED")
    server.call("/login", headers={"host": "x%0aFORGED"})
    lines = server.log.read_text()[told:].splitlines()
    assert [line for line in lines if line.startswith("FORGED")] == []


def test_no_template_takes_markup_from_a_value():
    """What turns escaping off is the charts' own markup, made of numbers."""
    unsafe = re.compile(r"\|\s*safe\b|autoescape off")
    found = [
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "templates").rglob("*.html")
        if unsafe.search(path.read_text())
    ]
    assert found == []


def test_no_statement_is_made_of_a_value():
    """Of an f-string or a sum in an execute, each name is of the code's own: listed by noqa."""
    found = []
    for package in ("gateway", "ledger"):
        for path in (ROOT / package).rglob("*.py"):
            if "migrations" not in path.parts:
                found += _interpolated(path)
    assert found == []


def _interpolated(path: Path) -> list[str]:
    """Statements of a page or the API that interpolate: those rooms have no business with SQL."""
    if not path.relative_to(ROOT).as_posix().startswith(("gateway/pages", "gateway/api")):
        return []
    return [
        f"{path.name}:{node.lineno}"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("execute", "executemany", "raw", "extra")
    ]
