"""Costs: who spent what, on what; every part adds up to the whole, exactly."""

from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_safe

from gateway.auth_roles import require_role
from gateway.pages.cost_view import (
    drill_query,
    export,
    groupings,
    heading,
    lines,
    picture,
    unit_cost_lines,
)
from gateway.pages.periods import RANGES, answerable, range_of, ranged, without
from gateway.pages.shell import answered, clock, ledger, page
from gateway.pages.zone import ZONES
from gateway.reporting import CostsAsk, read_costs
from ledger.queries.costs import ROWS_LIMIT, CostTable, Drill, costs, tag_keys

PAGE_ROWS_LIMIT = 80
"""More is for the export, which is whole: on the page the others are summed in one row."""


def _read(request: HttpRequest, now_us: int) -> CostsAsk:
    return answerable(read_costs(ranged(request.GET), now_us))


def _table(ask: CostsAsk, rows_limit: int = ROWS_LIMIT) -> CostTable:
    when = ask.when
    return costs(
        ledger(), when.period, ask.dimensions, zone=when.zone, filters=ask.filters,
        rows_limit=rows_limit,
    )  # fmt: skip


@require_safe
@require_role("viewer")
def index(request: HttpRequest) -> HttpResponse:
    context: dict[str, object] = {"ranges": RANGES, "zones": ZONES}
    context["groupings"] = groupings(tag_keys(ledger()))
    context |= answered(_asked, request)
    return page(request, "costs", "_table.html", context)


def _asked(request: HttpRequest) -> dict[str, object]:
    now_us = clock.now_us()
    when, ask = range_of(request.GET, now_us), _read(request, now_us)
    table = _table(ask, PAGE_ROWS_LIMIT)
    return {
        "asked": when,
        "query": request.GET.urlencode(),
        "bridge_query": without(request.GET, "by", "then"),
        "by": ask.dimensions,
        "filters": [(name, value) for name, values in ask.filters.items() for value in values],
        "table": table,
        "lines": lines(table),
        "drill": drill_query(Drill(period=table.period, values=table.filters)),
        "picture": picture(table),
        "headings": [heading(name) for name in table.dimensions],
        "unit_costs": unit_cost_lines(table.total),
        "waste": table.total.waste,
    }


@require_safe
@require_role("viewer")
def as_csv(request: HttpRequest) -> HttpResponse:
    try:
        found = export(_table(_read(request, clock.now_us())))
    except ValueError as problem:
        return HttpResponse(f"No export: {problem}.\n", status=400, content_type="text/plain")
    response = HttpResponse(found.text, content_type="text/csv; charset=utf-8")
    response["Content-Disposition"] = 'attachment; filename="costs.csv"'
    response["X-Row-Count"] = str(found.rows)
    response["X-Content-SHA256"] = found.sha256
    return response
