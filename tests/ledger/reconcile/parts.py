"""Attempts and lines for tests of comparisons: valid as they stand, changed by the test."""

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from ledger.invoices.formats import read
from ledger.invoices.importing import Import, importing
from ledger.invoices.values import Line, Report
from ledger.reconcile.inputs import Exchange, their_line
from ledger.reconcile.values import Binding, Comparison, Ours, Plan, Theirs, Tokens
from tests.shared_data import shared_data_path

DAY_US = 86_400_000_000
START_US = 1_788_220_800_000_000  # 2026-09-01T00:00:00Z
LAST_PAGE = b'{"data": [], "has_more": false, "next_page": null}'
PLAN = Plan(provider="acme", bindings=(Binding(route_id="route-a", model="m"),))


def ours(number: int = 1, **changes: Any) -> Ours:
    """A completed attempt on route-a in the first hour: 1,000 in and 200 out for 0.0036."""
    values: dict[str, Any] = {
        "attempt_id": f"req_{number}.0",
        "request_id": f"req_{number}",
        "route_id": "route-a",
        "started_at_us": START_US + 3_600_000_000 + number,
        "simulated": False,
        "outcome": "completed",
        "open": False,
        "provider_request_id": None,
        "tokens": Tokens(uncached=1_000, output=200),
        "cost_pico": 3_600_000_000,
    }
    return Ours(**(values | changes))


def unknown(number: int = 1, **changes: Any) -> Ours:
    """An open unknown of which nothing is known but that it was sent."""
    values = {"outcome": "unknown", "open": True, "tokens": Tokens(), "cost_pico": 0}
    return ours(number, **(values | changes))


def theirs(number: int = 1, **changes: Any) -> Theirs:
    """A cost line of the first day: 1,000 uncached tokens for 0.002."""
    values: dict[str, Any] = {
        "line_id": f"line_{number}",
        "revision": 0,
        "format": "openai_costs",
        "role": "cost",
        "kind": "usage",
        "start_us": START_US,
        "end_us": START_US + DAY_US,
        "model": "m",
        "project": None,
        "api_key": None,
        "tier": None,
        "meter": "input",
        "tokens": 1_000,
        "pico": 2_000_000_000,
        "uncertain_pico": 0,
        "provider_request_id": None,
        "repeats": False,
    }
    return Theirs(**(values | changes))


def both_meters(number: int = 1, **changes: Any) -> tuple[Theirs, Theirs]:
    """The lines that one attempt of `ours` matches: input and output."""
    return (
        theirs(2 * number, **changes),
        theirs(
            2 * number + 1, **({"meter": "output", "tokens": 200, "pico": 1_600_000_000} | changes)
        ),
    )


def classes(found: Comparison) -> list[tuple[str, str, int, int, int]]:
    """(class, detail, attempts, lines, difference) of each unit."""
    return [
        (u.class_name, u.detail, len(u.attempts), len(u.lines), u.difference_pico)
        for u in found.units
    ]


def sample(*names: str, more: bytes | None = None, **options: str) -> tuple[Report, list[Theirs]]:
    """A sample report and its lines as they are compared, in dollars."""
    files = [shared_data_path("exports", name).read_bytes() for name in names]
    found = read([*files, *([] if more is None else [more])], **options)
    assert isinstance(found, Report), found
    made = importing(found, known={}, imported_before=0, now_us=1, by="console:ann")
    assert isinstance(made, Import), made
    dollars = Exchange(None, "USD", 0)  # type: ignore[arg-type] # every line is in dollars
    return found, [their_line(line, dollars) for line in made.lines]


def attempts_of(usage: Iterable[Line], price: Callable[[Line], int]) -> list[Ours]:
    """What we would have recorded of a usage report: an attempt per bucket, model, project, tier.

    `price`: the pico units of a token of the line.
    """
    found: dict[tuple[Any, ...], Ours] = {}
    for line in usage:
        if line.tokens is None:
            continue
        key = (line.start_us, line.model, line.project, line.api_key, line.tier)
        cached, output = line.meter == "cached_input", line.meter == "output"
        of_meter = Tokens(
            uncached=0 if cached or output else line.tokens,
            cached=line.tokens if cached else 0,
            output=line.tokens if output else 0,
        )
        one = found.get(key) or ours(
            len(found) + 1, started_at_us=line.start_us + 1, tokens=Tokens(), cost_pico=0,
            route_id=f"{line.model} {line.tier or 'standard'}",
        )  # fmt: skip
        found[key] = msgspec.structs.replace(
            one,
            tokens=one.tokens.plus(of_meter),
            cost_pico=one.cost_pico + price(line) * line.tokens,
        )
    return list(found.values())


def bindings(attempts: Iterable[Ours]) -> tuple[Binding, ...]:
    """Each route of `attempts_of` bound to its model and tier."""
    routes = dict.fromkeys(one.route_id for one in attempts)
    return tuple(
        Binding(route_id=route, model=route.split(" ")[0],
                tier=None if route.endswith(" standard") else route.split(" ")[1])
        for route in routes
    )  # fmt: skip
