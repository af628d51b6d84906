"""Receipts: what happened to which request. Filters, place and order live in the URL."""

from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_safe

from gateway.auth_roles import require_role
from gateway.pages.receipt_filters import FilterForm, cursor_of, page_query
from gateway.pages.shell import clock, ledger, page
from ledger.queries.receipts import filter_options, receipt_list


@require_safe
@require_role("viewer")
def index(request: HttpRequest) -> HttpResponse:
    connection = ledger()
    form = FilterForm(request.GET, filter_options(connection))
    context: dict[str, object] = {"form": form, "narrowed": page_query(request.GET, None)}
    try:
        form.check_names()
        cursor = cursor_of(request.GET)
        if not form.is_valid():
            context["problem"] = form.said_of_fields()
        else:
            found = receipt_list(connection, form.wanted(clock.now_us()), cursor)
            context |= {"found": found, "at_newest": cursor is None}
            context["older"] = found.older and page_query(request.GET, found.older)
            context["newer"] = found.newer and page_query(request.GET, found.newer)
    except ValueError as problem:
        context["problem"] = str(problem)
    return page(request, "receipts", "_results.html", context)
