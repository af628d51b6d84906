"""Reconciliation: does the invoice agree with what we ran, and why not; sign-off and lock."""

import msgspec
from django.http import Http404, HttpRequest, HttpResponse
from django.views.decorators.http import require_safe

from gateway.auth_roles import require_role
from gateway.pages.periods import RANGES, range_of
from gateway.pages.reconciliation_view import (
    VERDICTS,
    WORDS,
    classes,
    imports,
    last_month,
    rows,
)
from gateway.pages.shell import clock, ledger, page
from gateway.pages.zone import ZONES
from ledger.invoices.files import FILE_LIMIT_BYTES
from ledger.invoices.formats import FORMATS
from ledger.queries import invoices as reports
from ledger.queries.unknowns import open_unknown
from ledger.reconcile.overview import overview
from ledger.reconcile.reports import SHOWN_LIMIT, report


@require_safe
@require_role("viewer")
def index(request: HttpRequest) -> HttpResponse:
    books = overview(ledger())
    now_us = clock.now_us()
    context: dict[str, object] = {
        "books": [(one, imports(one.invoices)) for one in books],
        "formats": sorted(FORMATS),
        "limit_mib": FILE_LIMIT_BYTES >> 20,
        "period": last_month(now_us),
        "asked": range_of(request.GET, now_us) if not request.GET else None,
        "ranges": RANGES,
        "zones": ZONES,
        "plans": {one.provider: one.runs[0].run.plan_json for one in books if one.runs},
    }
    return page(request, "reconciliation", "_books.html", context)


@require_safe
@require_role("viewer")
def show(request: HttpRequest, run_id: str) -> HttpResponse:
    connection = ledger()
    found = report(connection, run_id)
    if found is None:
        raise Http404("There is no such run; the list has them all.")
    wanted = request.GET.get("class", "")
    context: dict[str, object] = {"run": found, "wanted": wanted, "words": WORDS}
    context["verdict"] = VERDICTS[found.verdict]
    context["classes"] = classes(found)
    context["rows"] = rows(
        run_id, found.found, wanted, lambda one: open_unknown(connection, one) is not None
    )
    context["plan_json"] = msgspec.json.format(msgspec.json.encode(found.plan)).decode()
    imported = [reports.invoice(connection, one) for one in found.invoices]
    context |= {"imports": imports([one for one in imported if one]), "limit": SHOWN_LIMIT}
    return page(request, "reconciliation_run", "_run.html", context)
