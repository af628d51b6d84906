"""SPEC 6 over real sockets: retried, hedged, traced; what each upstream saw and what is filed."""

import asyncio
from contextlib import AsyncExitStack

import msgspec
import pytest

from gateway.policy.values import AttemptRules, HedgeRule, RetryRule, RoutePolicy
from gateway.trace_context import span_id, trace_of
from ledger.invariants import audit
from ledger.reading import connect_read_only
from ledger.records import RoutePolicyRecord
from ledger.store import Store
from ledger.verify import verify
from tests.faults.plan import Plan, text_of
from tests.faults.server import FaultServer
from tests.gateway.providers.journeys import carried, fleet, settled

QUICK = RetryRule(backoff_us=1_000, backoff_most_us=1_000)
HEDGED = AttemptRules(limit=2, retry=QUICK, hedge=HedgeRule(delay_us=30_000))
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


def load(ledger, addresses, rules) -> None:
    """A fleet of one route for each address, `real-1` first, all primaries of `assist`."""
    records = []
    for record in fleet(addresses[0]):
        if isinstance(record, RoutePolicyRecord):
            policy = msgspec.json.decode(record.body_json, type=RoutePolicy)
            routes = tuple(
                msgspec.structs.replace(
                    policy.routes[0], route_id=f"real-{number}", address=address
                )
                for number, address in enumerate(addresses, start=1)
            )
            models = tuple(
                msgspec.structs.replace(
                    model, primary_routes=tuple(each.route_id for each in routes)
                )
                for model in policy.models
            )
            policy = msgspec.structs.replace(policy, routes=routes, models=models, attempts=rules)
            body = msgspec.json.encode(policy).decode()
            record = msgspec.structs.replace(record, body_json=body)
        records.append(record)
    with Store.open(ledger) as store:
        store.append(records).result()


def run(ledger, rules, count, scenario):
    """Run a scenario over so many upstreams, each of which stops when its connection closes."""

    async def running():
        async with AsyncExitStack() as stack:
            servers = [await stack.enter_async_context(FaultServer()) for _ in range(count)]
            load(
                ledger,
                [
                    f"openai:{server.base_url}?model=tiny&close_cancels=1&kv_tokens=100000"
                    for server in servers
                ],
                rules,
            )

            async def observed(gateway):
                book = gateway.runtime.journey.desk.book
                while any(each.snapshot is None for each in book.route_states()):
                    await asyncio.sleep(0.05)
                    gateway.runtime.observe_routes()
                return await scenario(gateway, servers)

            return await carried(ledger, observed)

    found = asyncio.run(running())
    connection = connect_read_only(ledger)
    assert verify(connection, at_rest=True).faults == ()
    assert [each.code for each in audit(connection, at_rest=True) if not each.holds] == []
    connection.close()
    return found


@pytest.mark.parametrize(
    "headers",
    [
        {"retry-after": "0"},
        {"retry-after": "Mon, 01 Jan 2001 00:00:00 GMT"},
        {"retry-after-ms": "5"},
        {"retry-after": "0.01"},
    ],
)
def test_a_full_server_is_asked_again_when_it_says_and_the_trace_goes_on(ledger_path, headers):
    """RTY-1, RTY-2: two attempts, each with its own parent id in one trace."""

    async def scenario(gateway, servers):
        (server,) = servers
        server.plans = [Plan(status=503, headers=headers)]
        trace = trace_of(f"00-{TRACE}-00f067aa0ba902b7-01", "congo=1", fresh=bytes(16))
        text, filed = await gateway.run(trace=trace)
        return text, filed, server.exchanges, gateway.held()

    text, filed, exchanges, held = run(ledger_path, AttemptRules(limit=2, retry=QUICK), 1, scenario)
    receipt = filed.current.record
    assert (text, receipt.status, receipt.attempts) == (text_of(Plan()), "completed", 2)
    assert [kind for kind, _ in settled(filed)] == ["voided", "posted"]
    assert held == (0, 0, 0)
    assert [each.headers["traceparent"] for each in exchanges] == [
        f"00-{TRACE}-{span_id(TRACE, each.record.attempt_id)}-01" for each in filed.attempts
    ]
    assert exchanges[1].headers["tracestate"] == "congo=1"
    assert {each.record.trace_id for each in filed.trace_events} == {TRACE}


@pytest.mark.parametrize("status", [400, 401, 404, 413, 422])
def test_a_clients_error_is_asked_once(ledger_path, status):
    """RTY-2."""

    async def scenario(gateway, servers):
        servers[0].plan = Plan(status=status)
        return (await gateway.run())[1], len(servers[0].exchanges), gateway.held()

    filed, asked, held = run(ledger_path, AttemptRules(limit=3, retry=QUICK), 1, scenario)
    assert (filed.current.record.status, asked, held) == ("failed", 1, (0, 0, 0))


@pytest.mark.parametrize("tokens", [0, 3])
def test_a_hedges_loser_is_hung_up_on_before_or_after_its_first_token(ledger_path, tokens):
    """HDG-1: the silent one stops generating, its cost is on the receipt, its slot is back."""

    async def scenario(gateway, servers):
        slow, _ = servers
        slow.plan = Plan(stall_after=tokens)
        text, filed = await gateway.run()
        await slow.exchanges[0].disconnected.wait()
        return text, filed, slow.exchanges[0], gateway.held()

    text, filed, stalled, held = run(ledger_path, HEDGED, 2, scenario)
    receipt = filed.current.record
    assert (text, receipt.status, receipt.route_id) == (text_of(Plan()), "completed", "real-2")
    ends = {
        each.record.attempt_id: each.record
        for each in filed.attempt_events
        if each.record.event == "ended"
    }
    lost = ends[f"{receipt.request_id}.0"]
    assert (lost.outcome, lost.error_code, lost.output_tokens) == (
        "cancelled",
        "HEDGE_LOST",
        tokens,
    )
    assert receipt.cost_retry_and_hedge_pico == lost.cost_pico
    assert (stalled.tokens_generated, held) == (tokens, (0, 0, 0))
