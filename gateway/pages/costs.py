"""Costs: who spent what, on what; every part adds up to the whole, exactly."""

from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_safe

from gateway.auth_roles import require_role
from gateway.pages.cost_view import GROUPINGS, dimensions_of, drill_query, export, lines, picture
from gateway.pages.periods import RANGES, ZONES, range_of
from gateway.pages.shell import clock, ledger, page
from ledger.queries.costs import CostTable, Drill, costs

PAGE_ROWS_LIMIT = 200  # of the page and its CSV; what is beyond stands in one row of its own


def _table(request: HttpRequest) -> tuple[CostTable, dict[str, object]]:
    asked = range_of(request.GET, clock.now_us())
    dimensions = dimensions_of(request.GET)
    table = costs(ledger(), asked.period, dimensions, zone=asked.zone, rows_limit=PAGE_ROWS_LIMIT)
    return table, {"asked": asked, "by": dimensions}


@require_safe
@require_role("viewer")
def index(request: HttpRequest) -> HttpResponse:
    context: dict[str, object] = {"groupings": GROUPINGS, "ranges": RANGES, "zones": ZONES}
    try:
        table, asked = _table(request)
        drill = drill_query(Drill(period=table.period, values=()))
        context |= asked | {"table": table, "lines": lines(table), "drill": drill}
        context |= {"picture": picture(table), "query": request.GET.urlencode()}
        context["headings"] = [GROUPINGS[name] for name in table.dimensions]
    except ValueError as problem:
        context["problem"] = str(problem)
    return page(request, "costs", "_table.html", context)


@require_safe
@require_role("viewer")
def as_csv(request: HttpRequest) -> HttpResponse:
    try:
        found = export(_table(request)[0])
    except ValueError as problem:
        return HttpResponse(f"No export: {problem}.\n", status=400, content_type="text/plain")
    response = HttpResponse(found.text, content_type="text/csv; charset=utf-8")
    response["Content-Disposition"] = 'attachment; filename="costs.csv"'
    response["X-Row-Count"] = str(found.rows)
    response["X-Content-SHA256"] = found.sha256
    return response
