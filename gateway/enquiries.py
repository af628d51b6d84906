"""Open unknowns asked about where a provider can be asked (PRV-3). One supervised task.

What a provider says is evidence, and settles the attempt by the same operation as a person would.
Where it can't be asked, or has no answer yet, the hold stays: nothing is assumed.
"""

import asyncio
import logging
import sqlite3
from collections.abc import Callable, Mapping

from msgspec.json import decode

from gateway.clock import Clock
from gateway.operations.base import Actor, Done
from gateway.operations.executor import Executor
from gateway.operations.unknowns import ResolveUnknown
from gateway.policy.values import Route, RoutePolicy
from gateway.providers.base import Provider
from gateway.providers.outcomes import Outcome, Rejected, Unknown, error_code
from ledger.queries import configuration as stored
from ledger.queries.unknowns import Listed, open_unknowns

log = logging.getLogger(__name__)

PASS_SECONDS = 5.0
ASKED_LIMIT = 64  # of one pass
FIRST_WAIT_US = 2_000_000
LONGEST_WAIT_US = 3_600_000_000
ASK_SECONDS = 10.0
POLICIES_LIMIT = 64  # whose addresses are remembered
ENQUIRER = Actor(name="enquiries", role="operator", via="server")


class Enquiries:
    """Asks again and again, each time after twice as long, up to an hour."""

    def __init__(
        self,
        *,
        executor: Executor,
        providers: Mapping[str, Provider],
        route_of: Callable[[str], Route | None],
        reader: Callable[[], sqlite3.Connection],
        clock: Clock,
    ) -> None:
        self._executor, self._providers, self._route_of = executor, providers, route_of
        self._reader, self._clock = reader, clock
        self._addresses: dict[str, dict[str, str]] = {}  # policy -> route -> address
        self._waits: dict[str, tuple[int, int]] = {}  # attempt -> when next, after how long

    async def run_for_ever(self) -> None:
        while True:
            await self.ask_once()
            await asyncio.sleep(PASS_SECONDS)

    async def ask_once(self) -> int:
        """Ask about every unknown that is due; return how many were settled."""
        unknowns = await asyncio.to_thread(lambda: open_unknowns(self._reader()))
        now_us = self._clock.now_us()
        ids = {one.attempt_id for one in unknowns}
        self._waits = {key: wait for key, wait in self._waits.items() if key in ids}
        due = [one for one in unknowns if self._waits.get(one.attempt_id, (0, 0))[0] <= now_us]
        settled = 0
        for one in due[:ASKED_LIMIT]:
            wait_us = min(LONGEST_WAIT_US, 2 * self._waits.get(one.attempt_id, (0, 0))[1])
            wait_us = wait_us or FIRST_WAIT_US
            self._waits[one.attempt_id] = (now_us + wait_us, wait_us)
            settled += await self._settled(one)
        return settled

    async def _settled(self, one: Listed) -> bool:
        outcome = await self._answer(one)
        operation = None if outcome is None else operation_of(one, outcome)
        if operation is None:
            return False
        return isinstance(await self._executor.perform(operation, ENQUIRER), Done)

    async def _answer(self, one: Listed) -> Outcome | None:
        """What the provider says; None where it can't be asked or says nothing of use."""
        provider = self._providers.get(one.provider_kind)
        route = self._route_of(one.route_id)
        asked = one.provider_request_id
        if route is None or self._sent_to(one) != route.address:
            return None  # another backend stands there now: its word is no evidence
        if asked is None and one.provider_kind == "simulator":
            asked = one.attempt_id  # which it knows a job by
        if provider is None or asked is None:
            return None
        try:
            async with asyncio.timeout(ASK_SECONDS):
                return await provider.ask(route, asked)
        except Exception as fault:  # an enquiry that fails is no answer
            log.warning("asking about %s failed: %s", one.attempt_id, type(fault).__name__)
            return None

    def _sent_to(self, one: Listed) -> str | None:
        """The address that the attempt's route had under the policy that it was sent by."""
        if one.policy_revision not in self._addresses:
            record = stored.policy(self._reader(), one.policy_revision)
            policy = None if record is None else decode(record.body_json, type=RoutePolicy)
            routes = () if policy is None else policy.routes
            if len(self._addresses) >= POLICIES_LIMIT:
                self._addresses.clear()
            self._addresses[one.policy_revision] = {r.route_id: r.address for r in routes}
        return self._addresses[one.policy_revision].get(one.route_id)


def operation_of(one: Listed, outcome: Outcome) -> ResolveUnknown | None:
    """The resolution that a provider's answer leads to; None of an answer that is none."""
    if isinstance(outcome, Unknown):
        return None
    if outcome.usage.output_tokens < one.output_tokens:
        return None  # more was seen than it admits to: it speaks of something else
    usage, ran = outcome.usage, not isinstance(outcome, Rejected)
    used = ran and (usage.input_tokens or usage.output_tokens)
    became = "not_run" if outcome.status == "failed" and not used else outcome.status
    if became not in ("completed", "cancelled", "failed", "not_run"):
        return None
    return ResolveUnknown(
        attempt_id=one.attempt_id,
        became=became,
        evidence=f"the provider's answer about {outcome.provider_request_id or one.attempt_id}",
        reason="the provider was asked",
        input_tokens=usage.input_tokens if became != "not_run" else None,
        cached_input_tokens=usage.cached_input_tokens if became != "not_run" else 0,
        output_tokens=usage.output_tokens if became != "not_run" else None,
        error_code=error_code(outcome),
        provider_request_id=outcome.provider_request_id,
        service_tier=outcome.service_tier,
    )
