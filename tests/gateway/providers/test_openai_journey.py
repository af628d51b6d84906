"""PRV-1, PRV-2, LED-6: requests through the whole gateway to a real socket, and what is filed."""

import asyncio

import pytest

from ledger.reading import connect_read_only
from ledger.verify import verify
from tests.faults.plan import Plan, text_of
from tests.faults.server import FaultServer
from tests.gateway.providers.journeys import (
    CANARY,
    OUTPUT_TOKENS,
    Gateway,
    carried,
    cost,
    load,
    settled,
    shown,
)


class Faulty(Gateway):
    """The gateway over one fault server."""

    def __init__(self, running, upstream):
        super().__init__(running.runtime, running.ledger, running.clock)
        self.upstream = upstream

    async def under(self, plan, **asked):
        self.upstream.plan = plan
        return await self.run(**asked)


@pytest.fixture
def gateway(ledger_path):
    """Run a scenario on a gateway; keywords are settings of the route's address."""

    def run(scenario, **settings):
        async def running():
            async with FaultServer() as upstream:
                query = "".join(f"&{name}={value}" for name, value in settings.items())
                load(ledger_path, f"openai:{upstream.base_url}?model=tiny{query}")
                return await carried(
                    ledger_path, lambda running: scenario(Faulty(running, upstream))
                )

        return asyncio.run(running())

    return run


def test_a_completed_request_is_priced_by_what_the_provider_reported_and_posted(gateway):
    async def scenario(running):
        plan = Plan(headers={"x-request-id": "up-1"}, cached_tokens=4)
        return *await running.under(plan), running.held()

    text, filed, held = gateway(scenario)
    total = cost(7, 8) + 500_000 * 4
    assert text == text_of(Plan())
    assert shown(filed) == ("completed", None, 11, 8, "provider", total)
    assert settled(filed) == [("posted", total)]
    assert held == (0, 0, 0)
    (end,) = filed.attempt_events
    assert (end.record.outcome, end.record.provider_request_id) == ("completed", "up-1")
    receipt = filed.current.record
    assert receipt.simulated == 0
    assert receipt.first_token_us > 0
    assert (receipt.queue_us, receipt.prefill_us) == (None, None)  # the backend does not tell
    assert receipt.itl_max_us is not None


def test_a_stream_that_breaks_without_a_finish_reason_is_failed_and_what_came_is_posted(gateway):
    async def scenario(running):
        return *await running.under(Plan(end_after=3)), running.held()

    _, filed, held = gateway(scenario)
    used = filed.current.record.input_tokens
    code = "PROVIDER_STREAM_WITHOUT_FINISH"
    assert shown(filed) == ("failed", code, used, 3, "estimated", cost(used, 3))
    assert settled(filed) == [("posted", cost(used, 3))]
    assert held == (0, 0, 0)


@pytest.mark.parametrize(
    ("plan", "code"),
    [
        (Plan(status=429, headers={"Retry-After": "2"}), "PROVIDER_RATE_LIMITED"),
        (Plan(status=400), "PROVIDER_REFUSED"),
    ],
)
def test_a_request_that_the_provider_did_not_take_is_failed_and_voided(gateway, plan, code):
    async def scenario(running):
        return *await running.under(plan), running.held()

    _, filed, held = gateway(scenario)
    receipt = filed.current.record
    assert (receipt.status, receipt.terminal_error_code, receipt.cost_total_pico) == (
        "failed",
        code,
        0,
    )
    assert settled(filed) == [("voided", 0)]
    assert held == (0, 0, 0)


def test_a_lost_connection_is_unknown_its_money_stays_held_and_survives_a_restart(gateway):
    async def scenario(running):
        _, filed = await running.under(Plan(die_after=4))
        return filed, running.held(), running.ledger

    filed, held, ledger = gateway(scenario)
    used = filed.current.record.input_tokens
    code = "PROVIDER_CONNECTION_LOST"
    assert shown(filed) == ("unknown", code, used, 4, "estimated", cost(used, 4))
    assert settled(filed) == []
    reserved = filed.reservations[0].record.cost_pico
    assert reserved == cost(used, OUTPUT_TOKENS)
    assert held == (1, used + OUTPUT_TOKENS, reserved)  # until its bound has passed

    async def later(running):
        return running.held()

    assert asyncio.run(carried(ledger, later)) == (0, 0, reserved)


def test_a_cancel_that_closing_acknowledges_is_cancelled_and_what_came_is_posted(gateway):
    async def scenario(running):
        return *await running.under(Plan(stall_after=3), cancel_after=3), running.held()

    _, filed, held = gateway(scenario, close_cancels=1)
    used = filed.current.record.input_tokens
    assert shown(filed) == ("cancelled", "CLIENT_GONE", used, 3, "estimated", cost(used, 3))
    assert settled(filed) == [("posted", cost(used, 3))]
    assert [each.record.event for each in filed.attempt_events] == [
        "cancel_sent",
        "cancel_acknowledged",
        "ended",
    ]
    assert filed.current.record.cancel_ack_us is not None
    assert held == (0, 0, 0)


def test_a_cancel_that_nobody_acknowledges_is_unknown_and_its_money_stays_held(gateway):
    async def scenario(running):
        plan = Plan(stall_after=3, keep_generating=True)
        _, filed = await running.under(plan, cancel_after=3)
        await running.upstream.exchanges[0].ended.wait()
        return filed, running.held(), running.upstream.exchanges[0].tokens_after_disconnect

    filed, held, wasted = gateway(scenario)
    receipt = filed.current.record
    assert (receipt.status, receipt.terminal_error_code) == ("unknown", "CANCEL_NOT_ACKNOWLEDGED")
    assert (settled(filed), held[2]) == ([], filed.reservations[0].record.cost_pico)
    assert wasted == 5


def test_the_deadline_is_enforced_in_flight_and_what_was_streamed_counts(gateway):
    async def scenario(running):
        return *await running.under(Plan(stall_after=5), deadline_ms=500), running.held()

    text, filed, held = gateway(scenario, close_cancels=1)
    receipt = filed.current.record
    assert (receipt.status, receipt.terminal_error_code) == ("cancelled", "DEADLINE_EXCEEDED")
    assert text == text_of(Plan(tokens=receipt.output_tokens))
    assert held == (0, 0, 0)


def test_after_every_kind_of_end_the_chain_verifies_and_holds_no_text(gateway, ledger_path):
    async def scenario(running):
        states = []
        for plan in (Plan(), Plan(status=500), Plan(error_after=2), Plan(garbage_after=1), Plan()):
            _, filed = await running.under(plan)
            states.append(filed.current.record.status)
        return states

    assert gateway(scenario) == ["completed", "failed", "failed", "failed", "completed"]
    connection = connect_read_only(ledger_path)
    assert verify(connection).faults == ()
    connection.close()
    for path in ledger_path.parent.glob("ledger.sqlite3*"):
        content = path.read_bytes()
        assert CANARY.encode() not in content
        assert "lörry".encode() not in content
