"""LED-6: whatever became of a request, the next one of a tenant with one slot is accepted."""

import asyncio

import msgspec
import pytest

from gateway import driving
from gateway.recovery import unknown_receipts
from gateway.submission import Refusal
from tests.gateway.attempts import (
    RETRIES,
    Plan,
    cancelled_after,
    completing,
    failing,
    losing_sight,
    planned,
    refusing,
    with_rules,
)
from tests.gateway.scripted import stage, submission


def with_one_slot(on) -> None:
    book = on.journey.desk.book
    quota = book.quota("support-desk")
    book.change_quota("support-desk", msgspec.structs.replace(quota, in_flight_limit=1))


async def completed_next(on) -> str:
    run = await on.admitted()
    return (await on.pieces(run))[1].filed.receipt.status


@pytest.mark.parametrize(
    "plans",
    [
        [refusing("PROVIDER_REFUSED")],
        [refusing(), refusing(), refusing()],
        [failing, failing],
        [Plan(script=cancelled_after(0), waits_at=0)],
        [Plan(script=cancelled_after(2), waits_at=2)],
    ],
)
@pytest.mark.parametrize("reason", ["CLIENT_GONE", "DEADLINE_EXCEEDED"])
def test_after_a_refused_failed_cancelled_or_timed_out_request_the_next_one_is_accepted(
    fleet, plans, reason
):
    with_rules(fleet.ledger, RETRIES)
    provider = planned(*plans, completing)

    async def play(on):
        with_one_slot(on)
        run = await on.admitted()
        if isinstance(plans[0], Plan):
            while not provider.calls:
                await asyncio.sleep(0)
            await on.journey.cancel(run, reason)  # what a disconnect and the alarm call
        await on.pieces(run)
        return await completed_next(on), on.held()

    with stage(fleet.ledger, provider) as on:
        assert asyncio.run(play(on)) == ("completed", (0, 0, 0))


def test_after_a_malformed_request_the_next_one_is_accepted(fleet):
    provider = planned(completing)

    async def play(on):
        with_one_slot(on)
        refusal = await on.journey.admit(submission(max_output_tokens=0))
        assert isinstance(refusal, Refusal)
        return await completed_next(on), on.held()

    with stage(fleet.ledger, provider) as on:
        assert asyncio.run(play(on)) == ("completed", (0, 0, 0))


def test_after_an_unknown_the_slot_is_free_once_its_bound_has_passed_and_not_before(
    fleet, monkeypatch
):
    monkeypatch.setattr(driving, "CANCEL_SECONDS", 0.01)
    provider = planned(losing_sight, completing)

    async def play(on):
        with_one_slot(on)
        await on.pieces(await on.admitted(deadline_ms=20_000))
        refusal = await on.journey.admit(submission())
        assert isinstance(refusal, Refusal)
        assert refusal.reason_code == "TENANT_CONCURRENCY_LIMIT"
        on.journey.desk.book.give_back_due(on.clock.now_us() + 80_000_000)
        return await completed_next(on), on.held()[:2]

    with stage(fleet.ledger, provider) as on:
        assert asyncio.run(play(on)) == ("completed", (0, 0))


def test_after_a_crash_the_next_request_is_accepted_and_the_money_of_the_unknown_is_held(fleet):
    """The process that had the transport is gone: slot and KV are free at once."""
    never = planned(Plan(script=completing, waits_for=asyncio.Event()))

    async def crash(on):
        with_one_slot(on)
        await on.admitted()
        while not never.calls:
            await asyncio.sleep(0)
        for rows in unknown_receipts(fleet.reader(), on.clock.now_us()):
            await on.store.commit(rows)

    async def restart(on):
        with_one_slot(on)
        for route_id in on.journey.desk.configuration.routes:
            on.journey.desk.snapshot_filed(route_id, 1)
        pending_pico = on.held()[2]
        return await completed_next(on), on.held(), pending_pico

    with stage(fleet.ledger, never) as on:
        asyncio.run(crash(on))
    with stage(fleet.ledger, planned(completing)) as on:
        status, held, pending_pico = asyncio.run(restart(on))
    assert (status, held) == ("completed", (0, 0, pending_pico))
    assert pending_pico > 0
