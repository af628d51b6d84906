"""The data plane's life: it opens the ledger, rebuilds the book, runs and supervises its tasks.

One process owns a ledger. What a crash left without an end is filed as unknown before the first
new request is taken (LED-1).
"""

import asyncio
import logging
import sqlite3
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from django.conf import settings

from gateway import configuration as configured
from gateway import live, metrics, telemetry
from gateway.api.auth import KeyRing
from gateway.book import Book
from gateway.clock import Clock
from gateway.control import alerts
from gateway.control.evaluator import evaluate_for_ever
from gateway.control.webhook import Webhook
from gateway.desk import Desk
from gateway.enquiries import Enquiries
from gateway.idempotency import Claims
from gateway.journey import Journey
from gateway.learning import Learner
from gateway.operations import anywhere
from gateway.operations.executor import Executor
from gateway.operations.local_socket import LocalSocket
from gateway.operations.planner import Planner
from gateway.policy.breaking import Breaker
from gateway.policy.values import Route, TenantState
from gateway.providers.base import Provider
from gateway.providers.kserve import KServeProvider
from gateway.providers.openai import OpenAIProvider
from gateway.providers.simulator import SimulatorProvider
from gateway.quota import BUDGET_PERIODS, Quota
from gateway.recovery import unknown_receipts
from gateway.tenant_account import MINUTE_US
from gateway.tokenizers import tokenizer
from ledger.errors import WRITE_FAULTS, write_fault_of
from ledger.queries import actions, holds
from ledger.queries import configuration as stored
from ledger.reading import READ_FAULTS, reader
from ledger.records import (
    ApiKey,
    ApiKeyRevocation,
    ControlAction,
    EvaluationResult,
    ModelIdentity,
    PredictionRevision,
    RateTableRecord,
    Record,
    RoutePolicyRecord,
    Settlement,
    Tenant,
)
from ledger.rollups.projection import Rollups
from ledger.store import Appended, Store

log = logging.getLogger(__name__)

SNAPSHOT_SECONDS = 0.25
DRAIN_SECONDS = 20.0
AGAIN_SECONDS = 1.0  # after which a task that couldn't read the ledger tries again
# Writer and evaluator are threads: so long may one of them keep the event loop from running.
# Python's 5 ms are half of the p99 of a decision and its commit (`make bench-slo`).
SWITCH_SECONDS = 0.0005
CONFIGURED_BY = frozenset(
    {ModelIdentity, RateTableRecord, EvaluationResult, RoutePolicyRecord, PredictionRevision}
)
"""Records from which the configuration is read: a new one of these has it read again."""
DRAINING = frozenset({"drain_route", "undrain_route"})  # control actions that the book follows


class Runtime:
    """Owns store, book, journey and tasks between `start` and `stop`."""

    def __init__(self, *, ledger: Path, clock: Clock, secret: str, time_scale: float = 1.0) -> None:
        self._ledger = ledger
        self._time_scale = time_scale
        self._secret = secret
        self._tasks: list[asyncio.Task[None]] = []
        self._problems: dict[str, str] = {"start": "the server is starting"}
        self.clock = clock
        self.store: Store
        self.journey: Journey
        self.keys: KeyRing
        self.claims: Claims
        self.providers: Mapping[str, Provider]
        self.operations: Executor

    async def start(self) -> None:
        """Open everything; where that fails nothing stays open.

        Raises LedgerInUse, LedgerNotReady or NotConfigured.
        """
        self.store = Store.open(self._ledger, projections=(Rollups(),))
        try:
            with_connection = reader(self._ledger)
            configuration = configured.load(with_connection)
            self.keys = KeyRing(stored.active_api_keys(with_connection))
            book = Book()
            desk = Desk(configuration, book)
            await self._recover(with_connection)
            enter_tenants(book, with_connection, self.clock.now_us())
            self._open_routes(desk, configuration)
            self.providers = self._providers_of(configuration.policy.routes)
            self.journey = Journey(
                desk=desk, store=self.store, providers=self.providers, clock=self.clock
            )
            self.claims = Claims(self.clock, self._secret, self.reader)
            for revision in configuration.tokenizer_revisions:
                await asyncio.to_thread(tokenizer, revision)  # loaded before the first request
            self.observe_routes()
            await self._open_operations()
            telemetry.start(settings.TELEMETRY)
        except BaseException:
            self.store.close()
            raise
        self._begin_tasks()
        del self._problems["start"]

    def _providers_of(self, routes: tuple[Route, ...]) -> dict[str, Provider]:
        """One adapter for each kind of provider, with the routes that are its own."""

        def over_http(adapter: type[OpenAIProvider] | type[KServeProvider]) -> Provider:
            return adapter(
                routes,
                clock=self.clock,
                credential=settings.PROVIDER_CREDENTIAL,
                first_revision=self._next_snapshot_revision,
                allow_link_local=settings.ALLOW_LINK_LOCAL,
            )

        return {
            "simulator": SimulatorProvider(
                routes,
                clock=self.clock,
                time_scale=self._time_scale,
                first_revision=self._next_snapshot_revision,
            ),
            "openai": over_http(OpenAIProvider),
            "kserve": over_http(KServeProvider),
        }

    def _begin_tasks(self) -> None:
        """Begin what goes on beside the requests, each supervised."""
        self._supervise(asyncio.create_task(self._observe_for_ever(), name="snapshots"))
        learner = Learner(self.reader, self.clock)

        def learning() -> Coroutine[Any, Any, None]:
            return learner.run(lambda: self.journey.desk.configuration, self.store, self.apply)

        self._keep_up("learning", learning)
        self._keep_up("evaluator", lambda: evaluate_for_ever(self.operations))
        if settings.WEBHOOK_URL:
            hook = Webhook(
                url=settings.WEBHOOK_URL,
                secret=settings.WEBHOOK_SECRET,
                store=self.store,
                reader=self.reader,
                clock=self.clock,
            )
            self._keep_up("webhook", hook.tell_for_ever)
        enquiries = Enquiries(
            executor=self.operations, providers=self.providers, reader=self.reader,
            route_of=lambda route_id: self.journey.desk.configuration.routes.get(route_id),
            clock=self.clock,
        )  # fmt: skip
        self._keep_up("enquiries", enquiries.run_for_ever)
        for provider in self.providers.values():
            for task in provider.tasks:
                self._supervise(task)

    async def stop(self) -> None:
        """Stop taking requests, let what runs end, file its receipts, close the ledger."""
        self._problems["stop"] = "the server is stopping"
        live.hide(self._ledger)
        anywhere.unserve(self._ledger)
        await self._socket.close()
        await self.journey.drain(DRAIN_SECONDS)
        await asyncio.to_thread(telemetry.stop)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.operations.close()
        for provider in self.providers.values():
            await provider.close()
        self.store.close()

    async def commit(self, records: Sequence[Record]) -> tuple[Appended, ...]:
        return await self.store.commit(records)

    def models(self) -> tuple[str, ...]:
        return tuple(sorted(self.journey.desk.configuration.models))

    def versions(self, model: str) -> tuple[str, ...]:
        configuration = self.journey.desk.configuration
        found = configuration.models.get(model)
        routes = () if found is None else found.primary_routes
        return tuple(dict.fromkeys(configuration.routes[each].identity_id for each in routes))

    def allowance(self, tenant_id: str) -> TenantState | None:
        book = self.journey.desk.book
        if book.quota(tenant_id) is None:
            return None
        return book.tenant_state(tenant_id, self.clock.now_us(), tokens=1)

    def reader(self) -> sqlite3.Connection:
        return reader(self._ledger)

    def ready(self) -> tuple[bool, tuple[str, ...]]:
        """Return whether requests are taken, and each reason why not."""
        problems = list(self._problems.values())
        if "start" not in self._problems and not self.store.healthy:
            # Whoever asks needs no key: a path is told by the log and the console alone.
            fault = self.store.fault or "CLOSED"
            what_to_do = WRITE_FAULTS.get(fault, "restart the server")
            problems.append(f"the ledger can't be written: {fault}; {what_to_do}")
        return not problems, tuple(problems)

    def state_now(self) -> live.Live:
        """Return what a page may see of the server now. Called on its event loop."""
        now_us, book, health = self.clock.now_us(), self.journey.desk.book, self.journey.health
        breakers = health.breakers()
        cooling = {each.route_id: each.until_us for each in health.cooldowns(now_us)}
        routes = {}
        for state in book.route_states():
            in_flight, kv_tokens = book.held_on(state.route_id)
            routes[state.route_id] = live.LiveRoute(
                route_id=state.route_id,
                snapshot=state.snapshot,
                in_flight=in_flight,
                kv_held_tokens=kv_tokens,
                breaker=breakers.get(state.route_id, Breaker()),
                cooldown_until_us=cooling.get(state.route_id),
            )
        return live.Live(
            at_us=now_us, routes=routes, writer=self.store.status(), problems=self.ready()[1]
        )

    async def apply(self, records: Sequence[Record]) -> None:
        """Follow what an operation has made durable: what changed is in force from here on.

        Raises nothing of its own: where the server can't follow, /readyz says so (a restart can).
        """
        try:
            await self._followed({type(record) for record in records}, records)
        except Exception as fault:  # ours: what is durable is done, and must not be told as undone
            log.exception("the server can't follow an operation that is durable")
            self._problems["operations"] = (
                f"an operation is durable and not in force ({type(fault).__name__}); restart"
            )

    async def _followed(self, kinds: set[type[Record]], records: Sequence[Record]) -> None:
        connection, desk = self.reader(), self.journey.desk
        alerts.followed(records, connection)
        if kinds & CONFIGURED_BY:
            configuration = configured.load(connection)
            for revision in configuration.tokenizer_revisions:
                await asyncio.to_thread(tokenizer, revision)  # before a request needs it
            for provider in self.providers.values():
                for task in provider.reconfigure(configuration.policy.routes):
                    self._supervise(task)
            # From here to the end without an await: no decision sees a half of it.
            desk.configuration = configuration
            self._open_routes(desk, configuration)
            self.journey.health.reconfigure(configuration.policy)
            self.observe_routes()
        if kinds & {ApiKey, ApiKeyRevocation}:
            self.keys = KeyRing(stored.active_api_keys(connection))
        if any(isinstance(each, ControlAction) and each.action in DRAINING for each in records):
            desk.book.set_drained(actions.drained_routes(connection))
        for record in records:
            if isinstance(record, Tenant):
                change_quota(desk.book, connection, record, self.clock.now_us())
            elif isinstance(record, Settlement):
                held = holds.reservation(connection, record.reservation_id)
                if held is not None:
                    desk.book.settle_unknown(
                        held.reservation_id, held.tenant_id, held.cost_pico, record.cost_pico,
                        at_us=record.settled_at_us,
                    )  # fmt: skip

    async def _open_operations(self) -> None:
        self.operations = Executor(
            store=self.store, reader=self.reader, clock=self.clock, apply=self.apply,
            planner=Planner(self._ledger),
        )  # fmt: skip
        self._socket = await LocalSocket.open(self._ledger, self.operations)
        anywhere.serve(self._ledger, self.operations)
        live.show(self._ledger, self.state_now)

    def _open_routes(self, desk: Desk, configuration: configured.Configuration) -> None:
        connection = self.reader()
        desk.book.open_routes(configuration.routes)
        desk.book.set_drained(actions.drained_routes(connection))
        for route_id in configuration.routes:
            desk.snapshot_filed(route_id, stored.last_snapshot_revision(connection, route_id))

    def observe_routes(self) -> None:
        """Give the book the newest snapshot of every route."""
        desk = self.journey.desk
        desk.book.give_back_due(self.clock.now_us())
        self.journey.health.tick(self.clock.now_us())
        for route in desk.configuration.policy.routes:
            provider = self.providers.get(route.provider_kind)
            snapshot = provider.snapshot(route) if provider else None
            if snapshot is not None:
                desk.book.observe(snapshot)
        metrics.observe_book(desk.book, desk.configuration.policy)

    async def _observe_for_ever(self) -> None:
        while True:
            self.observe_routes()
            await asyncio.sleep(SNAPSHOT_SECONDS)

    async def _recover(self, connection: sqlite3.Connection) -> None:
        rows = unknown_receipts(connection, self.clock.now_us())
        for row in rows:
            await self.store.commit(row)
        if rows:
            log.warning("%d requests had no end at the last stop and are now unknown", len(rows))

    def _next_snapshot_revision(self, route_id: str) -> int:
        return 1 + stored.last_snapshot_revision(self.reader(), route_id)

    def _keep_up(self, name: str, run: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._supervise(asyncio.create_task(self._again(name, run), name=name))

    async def _again(self, name: str, run: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run a task for ever; begin it again where the ledger couldn't be read."""
        while True:
            try:
                return await run()
            except READ_FAULTS as fault:
                log.warning("task %r can't read the ledger: %s", name, fault)
                code = write_fault_of(fault)
                self._problems[name] = f"the task {name!r} can't read the ledger: {code}"
                await asyncio.sleep(AGAIN_SECONDS)
                del self._problems[name]

    def _supervise(self, task: asyncio.Task[None]) -> None:
        """Have /readyz say so when a task that must run for ever ends."""
        task.add_done_callback(self._task_ended)
        self._tasks.append(task)

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled():
            name = task.get_name()
            self._problems[name] = f"the task {name!r} died; restart the server"
            log.error("task %r died", name, exc_info=task.exception())


def enter_tenants(book: Book, connection: sqlite3.Connection, now_us: int) -> None:
    """Rebuild every tenant's account: quota, spent this day and month, money held, the minute."""
    for tenant in stored.tenants(connection):
        enter_tenant(book, connection, tenant, now_us)
    for reservation in holds.open_reservations(connection):
        book.hold_unknown_money(reservation.tenant_id, reservation.cost_pico)
    for reservation in holds.reservations_since(connection, now_us - MINUTE_US):
        tokens = reservation.kv_tokens
        book.enter_minute(reservation.tenant_id, [(reservation.reserved_at_us, tokens)])


def enter_tenant(book: Book, connection: sqlite3.Connection, tenant: Tenant, now_us: int) -> None:
    """Give a tenant the quota of this revision, with what it spent this day and month."""
    quota = msgspec.json.decode(tenant.body_json, type=Quota)
    month_us, today_us = (quota.period_us(period, now_us)[0] for period in BUDGET_PERIODS)
    book.set_quota(
        tenant.tenant_id,
        quota,
        now_us=now_us,
        spent_pico=holds.posted_pico_since(connection, tenant.tenant_id, month_us),
        spent_today_pico=holds.posted_pico_since(connection, tenant.tenant_id, today_us),
    )


def change_quota(book: Book, connection: sqlite3.Connection, tenant: Tenant, now_us: int) -> None:
    """Give a running tenant another quota.

    What it has spent stays as the book has it: a settlement that is durable and not yet entered
    would count twice. Only another time zone, and so another month, has it read again.
    """
    quota, held = msgspec.json.decode(tenant.body_json, type=Quota), book.quota(tenant.tenant_id)
    if held is None or held.time_zone != quota.time_zone:
        enter_tenant(book, connection, tenant, now_us)
    else:
        book.change_quota(tenant.tenant_id, quota)
