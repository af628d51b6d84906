"""DLV-2, PRV-2: a cancel closes the connection at once; what that means, the route declares."""

import asyncio

from gateway.providers.outcomes import Cancelled, Completed, Unknown
from gateway.submission import Delta
from ledger.rates import Usage
from tests.faults.plan import Plan
from tests.gateway.providers.upstream import against, events_of, whole


async def cancelled(upstream, plan, *, after):
    """Cancel once `after` pieces came; returns the outcome and the upstream's side of it."""
    upstream.server.plan = plan
    attempt, seen = upstream.start(), 0
    events = events_of(attempt)
    while seen < after:
        assert isinstance(await anext(events), Delta)
        seen += 1
    await upstream.server.arrived.wait()
    exchange = upstream.server.exchanges[0]
    if plan.stall_after is not None:
        await exchange.stalled.wait()
    attempt.cancel("CLIENT_GONE")
    attempt.cancel("again")
    outcome = [event async for event in events][-1]
    await exchange.disconnected.wait()
    return outcome, exchange


def test_a_cancel_closes_the_connection_and_is_unknown_where_closing_is_no_acknowledgement():
    async def scenario(upstream):
        outcome, exchange = await cancelled(
            upstream, Plan(stall_after=3, keep_generating=True), after=3
        )
        await exchange.ended.wait()
        return outcome, exchange.tokens_after_disconnect

    outcome, wasted = against(scenario)
    assert (type(outcome), outcome.reason) == (Unknown, "CANCEL_NOT_ACKNOWLEDGED")
    assert (outcome.usage.output_tokens, outcome.usage_source) == (3, "estimated")
    assert wasted == 5  # why it must not be called cancelled


def test_a_cancel_is_acknowledged_by_closing_where_the_route_declares_that_closing_cancels():
    async def scenario(upstream):
        outcome, exchange = await cancelled(upstream, Plan(stall_after=3), after=3)
        await exchange.ended.wait()
        return outcome, exchange.tokens_after_disconnect

    outcome, wasted = against(scenario, close_cancels=1)
    assert isinstance(outcome, Cancelled)
    assert (outcome.reason, outcome.usage.output_tokens) == ("CLIENT_GONE", 3)
    assert outcome.timings.cancel_ack_us is not None
    assert wasted == 0


def test_a_cancel_before_the_first_token_counts_the_input_alone():
    async def scenario(upstream):
        return (await cancelled(upstream, Plan(stall_after=0), after=0))[0]

    outcome = against(scenario, close_cancels=1)
    assert outcome.usage == Usage(input_tokens=11, output_tokens=0)


def test_a_cancel_before_anything_was_written_is_cancelled_and_has_used_nothing():
    async def scenario(upstream):
        attempt = upstream.start()
        attempt.cancel("CLIENT_GONE")
        return await whole(attempt), upstream.server.exchanges

    (_, outcome), exchanges = against(scenario)
    assert (type(outcome), exchanges) == (Cancelled, [])
    assert outcome.usage == Usage(input_tokens=0, output_tokens=0)


def test_a_cancel_after_the_finish_reason_changes_nothing():
    async def scenario(upstream):
        upstream.server.plan = Plan(stall_at_tail=True)
        attempt = upstream.start()
        pieces = []
        async for event in events_of(attempt):
            pieces.append(event)
            if len(pieces) == 8:
                await upstream.server.exchanges[0].stalled.wait()
                while not attempt._answer.finished:
                    await asyncio.sleep(0)
                attempt.cancel("CLIENT_GONE")
        return pieces[-1]

    outcome = against(scenario)
    assert (type(outcome), outcome.finish_reason) == (Completed, "stop")


def test_who_stops_listening_closes_the_request():
    async def scenario(upstream):
        upstream.server.plan = Plan(stall_after=1)
        events = events_of(upstream.start())
        await anext(events)
        await events.aclose()
        await upstream.server.exchanges[0].disconnected.wait()

    against(scenario)
