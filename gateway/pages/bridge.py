"""The bridge: why one period cost more, or less, than another (CST-4)."""

from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_safe

from gateway.auth_roles import require_role
from gateway.pages.periods import RANGES, answerable, label_of, range_of, ranged
from gateway.pages.shell import answered, clock, ledger, page
from gateway.pages.zone import ZONES
from gateway.reporting import read_bridge
from ledger.bridge import Bridge
from ledger.queries.bridge import bridge_between

EFFECT_NAMES = {
    "volume": ("Volume", "more or fewer accepted requests"),
    "model_mix": ("Model mix", "other shares of the logical models"),
    "route_mix": ("Route mix", "other shares of a model's routes"),
    "token_mix": ("Token mix", "more or fewer tokens a request"),
    "price": ("Price", "other prices of the same tokens"),
    "retries_and_hedges": ("Retries and hedges", "attempts that didn't deliver the answer"),
}


@require_safe
@require_role("viewer")
def index(request: HttpRequest) -> HttpResponse:
    context = {"ranges": RANGES, "zones": ZONES} | answered(_asked, request)
    return page(request, "bridge", "_effects.html", context)


def _asked(request: HttpRequest) -> dict[str, object]:
    now_us = clock.now_us()
    ask = answerable(read_bridge(ranged(request.GET), now_us))
    found = bridge_between(ledger(), ask.before, ask.when.period, filters=ask.filters)
    return {
        "asked": range_of(request.GET, now_us),
        "versus_first": request.GET.get("versus_first", ""),
        "versus_last": request.GET.get("versus_last", ""),
        "filters": [(name, value) for name, values in ask.filters.items() for value in values],
        "before_label": label_of(ask.before, ask.when.zone, ask.when.zone_name),
        "bridge": found,
        "nothing": not any(
            (found.before_pico, found.after_pico, found.before_unpriced, found.after_unpriced)
        ),
        "difference_pico": found.after_pico - found.before_pico,
        "rows": rows(found),
    }


def rows(found: Bridge) -> list[tuple[str, str, int]]:
    """(name, what it is, pico units) of each effect, in the order in which they follow."""
    return [(*EFFECT_NAMES[name], pico) for name, pico in found.effects]
