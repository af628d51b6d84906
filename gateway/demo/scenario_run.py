"""Runs a fault scenario on a fresh ledger and says what is diagnosed from what it recorded."""

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import msgspec

from gateway import configuration as configured
from gateway.book import Book
from gateway.demo.fleet import AUTHOR, fleet_records, policy
from gateway.demo.replay import Replay
from gateway.demo.scenarios import (
    TENANTS,
    WINDOW_US,
    Load,
    Scenario,
    arrivals,
    backends_of,
    outcomes_of,
)
from gateway.desk import Desk
from gateway.policy.values import RoutePolicy
from gateway.quota import Quota
from gateway.runtime import enter_tenants
from ledger.diagnosis import Finding, Picture
from ledger.queries.diagnosis import diagnosis
from ledger.reading import connect_read_only
from ledger.records import Record, RoutePolicyRecord, Tenant
from ledger.rollups.projection import Rollups
from ledger.store import Store

START_US = 1_795_000_000_000_000 - 1_795_000_000_000_000 % WINDOW_US
REVISIONS_APART = 1_000_000
PRIMARY, CANARY, FALLBACK = "fast-v2", "fast-v3", "long-context-v4"


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """A scenario's evidence, and what was diagnosed, the most specific first."""

    scenario: Scenario
    seed: int
    before: Picture
    now: Picture
    findings: tuple[Finding, ...]

    @property
    def found(self) -> str:
        """The row on top; "healthy" where nothing was found."""
        return self.findings[0].row if self.findings else "healthy"

    @property
    def right(self) -> bool:
        return self.found == (self.scenario.finds or "healthy")


def _no_step() -> None:
    """Nobody waits for one."""


def run(ledger: Path, scenario: Scenario, seed: int, step: Callable[[], None] = _no_step) -> Result:
    """The scenario's two windows on the migrated, empty ledger at `ledger`, and the diagnosis.

    `step` is called at each arrival.
    """
    with Store.open(ledger, projections=(Rollups(),)) as store:
        store.append(_fleet()).result()
        for place, load in enumerate((scenario.before, scenario.now)):
            _window(store, ledger, load, seed * 2 + place, place, step)
        store.flush()
    with closing(connect_read_only(ledger)) as connection:
        before, now, findings = diagnosis(
            connection, START_US + WINDOW_US, START_US + 2 * WINDOW_US
        )
    return Result(scenario=scenario, seed=seed, before=before, now=now, findings=findings)


def _window(
    store: Store, ledger: Path, load: Load, seed: int, place: int, step: Callable[[], None]
) -> None:
    start_us = START_US + place * WINDOW_US
    store.append((_policy_row(load, place, start_us),)).result()
    with closing(connect_read_only(ledger)) as connection:
        book = Book()
        desk = Desk(configured.load(connection), book)
        enter_tenants(book, connection, start_us)
    book.open_routes(desk.configuration.routes)
    if load.primary_down:
        book.set_health(PRIMARY, healthy=False)
    replay = Replay(
        desk=desk,
        store=store,
        start_us=start_us,
        seed=seed,
        first_revision=1 + place * REVISIONS_APART,
        receipts=_unread,
        backends=backends_of(load),
        outcomes=outcomes_of(load, seed),
    )
    for _ in replay.run(arrivals(load, seed)):
        step()


def _unread(receipt: object) -> None:
    """The ledger has it."""


def _fleet() -> list[Record]:
    """Identities, prices and evidence of the demonstration; tenants with room; no policy yet."""
    rows: list[Record] = [
        row for row in fleet_records(START_US) if not isinstance(row, RoutePolicyRecord | Tenant)
    ]
    quota = msgspec.json.encode(Quota(in_flight_limit=2_000)).decode()
    rows += [
        Tenant(
            tenant_id=name, revision=1, body_json=quota, changed_at_us=START_US, changed_by=AUTHOR
        )
        for name in TENANTS
    ]
    return rows


def _policy_row(load: Load, place: int, at_us: int) -> RoutePolicyRecord:
    """One route of the old identity, or of the new one, with a fallback for when it is down."""
    base = policy()
    served = CANARY if load.canary else PRIMARY
    routes = tuple(_routes(base, (served, FALLBACK)))
    (assist,) = (model for model in base.models if model.name == "assist")
    model = msgspec.structs.replace(assist, primary_routes=(served,), canary=None)
    (edge,) = (one for one in base.edges if one.from_route == served)
    changed = msgspec.structs.replace(
        base,
        revision=f"scenario-{place}",
        models=(model,),
        routes=routes,
        edges=(msgspec.structs.replace(edge, allowed_reasons=("unhealthy",)),),
        queue_shares=(),
    )
    return RoutePolicyRecord(
        revision=changed.revision,
        body_json=msgspec.json.encode(changed).decode(),
        published_at_us=at_us,
        published_by=AUTHOR,
    )


def _routes(base: RoutePolicy, names: tuple[str, ...]) -> Iterator[object]:
    for route in base.routes:
        if route.route_id in names:
            yield msgspec.structs.replace(route, queue_limit=4_000, queue_age_limit_us=300_000_000)
