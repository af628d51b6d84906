"""PRV-1, PRV-2, LED-6: requests through the whole gateway to a real socket, and what is filed.

One tenant, one route to the fault server, the demonstration's way of pricing: 2 units a million
tokens in, 8 out. A route without snapshots takes one request at a time (ADM-6).
"""

import asyncio

import msgspec
import pytest

from gateway.clock import SystemClock
from gateway.policy.values import LogicalModel, Route, RoutePolicy
from gateway.quota import Quota
from gateway.runtime import Runtime
from gateway.submission import Caller, Delta, Ended, Message, Submission
from ledger import records as r
from ledger.queries.dossier import Dossier, dossier
from ledger.rates import Rate, RateTable
from ledger.reading import connect_read_only
from ledger.store import Store
from ledger.verify import verify
from tests import factories
from tests import policy_factories as make
from tests.faults.plan import Plan, text_of
from tests.faults.server import FaultServer

LIMIT_S = 60
PROMPT = "canary-7d11 weighs how much?"
RATES = RateTable(
    version="rates-real",
    effective_from_us=0,
    currency="units",
    rates=(
        Rate(
            key="real-1",
            input_micro_per_mtok=2_000_000,
            output_micro_per_mtok=8_000_000,
            cached_input_micro_per_mtok=500_000,
        ),
    ),
)


def fleet(address: str) -> list[r.Record]:
    """A policy whose one route is a real backend."""
    real = Route(
        route_id="real-1",
        identity_id="mid_a",
        tokenizer_revision="o200k_base/chat-1",
        provider_kind="openai",
        address=address,
        region="eu",
        capabilities=(),
        max_input_tokens=4_096,
        max_output_tokens=64,
        max_total_tokens=4_096,
        prediction=make.prediction(queue_us=0, prefill_base_us=1_000, inter_token_us=1_000),
    )
    assist = LogicalModel(
        name="assist",
        primary_routes=("real-1",),
        max_input_tokens=4_096,
        max_output_tokens=64,
        max_total_tokens=4_096,
        default_output_tokens=16,
        default_deadline_us=30_000_000,
    )
    policy = RoutePolicy(revision="policy-real", models=(assist,), routes=(real,))
    return [
        factories.model_identity(logical_model="assist", tokenizer_revision="o200k_base/chat-1"),
        factories.rate_table(RATES),
        factories.route_policy(
            revision=policy.revision, body_json=msgspec.json.encode(policy).decode()
        ),
        factories.tenant(body_json=msgspec.json.encode(Quota(in_flight_limit=4)).decode()),
    ]


class Gateway:
    """The running data plane over one fault server."""

    def __init__(self, runtime, upstream, ledger) -> None:
        self.runtime, self.upstream, self.ledger = runtime, upstream, ledger

    async def run(self, plan, *, cancel_after=None, deadline_ms=None):
        """Carry one request to its end; returns its text and what the ledger has of it."""
        self.upstream.plan = plan
        journey = self.runtime.journey
        run = await journey.admit(
            Submission(
                caller=Caller(tenant_id="acme", key_id="key_1", scopes=frozenset({"inference"})),
                logical_model="assist",
                messages=(Message(role="user", content=PROMPT),),
                deadline_ms=deadline_ms,
            )
        )
        text, pieces = "", 0
        async for piece in journey.deliver(run):
            if isinstance(piece, Ended):
                break
            assert isinstance(piece, Delta)
            text, pieces = text + piece.text, pieces + 1
            if pieces == cancel_after:
                await journey.cancel(run)
        with_connection = connect_read_only(self.ledger)
        filed = dossier(with_connection, run.request_id)
        with_connection.close()
        assert filed is not None
        return text, filed

    def held(self):
        """(slots, pending money) of the book."""
        book = self.runtime.journey.desk.book
        return book.in_flight(), book.pending_pico()


@pytest.fixture
def gateway(ledger_path):
    """Run a scenario on a gateway; keywords are settings of the route's address."""

    def run(scenario, **settings):
        async def running():
            async with asyncio.timeout(LIMIT_S), FaultServer() as upstream:
                query = "".join(f"&{name}={value}" for name, value in settings.items())
                with Store.open(ledger_path) as store:
                    rows = fleet(f"openai:{upstream.base_url}?model=tiny{query}")
                    store.append(rows).result()
                runtime = Runtime(ledger=ledger_path, clock=SystemClock(), secret="test")
                await runtime.start()
                try:
                    return await scenario(Gateway(runtime, upstream, ledger_path))
                finally:
                    await runtime.stop()

        return asyncio.run(running())

    return run


def shown(filed: Dossier):
    """(status, code, input, output, source, total cost) of the current receipt."""
    receipt = filed.current.record
    return (
        receipt.status,
        receipt.terminal_error_code,
        receipt.input_tokens,
        receipt.output_tokens,
        receipt.usage_source,
        receipt.cost_total_pico,
    )


def settled(filed: Dossier):
    return [(each.record.kind, each.record.cost_pico) for each in filed.settlements]


def cost(input_tokens, output_tokens):
    return 2_000_000 * input_tokens + 8_000_000 * output_tokens


def test_a_completed_request_is_priced_by_what_the_provider_reported_and_posted(gateway):
    async def scenario(running):
        plan = Plan(headers={"x-request-id": "up-1"}, cached_tokens=4)
        return *await running.run(plan), running.held()

    text, filed, held = gateway(scenario)
    total = cost(7, 8) + 500_000 * 4
    assert text == text_of(Plan())
    assert shown(filed) == ("completed", None, 11, 8, "provider", total)
    assert settled(filed) == [("posted", total)]
    assert held == (0, 0)
    (end,) = filed.attempt_events
    assert (end.record.outcome, end.record.provider_request_id) == ("completed", "up-1")
    receipt = filed.current.record
    assert receipt.simulated == 0
    assert receipt.first_token_us > 0
    assert (receipt.queue_us, receipt.prefill_us) == (None, None)  # the backend does not tell
    assert receipt.itl_max_us is not None


def test_a_stream_that_breaks_without_a_finish_reason_is_failed_and_what_came_is_posted(gateway):
    async def scenario(running):
        return *await running.run(Plan(end_after=3)), running.held()

    _, filed, held = gateway(scenario)
    used = filed.current.record.input_tokens
    code = "PROVIDER_STREAM_WITHOUT_FINISH"
    assert shown(filed) == ("failed", code, used, 3, "estimated", cost(used, 3))
    assert settled(filed) == [("posted", cost(used, 3))]
    assert held == (0, 0)


@pytest.mark.parametrize(
    ("plan", "code"),
    [
        (Plan(status=429, headers={"Retry-After": "2"}), "PROVIDER_RATE_LIMITED"),
        (Plan(status=400), "PROVIDER_REFUSED"),
    ],
)
def test_a_request_that_the_provider_did_not_take_is_failed_and_voided(gateway, plan, code):
    async def scenario(running):
        return *await running.run(plan), running.held()

    _, filed, held = gateway(scenario)
    receipt = filed.current.record
    assert (receipt.status, receipt.terminal_error_code, receipt.cost_total_pico) == (
        "failed",
        code,
        0,
    )
    assert settled(filed) == [("voided", 0)]
    assert held == (0, 0)


def test_a_lost_connection_is_unknown_its_money_stays_held_and_survives_a_restart(gateway):
    async def scenario(running):
        _, filed = await running.run(Plan(die_after=4))
        return filed, running.held(), running.ledger

    filed, held, ledger = gateway(scenario)
    used = filed.current.record.input_tokens
    code = "PROVIDER_CONNECTION_LOST"
    assert shown(filed) == ("unknown", code, used, 4, "estimated", cost(used, 4))
    assert settled(filed) == []
    reserved = filed.reservations[0].record.cost_pico
    assert reserved == cost(used, 16)
    assert held == (1, reserved)  # the slot returns when its bound has passed
    assert asyncio.run(held_after_restart(ledger)) == (0, reserved)


async def held_after_restart(ledger):
    """(slots, pending money) that a new start makes of the ledger alone."""
    runtime = Runtime(ledger=ledger, clock=SystemClock(), secret="test")
    await runtime.start()
    try:
        return Gateway(runtime, None, ledger).held()
    finally:
        await runtime.stop()


def test_a_cancel_that_closing_acknowledges_is_cancelled_and_what_came_is_posted(gateway):
    async def scenario(running):
        return *await running.run(Plan(stall_after=3), cancel_after=3), running.held()

    _, filed, held = gateway(scenario, close_cancels=1)
    used = filed.current.record.input_tokens
    assert shown(filed) == ("cancelled", "client_gone", used, 3, "estimated", cost(used, 3))
    assert settled(filed) == [("posted", cost(used, 3))]
    assert [each.record.event for each in filed.attempt_events] == [
        "cancel_sent",
        "cancel_acknowledged",
        "ended",
    ]
    assert filed.current.record.cancel_ack_us is not None
    assert held == (0, 0)


def test_a_cancel_that_nobody_acknowledges_is_unknown_and_its_money_stays_held(gateway):
    async def scenario(running):
        plan = Plan(stall_after=3, keep_generating=True)
        _, filed = await running.run(plan, cancel_after=3)
        await running.upstream.exchanges[0].ended.wait()
        return filed, running.held(), running.upstream.exchanges[0].tokens_after_disconnect

    filed, held, wasted = gateway(scenario)
    receipt = filed.current.record
    assert (receipt.status, receipt.terminal_error_code) == ("unknown", "CANCEL_NOT_ACKNOWLEDGED")
    assert (settled(filed), held[1]) == ([], filed.reservations[0].record.cost_pico)
    assert wasted == 5


def test_the_deadline_is_enforced_in_flight_and_what_was_streamed_counts(gateway):
    async def scenario(running):
        return *await running.run(Plan(stall_after=5), deadline_ms=500), running.held()

    text, filed, held = gateway(scenario, close_cancels=1)
    receipt = filed.current.record
    assert (receipt.status, receipt.terminal_error_code) == ("cancelled", "DEADLINE_EXCEEDED")
    assert text == text_of(Plan(tokens=receipt.output_tokens))
    assert held == (0, 0)


def test_after_every_kind_of_end_the_chain_verifies_and_holds_no_text(gateway, ledger_path):
    async def scenario(running):
        states = []
        for plan in (Plan(), Plan(status=500), Plan(error_after=2), Plan(garbage_after=1), Plan()):
            _, filed = await running.run(plan)
            states.append(filed.current.record.status)
        return states

    assert gateway(scenario) == ["completed", "failed", "failed", "failed", "completed"]
    connection = connect_read_only(ledger_path)
    assert verify(connection).faults == ()
    connection.close()
    for path in ledger_path.parent.glob("ledger.sqlite3*"):
        content = path.read_bytes()
        assert b"canary-7d11" not in content
        assert "lörry".encode() not in content
