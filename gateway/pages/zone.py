"""The zone that the pages show times in (CST-9): the URL's `zone`, else the one kept in a cookie.

One mechanism for every page: the middleware chooses it for a request, the time filters of the
templates read it, UTC stays in each time's title. A zone that can't be read is UTC here; a report
that is asked for in one refuses it itself.
"""

from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, tzinfo

from django.http import HttpRequest, HttpResponseBase
from django.utils.deprecation import MiddlewareMixin

from ledger.zones import ZONE_NAME_LIMIT, parse_zone

COOKIE = "zone"
ZONES = ("UTC", "+05:30", "Asia/Kolkata", "Asia/Shanghai", "Europe/Berlin", "America/New_York")


@dataclass(frozen=True, slots=True, kw_only=True)
class Zone:
    """A zone and what it is called."""

    name: str
    zone: tzinfo


IN_UTC = Zone(name="UTC", zone=UTC)
_shown: ContextVar[Zone] = ContextVar("zone of the pages", default=IN_UTC)


def shown() -> Zone:
    """The zone in which this request's times are shown."""
    return _shown.get()


def read(text: str) -> Zone | None:
    """The zone of a name or an offset ("+05:30", also where a query lost its plus)."""
    name = f"+{text[1:]}" if text[:1] == " " and text[1:2].isdigit() else text.strip()
    if not name or len(name) > ZONE_NAME_LIMIT:
        return None
    try:
        return Zone(name=name, zone=parse_zone(name))
    except ValueError:
        return None


def kept(request: HttpRequest) -> Zone:
    """The zone that this browser chose; UTC where it chose none."""
    return read(request.COOKIES.get(COOKIE, "")) or IN_UTC


class ChosenZone(MiddlewareMixin):
    """Each request in its own zone, and none in that of the one before."""

    def process_request(self, request: HttpRequest) -> None:
        _shown.set(read(request.GET.get("zone", "")) or kept(request))

    def process_response(
        self, request: HttpRequest, response: HttpResponseBase
    ) -> HttpResponseBase:
        _shown.set(IN_UTC)
        return response
