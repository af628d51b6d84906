"""RTY-2: a dead endpoint is dropped and comes back through a probe, visibly."""

import asyncio
import contextlib

import pytest

from gateway.policy.values import AttemptRules, BreakerRule
from gateway.replaying import Replayer, tally
from gateway.submission import Refusal
from ledger.reading import connect_read_only
from tests.gateway.attempts import FAST, LONG, OTHER, completing, planned, refusing, with_rules
from tests.gateway.scripted import stage, submission
from tests.policy_factories import snapshot

BREAKER = BreakerRule(failures=3, window_us=60_000_000, open_us=10_000_000)
CUT = AttemptRules(breaker=BREAKER)
GONE = refusing("PROVIDER_UNREACHABLE")


async def statuses(on, count: int) -> list[tuple[str, str]]:
    ends = []
    for _ in range(count):
        run = await on.admitted()
        receipt = (await on.pieces(run))[1].filed.receipt
        ends.append((receipt.route_id, receipt.status))
    return ends


def states(on) -> dict[str, bool]:
    return {
        each.route_id: each.healthy
        for each in on.journey.desk.book.route_states()
        if each.route_id in (FAST, OTHER)
    }


def test_a_dead_endpoint_is_dropped_and_a_probe_brings_it_back_and_both_are_recorded(fleet):
    with_rules(fleet.ledger, CUT, FAST, OTHER)
    provider = planned(GONE, GONE, GONE, completing, completing)

    async def play(on):
        health = on.journey.health
        ends = await statuses(on, 4)  # the first route three times, then the other one
        assert states(on) == {FAST: True, OTHER: False}
        on.clock.set_us(on.clock.now_us() + BREAKER.open_us)
        health.tick(on.clock.now_us())
        assert health.states()[OTHER] == "half_open"
        ends += await statuses(on, 1)
        assert health.states()[OTHER] == "closed"
        on.store.flush()
        return ends

    with stage(fleet.ledger, provider) as on:
        ends = asyncio.run(play(on))
        assert ends == [
            *[(OTHER, "failed")] * 3,
            (FAST, "completed"),
            (OTHER, "completed"),
        ]
        actions = on.rows(
            "SELECT subject, actor, reason, evidence != '', json_extract(after_json, '$.state') "
            "FROM control_action WHERE action = 'route_breaker' ORDER BY seq"
        )
        assert actions == [
            (OTHER, "circuit breaker", "PROVIDER_UNREACHABLE", 1, "open"),
            (OTHER, "circuit breaker", "its pause is over", 0, "half_open"),
            (OTHER, "circuit breaker", "completed", 1, "closed"),
        ]


def test_while_a_probe_is_out_no_second_request_is_let_through(fleet):
    with_rules(fleet.ledger, CUT, FAST)

    async def play(on):
        await statuses(on, 3)
        on.clock.set_us(on.clock.now_us() + BREAKER.open_us)
        on.journey.health.tick(on.clock.now_us())
        probe = await on.admitted()
        assert not states(on)[FAST]
        await on.pieces(probe)
        assert states(on)[FAST]

    with stage(fleet.ledger, planned(GONE, GONE, GONE, completing)) as on:
        asyncio.run(play(on))


@pytest.mark.parametrize(
    "refusal", ["PROVIDER_OVERLOADED", "PROVIDER_RATE_LIMITED", "PROVIDER_REFUSED"]
)
def test_full_queues_and_clients_errors_cut_nothing(fleet, refusal):
    with_rules(fleet.ledger, CUT, FAST)
    with stage(fleet.ledger, planned(*[refusing(refusal)] * 6)) as on:
        asyncio.run(statuses(on, 6))
        assert states(on)[FAST]


def test_a_drained_route_takes_nothing_new_while_what_runs_on_it_ends(fleet):
    from tests.gateway.attempts import Plan

    with_rules(fleet.ledger, CUT, FAST, OTHER)
    wait = asyncio.Event()
    provider = planned(Plan(script=completing, waits_for=wait), completing)

    async def play(on):
        running = await on.admitted()
        on.journey.desk.book.set_drained((OTHER,))
        assert on.journey.health.states()[OTHER] == "drained"
        ends = await statuses(on, 1)
        wait.set()
        ended = (await on.pieces(running))[1].filed.receipt
        return ends, (ended.route_id, ended.status)

    with stage(fleet.ledger, provider) as on:
        ends, ended = asyncio.run(play(on))
    assert (ends, ended) == ([(FAST, "completed")], (OTHER, "completed"))


@pytest.mark.parametrize("when_all_unhealthy", ["refuse", "try_all"])
def test_what_happens_when_every_route_is_cut_is_the_policys_word(fleet, when_all_unhealthy):
    rule = BreakerRule(failures=1, open_us=10_000_000, when_all_unhealthy=when_all_unhealthy)
    with_rules(fleet.ledger, AttemptRules(breaker=rule), FAST, edges=())

    async def play(on):
        for route_id in on.journey.desk.configuration.routes:
            on.journey.health.ended(
                route_id, "unknown", "PROVIDER_SILENT", None, evidence="x", now_us=on.clock.now_us()
            )
        return await on.journey.admit(submission())

    with stage(fleet.ledger, planned(completing)) as on:
        found = asyncio.run(play(on))
    if when_all_unhealthy == "refuse":
        assert isinstance(found, Refusal)
        assert (found.reason_code, found.http_status) == ("NO_CAPABLE_ROUTE", 503)
    else:
        assert not isinstance(found, Refusal)


def cooling(on) -> set[str]:
    return {each.route_id for each in on.journey.desk.book.route_states() if each.cooling}


def test_a_new_request_avoids_a_route_that_asked_to_be_left_alone(fleet):
    """RTY-2: as long as another primary serves, until its Retry-After is over."""
    with_rules(fleet.ledger, AttemptRules(), FAST, OTHER)
    busy = refusing(retry_after_ms=60_000)

    async def play(on):
        ends = await statuses(on, 3)
        assert cooling(on) == {OTHER}
        on.clock.set_us(on.clock.now_us() + 60_000_000)
        on.journey.health.tick(on.clock.now_us())
        for each in on.journey.desk.book.route_states():
            on.journey.desk.book.observe(
                snapshot(each.route_id, observed_at_us=on.clock.now_us(), revision=9)
            )
        return ends + await statuses(on, 1)

    with stage(fleet.ledger, planned(busy, completing, completing, completing)) as on:
        ends = asyncio.run(play(on))
        assert cooling(on) == set()
    assert ends == [
        (OTHER, "failed"), (FAST, "completed"), (FAST, "completed"), (OTHER, "completed"),
    ]  # fmt: skip
    with contextlib.closing(connect_read_only(fleet.ledger)) as reader:
        again = tally(Replayer(reader).all(), keep=1)
    assert (again.different, again.not_comparable) == (0, 0), again.first_different


def test_a_cooling_primary_gives_way_to_its_fallback_as_an_overloaded_one(fleet):
    """RTY-2, FBK-1: along a declared edge, and the answer says that it is degraded."""
    with_rules(fleet.ledger, AttemptRules(), FAST)

    async def play(on):
        await statuses(on, 1)
        run = await on.admitted()
        return (await on.pieces(run))[1].filed.receipt

    with stage(fleet.ledger, planned(refusing(retry_after_ms=60_000), completing)) as on:
        receipt = asyncio.run(play(on))
    assert (receipt.route_id, receipt.degraded_from) == (LONG, FAST)
    assert "FALLBACK_OVERLOADED" in receipt.route_reason


def test_where_nothing_else_serves_a_cooling_route_does_and_its_success_ends_the_cooldown(fleet):
    """RTY-2: one busy provider can't cut a model off."""
    with_rules(fleet.ledger, AttemptRules(), FAST, edges=())

    async def play(on):
        ends = await statuses(on, 1)
        assert cooling(on) == {FAST}
        ends += await statuses(on, 1)
        assert cooling(on) == set()
        return ends

    with stage(fleet.ledger, planned(refusing(retry_after_ms=60_000), completing)) as on:
        ends = asyncio.run(play(on))
    assert ends == [(FAST, "failed"), (FAST, "completed")]


def test_a_success_of_what_was_sent_before_does_not_end_a_cooldown(fleet):
    with_rules(fleet.ledger, AttemptRules(), FAST, OTHER)
    with stage(fleet.ledger, planned()) as on:
        health, now_us = on.journey.health, on.clock.now_us()
        health.ended(FAST, "not_run", "PROVIDER_OVERLOADED", 5_000, evidence="a", now_us=now_us)
        health.ended(FAST, "completed", None, None, evidence="b", now_us=now_us, sent_us=now_us - 1)
        assert cooling(on) == {FAST}
        health.ended(FAST, "completed", None, None, evidence="c", now_us=now_us, sent_us=now_us)
        assert cooling(on) == set()
