"""A table of any page as a file, exactly as it is shown: `?as=csv&table=NAME`, or `as=json`.

One mechanism for every table. The page is made as always, and the table is read out of it, so the
file holds what the page shows: same filters, order, place and rows. Numbers lose their thousands
separators, times come as ISO 8601 in the page's zone, shortened ids whole, a dash as nothing.
"""

import csv
import hashlib
import io
import re
from collections.abc import Callable
from typing import Final

import msgspec
from django.http import HttpRequest, HttpResponse, HttpResponseBase, QueryDict
from django.utils.deprecation import MiddlewareMixin

from gateway.pages.formatting import NONE
from gateway.pages.tables import ShownTable, tables_of
from ledger.spreadsheets import safe_cell

KINDS: Final = ("csv", "json")
AS, TABLE = "as", "table"
_GROUPED = re.compile(r"[-+]?[0-9]{1,3}(?:,[0-9]{3})+(?:\.[0-9]+)?")
_NUMBER = re.compile(r"[-+]?[0-9]+(?:\.[0-9]+)?")


def link(request: HttpRequest, table: str, kind: str) -> str:
    """The address of a table of this page as a file."""
    query = request.GET.copy()
    query[AS], query[TABLE] = kind, table
    return f"{request.path}?{query.urlencode()}"


class SavedTables(MiddlewareMixin):
    """Takes `as` and `table` out of the query of a page, and makes the file of its answer."""

    def process_request(self, request: HttpRequest) -> None:
        if AS not in request.GET:
            return
        query = request.GET.copy()
        request.saved_as = (query.pop(AS)[-1], (query.pop(TABLE, None) or [""])[-1])  # type: ignore[attr-defined]  # read below
        request.GET = QueryDict(query.urlencode())  # the page's own question

    def process_response(
        self, request: HttpRequest, response: HttpResponseBase
    ) -> HttpResponseBase:
        wanted: tuple[str, str] | None = getattr(request, "saved_as", None)
        if wanted is None or response.status_code != 200 or not isinstance(response, HttpResponse):
            return response
        if not response.headers.get("Content-Type", "").startswith("text/html"):
            return response
        return _file(request, response.content.decode(), *wanted)


def _file(request: HttpRequest, page: str, kind: str, name: str) -> HttpResponse:
    found = tables_of(page)
    make = _MAKERS.get(kind)
    if make is None:
        return _refused(f"as: there are {', '.join(KINDS)}", 400)
    table = found.get(name)
    if table is None:
        return _refused(f"table: this page has {', '.join(found) or 'none now'}", 404)
    content = make(table)
    response = HttpResponse(content, content_type=_TYPES[kind])
    place = request.path.strip("/").replace("/", "-")
    file = re.sub(r"[^A-Za-z0-9._-]+", "_", f"{place}-{name}")[:120]
    response["Content-Disposition"] = f'attachment; filename="{file}.{kind}"'
    response["X-Row-Count"] = str(len(table.rows))
    response["X-Content-SHA256"] = hashlib.sha256(content).hexdigest()
    response["Cache-Control"] = "private, no-store"
    return response


def _refused(reason: str, status: int) -> HttpResponse:
    return HttpResponse(f"No file: {reason}.\n", status=status, content_type="text/plain")


def _csv(table: ShownTable) -> bytes:
    """The heading, the rows, the totals last; safe to open in a spreadsheet."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\r\n")
    writer.writerow([safe_cell(each) for each in table.columns])
    for row in (*table.rows, *table.totals):
        writer.writerow([_cell(text) for text in map(plain, row)])
    return out.getvalue().encode()


def _cell(text: str) -> str:
    return text if _NUMBER.fullmatch(text) else safe_cell(text)


def _json(table: ShownTable) -> bytes:
    """`columns`, `rows` and `totals`; each cell a text, or null where the page shows a dash."""

    def named(row: tuple[str, ...]) -> dict[str, str | None]:
        return dict(zip(table.columns, (plain(text) or None for text in row), strict=True))

    return msgspec.json.encode(
        {
            "table": table.name,
            "columns": table.columns,
            "rows": [named(row) for row in table.rows],
            "totals": [named(row) for row in table.totals],
        }
    )


def plain(text: str) -> str:
    """A cell's text as data: "1,234.50" -> "1234.50", a dash -> "", other texts as they are."""
    if text == NONE:
        return ""
    return text.replace(",", "") if _GROUPED.fullmatch(text) else text


_MAKERS: Final[dict[str, Callable[[ShownTable], bytes]]] = {"csv": _csv, "json": _json}
_TYPES: Final = {"csv": "text/csv; charset=utf-8", "json": "application/json"}
