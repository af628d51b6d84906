"""HDG-1 through the journey that serves: the first valid result wins, its loser is accounted."""

import asyncio

import pytest

from gateway import driving
from gateway.policy.hedging import Loser, gate
from gateway.policy.values import AttemptRules, HedgeRule
from gateway.providers.outcomes import Completed
from tests.gateway.attempts import (
    FAST,
    OTHER,
    PIECES,
    QUICK,
    Plan,
    cancelled_after,
    completing,
    failing,
    planned,
    played,
    proved,
    refusing,
    used,
    with_rules,
)
from tests.gateway.scripted import stage

HEDGED = AttemptRules(limit=2, retry=QUICK, hedge=HedgeRule(delay_us=1_000))
BOTH = (FAST, OTHER)


@pytest.mark.parametrize("pieces", [0, 1, 2])
def test_a_loser_is_cancelled_before_and_after_its_first_token_and_accounted_for(fleet, pieces):
    """Loser cancelled before and after its first token: costs and slots as SPEC HDG-1."""
    end = played(
        fleet,
        planned(Plan(script=cancelled_after(pieces), waits_at=pieces), completing),
        rules=HEDGED,
        primaries=BOTH,
    )
    assert end.text == "Simulated"
    assert end.attempts() == [("primary", OTHER, "cancelled"), ("hedge", FAST, "completed")]
    assert end.provider.attempts[0].cancelled_with == ["HEDGE_LOST"]
    lost, won = end.costs()
    assert end.receipt.cost_retry_and_hedge_pico == lost
    assert end.receipt.cost_total_pico == lost + won
    assert lost == end.receipt.cost_input_pico + sum(p.tokens for p in PIECES[:pieces]) * 8 * 10**6
    assert end.held == (0, 0, 0)
    assert [kind for _, kind, _ in end.settled()] == ["posted", "posted"]
    assert (end.receipt.status, end.receipt.degraded_from) == ("completed", None)


def test_a_first_token_of_the_first_attempt_cancels_the_hedge(fleet):
    """HDG-1: streamed, the first token wins; the hedge generated nothing that is delivered."""
    with_rules(fleet.ledger, HEDGED, *BOTH)
    wait = asyncio.Event()
    provider = planned(
        Plan(script=completing, waits_for=wait), Plan(script=cancelled_after(0), waits_at=0)
    )

    async def play(on):
        run = await on.admitted(stream=True)
        while len(provider.calls) < 2:
            await asyncio.sleep(0.001)
        wait.set()
        return run, (await on.pieces(run))[0]

    with stage(fleet.ledger, provider) as on:
        run, text = asyncio.run(play(on))
        held = on.held()
    end = proved(fleet.ledger, run.request_id, text, held, provider)
    assert (end.text, held) == ("Simulated", (0, 0, 0))
    assert end.attempts() == [("primary", OTHER, "completed"), ("hedge", FAST, "cancelled")]
    assert provider.attempts[1].cancelled_with == ["HEDGE_LOST"]


def test_an_uncancelled_hedge_ends_unknown_with_its_money_held_and_fails_the_gate(
    fleet, monkeypatch, caplog
):
    """The source's extended experiment: a hedge whose copy is not cancelled fails cost and slots.

    The answered request is completed all the same: its loser's end is what is unknown.
    """
    monkeypatch.setattr(driving, "LOSER_SECONDS", 0.01)
    deaf = Plan(script=cancelled_after(1), waits_at=1, deaf=True)
    end = played(fleet, planned(deaf, completing), rules=HEDGED, primaries=BOTH)
    assert end.attempts() == [("primary", OTHER, "unknown"), ("hedge", FAST, "completed")]
    assert (end.receipt.status, end.text) == ("completed", "Simulated")
    reserved = end.filed.reservations[0].record
    assert end.held == (1, reserved.kv_tokens, reserved.cost_pico)
    assert end.settled() == [("1", "posted", end.costs()[1])]
    loser = Loser(
        attempt_id=f"{end.receipt.request_id}.0",
        cancel_sent=True,
        acknowledged=False,
        slots_held=end.held[0],
        cost_pico=reserved.cost_pico,
    )
    assert "still holds 1 slot" in caplog.text  # the journey says the same
    assert [line.partition(": ")[2] for line in gate((loser,))] == [
        f"its cost of {reserved.cost_pico} pico is still open",
        "it still holds 1 slot",
    ]
    cancelled = Loser(
        attempt_id="x.0", cancel_sent=True, acknowledged=True, slots_held=0, cost_pico=7
    )
    assert gate((cancelled,)) == ()
    forgotten = Loser(
        attempt_id="x.0", cancel_sent=False, acknowledged=False, slots_held=1, cost_pico=7
    )
    assert len(gate((forgotten,))) == 3


def test_an_unknown_losers_slot_and_kv_return_when_its_bound_has_passed(fleet, monkeypatch):
    monkeypatch.setattr(driving, "LOSER_SECONDS", 0.01)
    with_rules(fleet.ledger, HEDGED, *BOTH)
    provider = planned(Plan(script=cancelled_after(0), waits_at=0, deaf=True), completing)

    async def play(on):
        await on.pieces(await on.admitted(deadline_ms=10_000))

    with stage(fleet.ledger, provider) as on:
        asyncio.run(play(on))
        slots, _, pending_pico = on.held()
        assert (slots, pending_pico > 0) == (1, True)
        on.journey.desk.book.give_back_due(on.clock.now_us() + 70_000_000)
        assert on.held() == (0, 0, pending_pico)


def test_a_request_with_side_effects_is_never_hedged(fleet):
    with_rules(fleet.ledger, HEDGED, *BOTH)
    wait = asyncio.Event()
    provider = planned(Plan(script=completing, waits_for=wait))

    async def play(on):
        run = await on.admitted(side_effects=True)
        await asyncio.sleep(0.02)  # twenty times the delay
        wait.set()
        return (await on.pieces(run))[1].filed.receipt

    with stage(fleet.ledger, provider) as on:
        assert asyncio.run(play(on)).attempts == 1


def test_where_no_other_route_is_there_the_refusal_is_recorded_and_the_first_one_goes_on(fleet):
    with_rules(fleet.ledger, HEDGED, FAST)
    wait = asyncio.Event()
    provider = planned(Plan(script=completing, waits_for=wait))

    async def play(on):
        run = await on.admitted()
        while not on.rows("SELECT 1 FROM attempt_decision"):
            await asyncio.sleep(0.001)
        wait.set()
        return run, (await on.pieces(run))[0]

    with stage(fleet.ledger, provider) as on:
        run, text = asyncio.run(play(on))
        held = on.held()
        assert on.rows("SELECT asked, action, reason FROM attempt_decision") == [
            ("hedge_due", "none", "NO_OTHER_ROUTE")
        ]
    assert proved(fleet.ledger, run.request_id, text, held, provider).receipt.attempts == 1


def test_an_invalid_result_does_not_win_while_another_attempt_runs(fleet):
    """HDG-1: the first valid result wins; an answer against the caller's schema is none."""

    def invalid(call):
        return [*PIECES, Completed(usage=used(call), finish_reason="stop", schema_valid=False)]

    def valid(call):
        return [*PIECES, Completed(usage=used(call), finish_reason="stop", schema_valid=True)]

    with_rules(fleet.ledger, HEDGED, *BOTH)
    first, second = asyncio.Event(), asyncio.Event()
    provider = planned(Plan(script=invalid, waits_for=first), Plan(script=valid, waits_for=second))

    async def play(on):
        run = await on.admitted(schema={"type": "object"})
        while len(provider.calls) < 2:
            await asyncio.sleep(0.001)
        first.set()
        while run.legs[0].outcome is None:
            await asyncio.sleep(0)
        second.set()
        return run, (await on.pieces(run))[0]

    with stage(fleet.ledger, provider) as on:
        run, text = asyncio.run(play(on))
        held = on.held()
    end = proved(fleet.ledger, run.request_id, text, held, provider)
    assert (end.receipt.schema_valid, end.receipt.route_id, held) == (1, FAST, (0, 0, 0))


def test_both_attempts_that_fail_end_the_request_once(fleet):
    with_rules(fleet.ledger, HEDGED, *BOTH)
    wait = asyncio.Event()
    provider = planned(Plan(script=failing, waits_for=wait), failing)

    async def play(on):
        run = await on.admitted()
        while len(provider.calls) < 2:
            await asyncio.sleep(0.001)
        wait.set()
        return run, (await on.pieces(run))[0]

    with stage(fleet.ledger, provider) as on:
        run, text = asyncio.run(play(on))
        held = on.held()
    end = proved(fleet.ledger, run.request_id, text, held, provider)
    assert (end.receipt.status, end.receipt.attempts, held) == ("failed", 2, (0, 0, 0))


def test_a_cancel_reaches_every_running_attempt(fleet):
    """DLV-2: on a disconnect, both are told."""
    with_rules(fleet.ledger, HEDGED, *BOTH)
    provider = planned(
        Plan(script=cancelled_after(0), waits_at=0), Plan(script=cancelled_after(0), waits_at=0)
    )

    async def play(on):
        run = await on.admitted()
        while len(provider.calls) < 2:
            await asyncio.sleep(0.001)
        await on.journey.cancel(run)
        return run, (await on.pieces(run))[0]

    with stage(fleet.ledger, provider) as on:
        run, text = asyncio.run(play(on))
        held = on.held()
    end = proved(fleet.ledger, run.request_id, text, held, provider)
    assert [each.cancelled_with for each in provider.attempts] == [["CLIENT_GONE"]] * 2
    assert (end.receipt.status, held) == ("cancelled", (0, 0, 0))


def test_killed_between_two_attempts_every_one_without_an_end_is_unknown_at_the_next_start(fleet):
    """LED-1, LED-6: what had ended keeps its end; the request is unknown, its money held."""
    from gateway.recovery import unknown_receipts
    from ledger.queries import holds

    with_rules(fleet.ledger, AttemptRules(limit=3, retry=QUICK), *BOTH)
    never = Plan(script=completing, waits_for=asyncio.Event())
    provider = planned(refusing(), never)

    async def play(on):
        run = await on.admitted()
        while len(provider.calls) < 2:
            await asyncio.sleep(0.001)
        # As a kill leaves it: the process is gone, and with it everything but the ledger.
        rows = unknown_receipts(fleet.reader(), on.clock.now_us())
        await on.store.commit(rows[0])
        again = unknown_receipts(fleet.reader(), on.clock.now_us())
        return run.request_id, len(rows), again

    with stage(fleet.ledger, provider) as on:
        request_id, recovered, again = asyncio.run(play(on))
    assert (recovered, again) == (1, [])
    (held,) = holds.open_reservations(fleet.reader())
    assert held.reservation_id == f"{request_id}.1"
    end = proved(fleet.ledger, request_id, "", (0, 0, held.cost_pico), provider)
    assert end.attempts() == [("primary", OTHER, "failed"), ("retry", FAST, "unknown")]
    assert (end.receipt.status, end.receipt.terminal_error_code) == ("unknown", "PROCESS_ENDED")
    assert (end.receipt.attempts, end.receipt.route_id) == (2, FAST)
