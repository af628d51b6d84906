"""What a name has cost over all published rate tables: the command's and the page's one reading.

A request of a route is priced by the route's own key, else by its identity's (CST-7), so that the
history of a route is that of both.
"""

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final

from gateway.configuration import policy_in_force
from ledger.queries.prices import (
    identities_of_route,
    known_names,
    price_histories,
    published_tables,
)
from ledger.rate_changes import Span
from ledger.rate_lookup import label_of

NEAREST_SHOWN: Final = 5
NEAREST_RATIO: Final = 0.5  # of difflib: half of the characters in the same order


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceHistory:
    """What a name has cost, by key; or that it is known and never had a price; or what is like it.

    `identities`: those through which it is priced, where the name is a route's.
    """

    name: str
    by_key: tuple[tuple[str, tuple[Span, ...]], ...]
    identities: tuple[str, ...]
    known: bool
    nearest: tuple[str, ...]  # of an unknown name

    def title(self, key: str) -> str:
        """What stands over a key's history; "" where it is the name itself."""
        if key == self.name:
            return ""
        return f"{self.name} is priced as {key}" if key in self.identities else key


def price_history(connection: sqlite3.Connection, name: str) -> PriceHistory:
    """Return the history of a route_id, identity_id, public name or model, exactly so written."""
    policy = policy_in_force(connection)
    routes = () if policy is None else policy.routes
    own = [route.identity_id for route in routes if route.route_id == name]
    identities = tuple(dict.fromkeys((*own, *identities_of_route(connection, name))))
    found = price_histories(connection, name, identities)
    known: set[str] = set()
    if not found:
        labels = (label_of(rate) for table in published_tables(connection) for rate in table.rates)
        known = {*known_names(connection), *labels, *(route.route_id for route in routes)}
    is_known = bool(found) or name in known
    return PriceHistory(
        name=name,
        by_key=found,
        identities=identities,
        known=is_known,
        nearest=() if is_known else nearest(name, sorted(known)),
    )


def nearest(name: str, known: Sequence[str]) -> tuple[str, ...]:
    """Return the known names that a mistyped one may stand for, the likeliest first."""
    alike = get_close_matches(name, known, n=NEAREST_SHOWN, cutoff=NEAREST_RATIO)
    within = [each for each in known if name.lower() in each.lower()]
    return tuple(dict.fromkeys((*within, *alike)))[:NEAREST_SHOWN]
