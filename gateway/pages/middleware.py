"""What every page and file is sent with: a strict content security policy, and no copy kept.

And what is shown in the place of all that would be read from a ledger that can't be.
"""

import logging

from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import render
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


class UnreadableLedger(MiddlewareMixin):
    """Says that the ledger can't be read now, and why: that is no fault of the page."""

    def process_exception(self, request: HttpRequest, problem: Exception) -> HttpResponse | None:
        if not isinstance(problem, READ_FAULTS):
            return None
        code = write_fault_of(problem)
        log.warning("%s: the ledger can't be read: %s: %s", request.path, code, problem)
        context = {"code": code, "action": WRITE_FAULTS[code]}
        return render(request, "unreadable.html", context, status=503)
