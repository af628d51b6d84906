"""`manage.py demo`: a fresh ledger with a fleet and an hour of traffic, ready to be served."""

import json
import os
import secrets
import time
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError, CommandParser

from gateway import configuration as configured
from gateway.api.auth import (
    ALL_SCOPES,
    KEY_RANDOM_BYTES,
    SCOPE_RECEIPTS,
    SCOPE_REPORTS,
    mint_key,
)
from gateway.book import Book
from gateway.clock import SystemClock
from gateway.demo.fleet import AUTHOR, DAY_US, TENANTS, fleet_records, shown_policy
from gateway.demo.outcomes import Reporter
from gateway.demo.replay import Replay
from gateway.demo.summary import Summary
from gateway.demo.traffic import SEED, arrivals, load
from gateway.desk import Desk
from gateway.management.commands.create_operator import make_operator
from gateway.management.progress import progress_bar
from gateway.runtime import enter_tenants
from ledger.management.opened import readable
from ledger.queries.actions import latest_action
from ledger.reading import reader
from ledger.records import ControlAction, Receipt, Record
from ledger.rollups.projection import Rollups
from ledger.store import Store

LOADED, REPLAYED = "demo.loaded", "demo.replayed"
OPERATOR = "operator"
CONTROLLER = "controller"  # no tenant: it has no quota, and its key may not infer
PUBLISHED_DAYS_AGO = 31
HOUR_US = 3_600_000_000


class Command(BaseCommand):
    help = "Make the demonstration's ledger: a fleet, and an hour of traffic in virtual time."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--base-url", default="http://127.0.0.1:8000")

    def handle(self, *args: Any, **options: Any) -> None:
        ledger, card = Path(settings.WEIGHBRIDGE_DB), Path(settings.VAR_DIR) / "demo.json"
        with readable(ledger):
            self._make(ledger, card, options["base_url"])
        shown = json.loads(card.read_text())
        self.stdout.write(f"\nURL        {shown['base_url']}")
        for tenant_id, key in shown["api_keys"].items():
            self.stdout.write(f"API key    {tenant_id:<14}{key}")
        self.stdout.write(f"API key    {'(all reports)':<14}{shown['reports_key']}")
        operator = shown["operator"]
        self.stdout.write(f"operator   {operator['username']}   {operator['password']}")
        self.stdout.write(f"(also in {card})")

    def _make(self, ledger: Path, card: Path, base_url: str) -> None:
        ledger.parent.mkdir(parents=True, exist_ok=True)
        if ledger.exists() and not self._usable(ledger, card):
            for path in (ledger, *(Path(f"{ledger}-{end}") for end in ("wal", "shm"))):
                path.unlink(missing_ok=True)
        call_command("migrate", database="ledger", verbosity=0)
        call_command("migrate", database="default", verbosity=0)
        if latest_action(reader(ledger), REPLAYED) is not None:
            _write_private(card, {**json.loads(card.read_text()), "base_url": base_url})
            self.stdout.write("The demonstration's ledger is there already; it is used as it is.")
            return
        with Store.open(ledger, projections=(Rollups(),)) as store:
            now_us = SystemClock().now_us()
            keys, reports_key = self._load(store, now_us)
            self._replay(store, ledger, now_us)
            _write_private(
                card,
                {
                    "base_url": base_url,
                    "api_keys": keys,
                    "reports_key": reports_key,
                    "operator": {"username": OPERATOR, "password": self._operator()},
                },
            )
            store.append((_action(REPLAYED, now_us),)).result()

    def _usable(self, ledger: Path, card: Path) -> bool:
        """Return whether the file is a whole demonstration; False: an unfinished one, to be redone.

        Raises CommandError for a ledger that is somebody else's: it is never touched.
        """
        Store.open(ledger).close()  # raises where a server owns it
        connection = reader(ledger)
        if latest_action(connection, LOADED) is None:
            if configured.is_empty(connection):
                return False
            raise CommandError(
                f"{ledger} is a ledger of its own, not the demonstration's; nothing was changed. "
                "Name another file with WEIGHBRIDGE_DB."
            )
        return latest_action(connection, REPLAYED) is not None and card.exists()

    def _load(self, store: Store, now_us: int) -> tuple[dict[str, str], str]:
        """Return each tenant's key, and the controller's, which reads all tenants' reports."""
        published_us = now_us - PUBLISHED_DAYS_AGO * DAY_US
        rows: list[Record] = [_action(LOADED, now_us), *fleet_records(published_us, shown_policy())]

        def minted(tenant_id: str, scopes: tuple[str, ...]) -> str:
            text, record = mint_key(
                secrets.token_bytes(KEY_RANDOM_BYTES), tenant_id=tenant_id, scopes=scopes,
                created_at_us=published_us, created_by=AUTHOR,
            )  # fmt: skip
            rows.append(record)
            return text

        keys = {tenant_id: minted(tenant_id, ALL_SCOPES) for tenant_id in TENANTS}
        reports_key = minted(CONTROLLER, (SCOPE_RECEIPTS, SCOPE_REPORTS))
        store.append(rows).result()
        return keys, reports_key

    def _replay(self, store: Store, ledger: Path, now_us: int) -> None:
        connection = reader(ledger)
        book, desk = Book(), None
        desk = Desk(configured.load(connection), book)
        start_us = now_us - HOUR_US
        enter_tenants(book, connection, start_us)
        for route_id in desk.configuration.routes:
            book.open_route(route_id)
        trace = load(settings.SHARED_DIR)
        self.stdout.write(f"Replaying {len(trace):,} requests of {trace.source} in virtual time;")
        self.stdout.write(f"tenants, priorities and deadlines are overlaid with seed {SEED}.")
        summary, reporter, began = Summary(), Reporter(SEED, now_us), time.monotonic()

        def told(receipt: Receipt) -> None:
            summary.add(receipt)
            reporter.add(receipt)

        replay = Replay(
            desk=desk, store=store, start_us=start_us, seed=SEED, first_revision=1,
            receipts=told,
        )  # fmt: skip
        with progress_bar(self.stdout, "replay") as tell:
            for done in replay.run(arrivals(trace)):
                if done % 100 == 0:
                    tell(done / len(trace))
        for line in summary.lines(time.monotonic() - began):
            self.stdout.write(line)
        store.append(reporter.reports).result()
        said = f"{len(reporter.reports):,} outcome reports, drawn from the same seed: quality gate,"
        self.stdout.write(f"{said} citations, tasks.")

    def _operator(self) -> str:
        from django.contrib.auth.models import User

        User.objects.filter(username=OPERATOR).delete()
        return make_operator(OPERATOR, "admin")


def _action(action: str, at_us: int) -> ControlAction:
    return ControlAction(
        action=action, subject="demo", actor="manage.py demo", acted_at_us=at_us,
        reason="the demonstration", before_json="{}", after_json="{}",
    )  # fmt: skip


def _write_private(path: Path, content: dict[str, Any]) -> None:
    """Write JSON that only its owner can read, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(".new")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        json.dump(content, file, indent=2)
    draft.replace(path)
