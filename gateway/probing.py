"""Asks for a fresh snapshot where a decision had to do with a stale one (ADM-6)."""

import asyncio
from collections.abc import Iterable, Mapping

from gateway import metrics
from gateway.attempt import log_fault
from gateway.book import Book
from gateway.policy.values import Route
from gateway.providers.base import Provider

PROBE_EVERY_US = 250_000
"""A route is asked at most so often, however many requests find its snapshot stale."""


class Prober:
    """Owned by one event loop; a probe never delays the request that had it sent."""

    def __init__(self, book: Book, providers: Mapping[str, Provider]) -> None:
        self._book, self._providers = book, providers
        self._asked_us: dict[str, int] = {}
        self._probes: set[asyncio.Task[None]] = set()

    def judged(
        self, routes: Mapping[str, Route], route_ids: Iterable[str], *, now_us: int, max_age_us: int
    ) -> None:
        """Have the backends of these routes asked at once where their snapshots are stale."""
        oldest_us = now_us - max_age_us
        if not self._book.some_observed_before(oldest_us):
            return
        for route_id in route_ids:
            route = routes.get(route_id)
            asked_us = self._asked_us.get(route_id, 0)
            if route is None or now_us - asked_us < PROBE_EVERY_US:
                continue
            if not self._book.observed_before(route_id, oldest_us):
                continue
            provider = self._providers.get(route.provider_kind)
            if provider is not None:
                self._asked_us[route_id] = now_us
                metrics.probed(route_id)
                self._start(provider, route)

    async def stop(self) -> None:
        """Give up what was asked and not answered yet."""
        for probe in self._probes:
            probe.cancel()
        await asyncio.gather(*self._probes, return_exceptions=True)

    def _start(self, provider: Provider, route: Route) -> None:
        probe = asyncio.create_task(self._probe(provider, route), name=f"probe {route.route_id}")
        self._probes.add(probe)
        probe.add_done_callback(self._probes.discard)

    async def _probe(self, provider: Provider, route: Route) -> None:
        try:
            snapshot = await provider.refresh(route)
            # Unless the route is gone meanwhile, or has a newer one.
            if snapshot and self._book.observed_before(route.route_id, snapshot.observed_at_us):
                self._book.observe(snapshot)
        except Exception as fault:  # of a backend: the route stays conservative, that is all
            log_fault("probing", route.route_id, fault)
