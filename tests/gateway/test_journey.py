"""One request's way, with backends that behave and such that don't: each ends with one receipt."""

import asyncio
import logging

import pytest

from gateway import driving as module
from gateway.policy.replay import decode_decision
from gateway.providers.outcomes import Cancelled, Completed, Rejected, Timings
from gateway.submission import Delta, Refusal
from ledger.carrying import source
from ledger.errors import LedgerUnavailable
from ledger.rates import Usage
from ledger.records import Reservation, Settlement
from tests.gateway.scripted import START_US, ScriptedProvider, stage, submission

SECRET = "unweighed-cargo-7f3a"
PIECES = [Delta(text="Sim", tokens=1), Delta(text="ulated", tokens=2)]
OPEN_RESERVATIONS = (
    f"SELECT count(*) FROM {source(Reservation)} "
    f"WHERE reservation_id NOT IN (SELECT reservation_id FROM {source(Settlement)})"
)


def used(call, output_tokens: int = 3) -> Usage:
    return Usage(input_tokens=call.input_tokens, output_tokens=output_tokens)


def completing(call):
    return [*PIECES, Completed(usage=used(call), finish_reason="stop")]


def ended(fleet, provider: ScriptedProvider, **changed):
    """(text, receipt, what is held afterwards, the ledger's rows of a question) of one request."""

    async def play(on):
        run = await on.admitted(**changed)
        text, end = await on.pieces(run)
        return run, text, end.filed.receipt

    with stage(fleet.ledger, provider) as on:
        run, text, receipt = asyncio.run(play(on))
        assert on.rows(
            "SELECT count(*), status FROM receipt WHERE request_id = ?", run.request_id
        ) == [(1, receipt.status)]
        return text, receipt, on.held(), on.rows(OPEN_RESERVATIONS)[0][0]


def test_a_completed_request_is_settled_and_holds_nothing(fleet):
    text, receipt, held, open_reservations = ended(fleet, ScriptedProvider(script=completing))
    assert (text, receipt.status, receipt.output_tokens) == ("Simulated", "completed", 3)
    assert receipt.cost_output_pico == 3 * 8 * 10**6
    assert (held, open_reservations) == ((0, 0, 0), 0)


def test_an_attempt_whose_adapter_breaks_is_unknown_and_its_money_stays_held(fleet):
    provider = ScriptedProvider(script=lambda call: PIECES)
    text, receipt, held, open_reservations = ended(fleet, provider)
    assert (text, receipt.status) == ("Simulated", "unknown")
    assert receipt.terminal_error_code == "ADAPTER_FAULT"
    assert (receipt.output_tokens, receipt.usage_source) == (3, "counted")
    slots, kv_tokens, pending_pico = held
    assert (slots, open_reservations) == (1, 1)
    assert kv_tokens == receipt.input_tokens + 200
    assert pending_pico == receipt.cost_estimated_pico


def test_an_unknowns_slot_and_kv_return_when_the_declared_bound_has_passed(fleet):
    async def play(on):
        run = await on.admitted(deadline_ms=10_000)
        _, end = await on.pieces(run)
        return end.filed.receipt

    with stage(fleet.ledger, ScriptedProvider(script=lambda call: [])) as on:
        receipt = asyncio.run(play(on))
        book = on.journey.desk.book
        # As long as its longest answer was predicted to take, and a minute.
        ((decided,),) = on.rows("SELECT decision_json FROM route_decision")
        bound_us = START_US + (decode_decision(decided).e2e_us or 0) + 60_000_000
        assert bound_us < START_US + 70_000_000
        book.give_back_due(bound_us - 1)
        assert on.held()[0] == 1
        book.give_back_due(bound_us)
        assert on.held() == (0, 0, receipt.cost_estimated_pico)


def test_an_adapter_that_breaks_costs_the_request_neither_its_receipt_nor_its_privacy(
    fleet, caplog
):
    provider = ScriptedProvider(script=lambda call: [PIECES[0], RuntimeError(SECRET)])
    with caplog.at_level(logging.INFO):
        text, receipt, held, _ = ended(fleet, provider)
    assert (text, receipt.status, receipt.terminal_error_code) == (
        "Sim",
        "unknown",
        "ADAPTER_FAULT",
    )
    assert held[2] == receipt.cost_estimated_pico
    assert "RuntimeError broke the adapter" in caplog.text
    assert SECRET not in caplog.text


@pytest.mark.parametrize(
    "usage",
    [
        Usage(input_tokens=5, output_tokens=-1),
        Usage(input_tokens=5, output_tokens=1, cached_input_tokens=6),
        Usage(input_tokens=5, output_tokens=2**63),
    ],
)
def test_a_report_that_cant_be_priced_or_recorded_makes_the_end_unknown(fleet, usage):
    provider = ScriptedProvider(
        script=lambda call: [*PIECES, Completed(usage=usage, finish_reason="stop")]
    )
    _, receipt, held, open_reservations = ended(fleet, provider)
    assert (receipt.status, receipt.terminal_error_code) == ("unknown", "UNUSABLE_REPORT")
    assert (receipt.output_tokens, open_reservations) == (3, 1)
    assert held[2] == receipt.cost_estimated_pico


def test_what_the_backend_refuses_is_voided_and_holds_nothing(fleet):
    provider = ScriptedProvider(script=lambda call: [Rejected(usage=used(call, 0), reason="FULL")])
    text, receipt, held, open_reservations = ended(fleet, provider)
    assert (text, receipt.status, receipt.terminal_error_code) == ("", "failed", "FULL")
    assert (receipt.cost_total_pico, held, open_reservations) == (0, (0, 0, 0), 0)


def cancelled_after_two_pieces(fleet, provider: ScriptedProvider):
    async def play(on):
        run = await on.admitted()
        pieces = on.journey.deliver(run)
        text = (await anext(pieces)).text + (await anext(pieces)).text
        await on.journey.cancel(run)
        await on.journey.cancel(run)
        return text, (await anext(pieces)).filed.receipt

    with stage(fleet.ledger, provider) as on:
        return *asyncio.run(play(on)), on.held()


def test_a_cancel_reaches_the_backend_once_and_what_was_generated_is_priced(fleet):
    def script(call):
        timings = Timings(cancel_ack_us=24_000)
        return [*PIECES, Cancelled(usage=used(call), timings=timings, reason="CLIENT_GONE")]

    provider = ScriptedProvider(script=script, waits_at=2)
    text, receipt, held = cancelled_after_two_pieces(fleet, provider)
    assert provider.attempts[0].cancelled_with == ["CLIENT_GONE"]
    assert (text, receipt.status, receipt.cancel_ack_us) == ("Simulated", "cancelled", 24_000)
    assert receipt.cost_output_pico == 3 * 8 * 10**6
    assert held == (0, 0, 0)


def test_a_cancel_that_nobody_acknowledges_is_unknown_once_patience_is_over(fleet, monkeypatch):
    monkeypatch.setattr(module, "CANCEL_SECONDS", 0.01)
    provider = ScriptedProvider(script=completing, waits_at=2, deaf=True)
    _, receipt, held = cancelled_after_two_pieces(fleet, provider)
    assert (receipt.status, receipt.terminal_error_code) == ("unknown", "CANCEL_NOT_ACKNOWLEDGED")
    assert (receipt.output_tokens, receipt.cancel_ack_us) == (3, None)
    assert held[2] == receipt.cost_estimated_pico


def test_a_refusal_is_filed_and_reaches_no_backend(fleet):
    provider = ScriptedProvider(script=completing)
    with stage(fleet.ledger, provider) as on:
        refusal = asyncio.run(on.journey.admit(submission(max_output_tokens=0)))
        assert isinstance(refusal, Refusal)
        assert refusal.reason_code == "INVALID_TOKEN_BUDGET"
        assert refusal.filed.receipt.status == "rejected"
        assert (provider.attempts, on.held()) == ([], (0, 0, 0))
        assert on.rows("SELECT count(*) FROM receipt") == [(1,)]


def test_nothing_runs_and_nothing_is_held_where_nothing_can_be_recorded(fleet):
    provider = ScriptedProvider(script=completing)
    with stage(fleet.ledger, provider) as on:
        on.store.close()
        with pytest.raises(LedgerUnavailable):
            asyncio.run(on.admitted())
        assert (provider.attempts, on.held()) == ([], (0, 0, 0))
        assert on.rows("SELECT count(*) FROM route_decision") == [(0,)]


def test_an_end_that_cant_be_recorded_leaves_the_hold_as_an_unknowns(fleet, monkeypatch):
    """The ledger fails between the first token and the end: the caller gets no end, no lie."""
    monkeypatch.setattr(module, "CLOSING_RETRY_SECONDS", (0,))

    async def play(on):
        run = await on.admitted(deadline_ms=10_000)
        pieces = on.journey.deliver(run)
        await anext(pieces)
        await anext(pieces)
        on.store.close()
        on.provider.attempts[0].woken.set()
        with pytest.raises(LedgerUnavailable):
            await anext(pieces)

    with stage(fleet.ledger, ScriptedProvider(script=completing, waits_at=2)) as on:
        asyncio.run(play(on))
        slots, kv_tokens, pending_pico = on.held()
        assert slots == 1 and kv_tokens > 200 and pending_pico > 0
        on.journey.desk.book.give_back_due(START_US + 70_000_000)
        assert on.held() == (0, 0, pending_pico)
        assert on.rows("SELECT count(*) FROM receipt") == [(0,)]


def test_a_caller_is_told_early_that_its_end_cant_be_recorded_yet(fleet, monkeypatch):
    monkeypatch.setattr(module, "CLOSING_RETRY_SECONDS", (0,) * module.TRIES_BEFORE_TELLING + (60,))

    async def play(on):
        run = await on.admitted(deadline_ms=10_000)
        pieces = on.journey.deliver(run)
        await anext(pieces)
        await anext(pieces)
        on.store.close()
        on.provider.attempts[0].woken.set()
        with pytest.raises(LedgerUnavailable):
            await anext(pieces)
        assert on.journey.in_flight() == 1  # the end is still being tried

    with stage(fleet.ledger, ScriptedProvider(script=completing, waits_at=2)) as on:
        asyncio.run(play(on))


def test_draining_files_what_runs_as_unknown_where_it_does_not_end_by_itself(fleet):
    async def play(on):
        run = await on.admitted()
        pieces = on.journey.deliver(run)
        await anext(pieces)
        await on.journey.drain(0)
        assert on.journey.in_flight() == 0
        return [piece async for piece in pieces][-1].filed.receipt

    with stage(fleet.ledger, ScriptedProvider(script=completing, waits_at=2)) as on:
        receipt = asyncio.run(play(on))
    assert (receipt.status, receipt.terminal_error_code) == ("unknown", "SHUTDOWN")
