"""What leaves the books as a file: a run as CSV or SQLite (REC-3), charges as FOCUS (CST-9)."""

import contextlib
import re
import tempfile
from collections.abc import Iterator
from datetime import tzinfo
from pathlib import Path

from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.views.decorators.http import require_safe

from gateway.auth_roles import require_role
from gateway.pages.downloads import pieces_of, streamed
from gateway.pages.periods import range_of
from gateway.pages.shell import clock, ledger
from ledger.focus.exporting import chunks
from ledger.queries import reconciliation as stored
from ledger.queries.archives import archives_of_period
from ledger.queries.charges import ChargeFilter
from ledger.reading import connect_read_only
from ledger.reconcile.exports import write_csv, write_sqlite
from ledger.reconcile.running import Run, again
from ledger.reconcile.values import Refused

CSV, SQLITE = "text/csv; charset=utf-8", "application/vnd.sqlite3"
_PLAIN = re.compile(r"[^A-Za-z0-9._-]+")


@require_safe
@require_role("viewer")
def as_csv(request: HttpRequest, run_id: str) -> HttpResponseBase:
    run = _run(run_id)
    if isinstance(run, Refused):
        return _said(str(run))
    file = tempfile.TemporaryFile()  # noqa: SIM115 - its pieces are sent after the view has ended
    written = write_csv(run, file)
    file.seek(0)
    return streamed(
        request, pieces_of(file), name=f"{_name(run)}.csv", content_type=CSV,
        rows=written.rows, sha256=written.sha256,
    )  # fmt: skip


@require_safe
@require_role("viewer")
def as_sqlite(request: HttpRequest, run_id: str) -> HttpResponseBase:
    run = _run(run_id)
    if isinstance(run, Refused):
        return _said(str(run))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.sqlite3"
        written = write_sqlite(run, path)
        file = path.open("rb")  # stays readable when the folder is gone
    return streamed(
        request, pieces_of(file), name=f"{_name(run)}.sqlite3", content_type=SQLITE,
        rows=written.rows, sha256=written.sha256,
    )  # fmt: skip


@require_safe
@require_role("viewer")
def focus(request: HttpRequest) -> HttpResponseBase:
    try:
        when = range_of(request.GET, clock.now_us())
    except ValueError as problem:
        return _said(f"{problem}.", 400)
    period = when.period
    wanted = ChargeFilter(
        start_us=period.start_us,
        end_us=period.end_us,
        tenant_id=request.GET.get("tenant") or None,
    )
    files = archives_of_period(ledger(), wanted.start_us, wanted.end_us)
    if files:
        what = f"Requests of this period are in {', '.join(files)}: export what came after them."
        return _said(what, 410)
    return streamed(request, _charges(wanted, when.zone), name="focus.csv", content_type=CSV)


def _charges(wanted: ChargeFilter, zone: tzinfo) -> Iterator[bytes]:
    """The export on a connection of its own: its pieces are made in whatever thread is free."""
    with contextlib.closing(connect_read_only(settings.WEIGHBRIDGE_DB)) as connection:
        for piece, _ in chunks(connection, wanted, zone=zone):
            yield piece


def _run(run_id: str) -> Run | Refused:
    found = stored.run(ledger(), run_id)
    if found is None:
        raise Http404("There is no such run; the list has them all.")
    return again(ledger(), found.record)


def _name(run: Run) -> str:
    return _PLAIN.sub("-", f"{run.plan.provider}-{run.period.name}-{run.run_id[:12]}")


def _said(message: str, status: int = 409) -> HttpResponse:
    text = f"No export: {message}\n"
    return HttpResponse(text, status=status, content_type="text/plain; charset=utf-8")
