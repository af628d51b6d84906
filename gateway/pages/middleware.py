"""What every page and file is sent with: a strict content security policy, and no copy kept.

And what is shown where a request can't be read, or the ledger.
"""

import logging

from django.core.exceptions import BadRequest, SuspiciousOperation
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.http.multipartparser import MultiPartParserError
from django.shortcuts import render
from django.template.loader import render_to_string
from django.utils.deprecation import MiddlewareMixin

from ledger.errors import WRITE_FAULTS, write_fault_of
from ledger.reading import READ_FAULTS

log = logging.getLogger(__name__)

POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "font-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "form-action 'self'",
        "frame-ancestors 'none'",
        "base-uri 'none'",
    )
)


class ContentSecurityPolicy(MiddlewareMixin):
    """Adds the policy to each answer, and no-store: pages and files show tenants' records.

    With no-store the back button asks the server again, so it never shows a stale page or a
    partial in a page's place.
    """

    def process_response(
        self, request: HttpRequest, response: HttpResponseBase
    ) -> HttpResponseBase:
        response.headers.setdefault("Content-Security-Policy", POLICY)
        response.headers.setdefault(
            "Cache-Control", "private, no-store"
        )  # static files have theirs
        return response


class ReadableRequests(MiddlewareMixin):
    """Refuses a query or a form that can't be read, before anything asks for one of its fields.

    Left to Django each would be a stack trace in the log, and the page of a form in another
    encoding than UTF-8, which asks for the form's token, a fault: anybody may send one.
    """

    def process_request(self, request: HttpRequest) -> HttpResponse | None:
        try:
            _ = request.GET, request.POST
        except (BadRequest, SuspiciousOperation, MultiPartParserError) as problem:
            log.warning("%s: unreadable: %s", request.path, type(problem).__name__)
            return HttpResponse(render_to_string("400.html"), status=400)
        return None


class UnreadableLedger(MiddlewareMixin):
    """Says that the ledger can't be read now, and why: that is no fault of the page."""

    def process_exception(self, request: HttpRequest, problem: Exception) -> HttpResponse | None:
        if not isinstance(problem, READ_FAULTS):
            return None
        code = write_fault_of(problem)
        log.warning("%s: the ledger can't be read: %s: %s", request.path, code, problem)
        context = {"code": code, "action": WRITE_FAULTS[code]}
        return render(request, "unreadable.html", context, status=503)
