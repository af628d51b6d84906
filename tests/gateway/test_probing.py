"""ADM-6: a stale snapshot makes a route conservative and has a fresh one asked for, at once."""

import asyncio

from gateway.probing import PROBE_EVERY_US
from gateway.providers.outcomes import Completed
from gateway.submission import Refusal
from ledger.rates import Usage
from tests.gateway.scripted import START_US, ScriptedProvider, stage, submission
from tests.policy_factories import snapshot

STALE_US = 6_000_000
SECRET = "unweighed-cargo-7f3a"


def waiting(call):
    usage = Usage(input_tokens=call.input_tokens, output_tokens=0)
    return [Completed(usage=usage, finish_reason="stop")]


async def settled() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def test_adm_6_a_route_that_is_asked_with_a_stale_snapshot_has_its_backend_asked_at_once(fleet):
    provider = ScriptedProvider(script=waiting, waits_at=0)

    async def play(on):
        on.clock.set_us(START_US + STALE_US)
        admitted = [await on.journey.admit(submission()) for _ in range(8)]
        refused = [each for each in admitted if isinstance(each, Refusal)]
        assert refused, "each route takes at most its probe allowance"
        assert {each.reason_code for each in refused} == {"CAPACITY_SHED"}
        await settled()
        asked = list(provider.refreshed)
        assert asked
        assert len(asked) == len(set(asked)), "once per route, however many requests found it stale"

        provider.fresh = lambda route: snapshot(
            route.route_id, observed_at_us=on.clock.now_us(), revision=9
        )
        on.clock.set_us(on.clock.now_us() + PROBE_EVERY_US)
        for _ in range(20):  # of either arm of the canary
            await on.journey.admit(submission())
            await settled()
        after = [await on.journey.admit(submission()) for _ in range(8)]
        assert not any(isinstance(each, Refusal) for each in after)
        provider.fresh = None
        for attempt in provider.attempts:
            attempt.woken.set()
        await on.journey.drain(5)

    with stage(fleet.ledger, provider) as on:
        asyncio.run(play(on))


def test_adm_6_nobody_is_asked_while_every_snapshot_is_fresh(fleet):
    provider = ScriptedProvider(script=waiting)

    async def play(on):
        on.clock.set_us(START_US + 4_999_999)
        run = await on.admitted()
        await on.pieces(run)

    with stage(fleet.ledger, provider) as on:
        asyncio.run(play(on))
    assert provider.refreshed == []


def test_a_backend_that_breaks_when_it_is_asked_costs_the_request_nothing(fleet, caplog):
    def broken(route):
        raise RuntimeError(SECRET)

    provider = ScriptedProvider(script=waiting, fresh=broken)

    async def play(on):
        on.clock.set_us(START_US + STALE_US)
        run = await on.admitted()
        _, end = await on.pieces(run)
        await settled()
        return end.filed.receipt.status

    with stage(fleet.ledger, provider) as on:
        assert asyncio.run(play(on)) == "completed"
    assert provider.refreshed
    assert "probing" in caplog.text
    assert SECRET not in caplog.text
