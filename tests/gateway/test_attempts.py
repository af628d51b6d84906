"""SPEC 6 through the journey that serves: retried, fallen back, each attempt accounted for."""

import asyncio

import pytest

from gateway import metrics
from gateway.policy.values import AttemptRules, RetryRule
from gateway.providers.outcomes import Completed, Rejected
from tests.gateway.attempts import (
    FAST,
    LONG,
    OTHER,
    PIECES,
    RETRIES,
    Plan,
    completing,
    failing,
    losing_sight,
    planned,
    played,
    proved,
    refusing,
    used,
    with_rules,
)
from tests.gateway.scripted import stage


def steps_of(fleet, end) -> list[tuple]:
    with stage(fleet.ledger, end.provider) as on:
        return on.rows(
            "SELECT asked, action, reason, ordinal, route_id FROM attempt_decision "
            "WHERE request_id = ? ORDER BY number",
            end.receipt.request_id,
        )


@pytest.mark.parametrize(
    ("plan", "told"),
    [(refusing(retry_after_ms=7_000), (True, 7_000)), (failing, (False, None)),
     (losing_sight, (False, None))],
)  # fmt: skip
def test_an_end_says_whether_anything_ran_and_when_to_come_again(fleet, plan, told):
    """RTY-1: of what was refused, the provider's own Retry-After."""
    with_rules(fleet.ledger, AttemptRules())

    async def play(on):
        return (await on.pieces(await on.admitted()))[1]

    with stage(fleet.ledger, planned(plan)) as on:
        end = asyncio.run(play(on))
    assert (end.nothing_ran, end.retry_after_ms) == told


@pytest.mark.parametrize("stream", [False, True])
def test_what_is_known_not_to_have_run_is_retried_and_the_retry_is_an_attempt(fleet, stream):
    """RTY-1: both attempts are rows, the first one's reservation is void, the answer is whole."""
    end = played(fleet, planned(refusing(), completing), stream=stream)
    assert end.text == "Simulated"
    assert end.attempts() == [("primary", FAST, "failed"), ("retry", FAST, "completed")]
    assert end.settled() == [("", "voided", 0), ("1", "posted", end.receipt.cost_total_pico)]
    assert (end.receipt.status, end.receipt.attempts, end.receipt.degraded_from) == (
        "completed",
        2,
        None,
    )
    assert end.receipt.cost_retry_and_hedge_pico == 0
    assert end.held == (0, 0, 0)
    assert steps_of(fleet, end) == [("ended", "retry", "NOT_RUN", 1, FAST)]


def test_without_rules_there_is_one_attempt_and_no_question(fleet):
    end = played(fleet, planned(refusing()), rules=AttemptRules())
    assert end.attempts() == [("primary", FAST, "failed")]
    assert end.receipt.terminal_error_code == "PROVIDER_OVERLOADED"
    assert steps_of(fleet, end) == []


def test_another_primary_is_tried_at_once_where_the_first_asked_to_be_left_alone(fleet):
    """RTY-2: Retry-After is obeyed; a route without one is nearer."""
    end = played(
        fleet, planned(refusing(retry_after_ms=60_000), completing), primaries=(FAST, OTHER)
    )
    assert end.attempts() == [("primary", OTHER, "failed"), ("retry", FAST, "completed")]


def test_a_retry_after_beyond_the_deadline_ends_the_request(fleet):
    """RTY-1, FBK-1: no retry in time, and the fallback's edge leads to a route in time."""
    end = played(fleet, planned(refusing(retry_after_ms=3_600_000), completing), deadline_ms=20_000)
    assert end.attempts()[1] == ("fallback", LONG, "completed")
    assert steps_of(fleet, end)[0][1:3] == ("fallback", "FALLBACK_OVERLOADED")


def test_a_failed_attempt_falls_back_along_its_edge_and_the_answer_says_so(fleet):
    """FBK-1, FBK-2: what may have run is not retried; the receipt is degraded."""
    end = played(fleet, planned(failing, completing))
    assert end.attempts() == [("primary", FAST, "failed"), ("fallback", LONG, "completed")]
    assert (end.receipt.degraded_from, end.receipt.route_id) == (FAST, LONG)
    assert end.receipt.route_reason == "FALLBACK FALLBACK_UNHEALTHY"
    assert end.receipt.cost_retry_and_hedge_pico == end.costs()[0] > 0


def test_each_attempt_is_priced_at_its_own_route(fleet):
    """CST-8: the same usage costs another amount on the other route, by another rate."""
    end = played(fleet, planned(failing, completing))
    keys = [
        each.record.rate_key for each in end.filed.attempt_events if each.record.event == "ended"
    ]
    assert keys == [each.record.identity_id for each in end.filed.attempts]
    assert (keys[0] != keys[1], end.receipt.rate_key) == (True, keys[1])
    first, second = end.costs()
    assert (first, second) == (
        end.receipt.cost_retry_and_hedge_pico,
        end.receipt.cost_output_pico + end.receipt.cost_input_pico,
    )


def test_an_unknown_attempt_may_be_replaced_and_its_money_stays_held(fleet):
    """FBK-1, LED-6: no side effects; the unknown doesn't make the answered request unknown."""
    end = played(fleet, planned(losing_sight, completing))
    assert end.attempts() == [("primary", FAST, "unknown"), ("fallback", LONG, "completed")]
    assert end.receipt.status == "completed"
    assert end.settled() == [("1", "posted", end.costs()[1])]
    assert end.held == (
        1,
        end.filed.reservations[0].record.kv_tokens,
        end.filed.reservations[0].record.cost_pico,
    )


def test_an_unknown_attempt_of_a_request_with_side_effects_is_not_replaced(fleet):
    """FBK-1: refused, and the reason is recorded."""
    end = played(fleet, planned(losing_sight), side_effects=True)
    assert end.attempts() == [("primary", FAST, "unknown")]
    assert end.receipt.status == "unknown"
    with stage(fleet.ledger, end.provider) as on:
        ((reasons,),) = on.rows("SELECT reasons FROM trace_event WHERE event LIKE '%.refused'")
    assert reasons == "MAY_HAVE_RUN retry:MAY_HAVE_RUN fallback:edge_unknown_outcome"


@pytest.mark.parametrize("reason", ["PROVIDER_REFUSED", "PROVIDER_REQUEST_TOO_LARGE"])
def test_a_clients_error_is_neither_retried_nor_taken_elsewhere(fleet, reason):
    """RTY-2."""
    end = played(fleet, planned(refusing(reason)))
    assert end.attempts() == [("primary", FAST, "failed")]
    assert steps_of(fleet, end) == [("ended", "none", "CLIENT_ERROR", None, None)]


def test_refused_optional_parameters_are_left_out_once_even_where_nothing_is_retried(fleet):
    """RTY-2: once, recorded, without what the provider refused."""
    refused = refusing("PROVIDER_REFUSED", refused_parameters=("seed",))
    end = played(fleet, planned(refused, refused), rules=AttemptRules())
    assert end.attempts() == [("primary", FAST, "failed"), ("retry", FAST, "failed")]
    assert [call.without for call in end.provider.calls] == [frozenset(), frozenset({"seed"})]
    assert [step[1:3] for step in steps_of(fleet, end)] == [
        ("retry", "OPTIONAL_PARAMETERS_REFUSED"),
        ("none", "ATTEMPTS_USED_UP"),
    ]


def test_after_the_first_token_to_the_caller_nothing_follows(fleet):
    """DLV-5."""
    end = played(fleet, planned(lambda call: [PIECES[0], *failing(call)]), stream=True)
    assert (end.text, end.receipt.status, end.receipt.attempts) == ("Sim", "failed", 1)


def test_what_a_caller_that_does_not_stream_never_saw_may_be_replaced(fleet):
    """DLV-5: nothing of the failed attempt is in the answer."""
    broken = planned(lambda call: [PIECES[0], *failing(call)], completing)
    end = played(fleet, broken)
    assert (end.text, end.receipt.status, end.receipt.attempts) == ("Simulated", "completed", 2)


def test_no_more_attempts_than_the_policy_allows(fleet):
    """FBK-1: and the last of them is the fallback's, though its primary could be retried."""
    end = played(fleet, planned(refusing(), refusing(), refusing()))
    assert [attempt[:2] for attempt in end.attempts()] == [
        ("primary", FAST), ("retry", FAST), ("fallback", LONG),
    ]  # fmt: skip
    assert steps_of(fleet, end)[-1][1:3] == ("none", "ATTEMPTS_USED_UP")
    assert (end.receipt.status, end.receipt.cost_total_pico, end.held) == ("failed", 0, (0, 0, 0))


def test_retries_stay_within_their_budget(fleet):
    """RTY-1: a share of recent traffic; here none at all."""
    none = AttemptRules(limit=3, retry=RetryRule(budget_permille=0, least_per_minute=0))
    end = played(fleet, planned(refusing()), rules=none)
    assert steps_of(fleet, end) == [("ended", "none", "RETRY_BUDGET_SPENT", None, None)]


def test_a_tenant_with_one_slot_is_retried_in_its_own_slot(fleet):
    """LED-6: the failed attempt's slot is its successor's, and the next request is accepted."""
    with_rules(fleet.ledger, RETRIES)
    provider = planned(*[refusing(), completing] * 3)

    async def play(on):
        on.journey.desk.book.change_quota("support-desk", quota_of_one(on))
        ends = []
        for _ in range(3):
            run = await on.admitted()
            ends.append((await on.pieces(run))[1].filed.receipt)
        return ends

    with stage(fleet.ledger, provider) as on:
        ends = asyncio.run(play(on))
        assert [end.attempts for end in ends] == [2, 2, 2]
        assert on.held() == (0, 0, 0)


def quota_of_one(on):
    import msgspec

    return msgspec.structs.replace(on.journey.desk.book.quota("support-desk"), in_flight_limit=1)


def test_a_cancel_during_the_pause_before_a_retry_ends_it_unsent(fleet):
    """RTY-1: the pause is the provider's Retry-After; nothing of the retry ever left."""
    with_rules(fleet.ledger, RETRIES)
    provider = planned(refusing(retry_after_ms=5_000))

    async def play(on):
        run = await on.admitted(deadline_ms=60_000)
        while len(run.legs) < 2:
            await asyncio.sleep(0)
        await on.journey.cancel(run)
        return run, (await on.pieces(run))[0]

    with stage(fleet.ledger, provider) as on:
        run, text = asyncio.run(play(on))
        held = on.held()
    end = proved(fleet.ledger, run.request_id, text, held, provider)
    assert end.attempts() == [("primary", FAST, "failed"), ("retry", FAST, "cancelled")]
    assert (end.receipt.status, end.receipt.terminal_error_code) == ("cancelled", "CLIENT_GONE")
    assert (end.receipt.cost_total_pico, end.held, len(provider.calls)) == (0, (0, 0, 0), 1)


@pytest.mark.parametrize("durable", [False, True], ids=["being recorded", "recorded"])
def test_a_stop_during_the_pause_before_a_retry_ends_it_unsent_and_costs_nothing(fleet, durable):
    """RTY-1, LED-6: what the process never sent is no unknown and owes nothing."""
    with_rules(fleet.ledger, RETRIES)
    provider = planned(refusing(retry_after_ms=5_000))

    async def play(on):
        run = await on.admitted(deadline_ms=60_000)
        while not (run.legs[0].filed if durable else len(run.legs) == 2):
            await asyncio.sleep(0)
        await on.journey.drain(0)
        return run, (await on.pieces(run))[1]

    with stage(fleet.ledger, provider) as on:
        run, ended = asyncio.run(play(on))
        held = on.held()
    end = proved(fleet.ledger, run.request_id, "", held, provider)
    assert end.attempts() == [("primary", FAST, "failed"), ("retry", FAST, "cancelled")]
    assert (end.receipt.status, end.receipt.cost_total_pico, ended.nothing_ran) == (
        "cancelled", 0, True,
    )  # fmt: skip


def test_one_deadline_covers_all_attempts(fleet):
    """RTY-2: it passes while the second attempt runs, and is passed on to it."""
    with_rules(fleet.ledger, RETRIES)
    waiting = Plan(
        script=lambda call: [Rejected(usage=used(call, 0), reason="DEADLINE_EXCEEDED")],
        waits_at=0,
    )
    provider = planned(refusing(), waiting)

    async def play(on):
        run = await on.admitted(deadline_ms=9_000)
        while len(provider.attempts) < 2:
            await asyncio.sleep(0.001)
        await on.journey.cancel(run, "DEADLINE_EXCEEDED")  # what the alarm calls
        await on.pieces(run)

    with stage(fleet.ledger, provider) as on:
        asyncio.run(play(on))
    assert provider.attempts[1].cancelled_with == ["DEADLINE_EXCEEDED"]


def test_nothing_follows_where_nothing_can_be_recorded(fleet, monkeypatch):
    """LED-6: an attempt whose row isn't durable is not sent."""
    from gateway import driving

    monkeypatch.setattr(driving, "CLOSING_RETRY_SECONDS", (0,))
    with_rules(fleet.ledger, RETRIES)
    wait = asyncio.Event()
    provider = planned(Plan(script=refusing(), waits_for=wait), completing)

    async def play(on):
        run = await on.admitted()
        while not provider.calls:
            await asyncio.sleep(0)
        on.store.close()
        wait.set()
        await run.ended.wait()
        return run

    with stage(fleet.ledger, provider) as on:
        run = asyncio.run(play(on))
        assert len(provider.calls) == 1
        assert on.held()[2] == run.legs[0].hold.cost_pico  # its end isn't recorded: money stays


@pytest.mark.parametrize(("output_tokens", "told"), [(200, False), (201, True)])
def test_a_providers_count_above_the_cap_is_billed_as_it_says_and_told(
    fleet, caplog, output_tokens, told
):
    """CST-6: it is what the provider will charge; the cap was 200."""
    over = planned(
        lambda call: [*PIECES, Completed(usage=used(call, output_tokens), finish_reason="stop")]
    )
    before = over_cap()
    end = played(fleet, over, rules=AttemptRules())
    assert (end.receipt.output_tokens, end.receipt.usage_source) == (output_tokens, "provider")
    assert ("output tokens by its provider, cap 200" in caplog.text) is told
    assert over_cap() - before == told


@pytest.mark.parametrize("source", ["estimated", "counted"])
def test_our_own_count_above_the_cap_is_billed_up_to_the_cap_and_told(fleet, caplog, source):
    """CST-6: nobody has said that more was generated; the caller agreed to 200."""

    def ended(call):
        usage = used(call, 201)
        return [*PIECES, Completed(usage=usage, usage_source=source, finish_reason="length")]

    before = over_cap()
    end = played(fleet, planned(ended), rules=AttemptRules())
    assert (end.receipt.output_tokens, end.receipt.usage_source) == (200, "estimated")
    assert "201 output tokens by our own count, cap 200" in caplog.text
    assert over_cap() - before == 1


def over_cap() -> float:
    lines = metrics.exposition().decode().splitlines()
    return sum(
        float(line.split()[-1])
        for line in lines
        if line.startswith("weighbridge_usage_over_cap_total")
    )
