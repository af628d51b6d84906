"""What every page and file is sent with: a strict content security policy, and no copy kept."""

from django.http import HttpRequest, HttpResponseBase
from django.utils.deprecation import MiddlewareMixin

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
