"""A fault server with a provider of a route to it, and one attempt's text and outcome."""

import asyncio
from typing import Any

from gateway.clock import SystemClock
from gateway.providers.kserve import KServeProvider
from gateway.providers.openai import OpenAIProvider, Patience
from gateway.providers.outcomes import Outcome
from gateway.providers.simulator import SimulatorProvider
from ledger.rates import Usage
from tests import policy_factories as make
from tests.faults.plan import Plan, text_of
from tests.faults.server import FaultServer
from tests.gateway.providers.calls import call, kserve_route, route

TEXT = text_of(Plan())
WHOLE = Usage(input_tokens=11, output_tokens=8)
LIMIT_S = 20  # that a test hangs, not how fast it is
BRIEF = Patience(silence_s=0.2, tail_s=0.2)  # where silence is what is tested


PROVIDERS: dict[str, Any] = {"openai": OpenAIProvider, "kserve": KServeProvider}


class Upstream:
    """A fault server, a provider of a route to it, and the attempts of a test."""

    def __init__(self, server, provider, declared) -> None:
        self.server, self.provider, self.route = server, provider, declared

    def start(self, **fields):
        return self.provider.start(call(self.route, **fields))

    async def outcome(self, plan, **fields):
        self.server.plan = plan
        return await whole(self.start(**fields))


def against(
    scenario, *, kind="openai", patience=None, credential=None, capabilities=(), **settings
):
    """Run a scenario with an upstream; further keywords are settings of the route's address."""

    async def run():
        async with asyncio.timeout(LIMIT_S), FaultServer() as server:
            if kind == "openai":
                declared = route(server.base_url, capabilities=capabilities, **settings)
            else:
                declared = kserve_route(server.origin, capabilities=capabilities, **settings)
            provider = PROVIDERS[kind](
                [declared],
                clock=SystemClock(),
                credential={"EXAMPLE_KEY": credential}.get,
                first_revision=lambda _: 1,
                patience=patience,
            )
            try:
                return await scenario(Upstream(server, provider, declared))
            finally:
                await provider.close()

    return asyncio.run(run())


def simulated(scenario, time_scale=1_000.0):
    """Run a scenario with the simulator as a provider, and its route.

    What is to be cancelled needs a slower one: 8,000 tokens take seconds at a scale of 50.
    """

    async def run():
        declared = make.route(address="sim:llama-3.1-8b-rtx4090")
        provider = SimulatorProvider(
            [declared], clock=SystemClock(), time_scale=time_scale, first_revision=lambda _: 1
        )
        try:
            return await scenario(provider, declared)
        finally:
            await provider.close()

    return asyncio.run(run())


async def events_of(attempt):
    """Yield an attempt's pieces as they arrive, then its outcome. Left early, it is stopped."""
    arrived = asyncio.Queue()

    async def carried():
        arrived.put_nowait(await attempt.carry(arrived.put_nowait))

    carrying = asyncio.create_task(carried())
    try:
        while not isinstance(event := await arrived.get(), Outcome):
            yield event
        yield event
    finally:
        carrying.cancel()
        await asyncio.gather(carrying, return_exceptions=True)


async def whole(attempt):
    """The text and the outcome of an attempt."""
    pieces = [event async for event in events_of(attempt)]
    outcome = pieces.pop()
    assert isinstance(outcome, Outcome)
    return "".join(piece.text for piece in pieces), outcome


def ended(plan, *, kind="openai", patience=None, credential=None, call_fields=None, **settings):
    """(text, outcome) of one attempt under a plan."""
    fields = call_fields or {}
    return against(
        lambda upstream: upstream.outcome(plan, **fields),
        kind=kind,
        patience=patience,
        credential=credential,
        **settings,
    )


async def until_idle(upstream):
    """Wait until no connection reads the rest of a body any more."""
    pools = upstream.provider._pools.values()
    while any(connection.busy for pool in pools for connection in pool._origins):
        await asyncio.sleep(0)
