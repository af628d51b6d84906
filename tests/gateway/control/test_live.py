"""The control plane in a running server: what it publishes decides the next request."""

import contextlib

from gateway.clock import SystemClock
from gateway.operations import anywhere
from gateway.operations.base import Actor, Done, Operation
from gateway.operations.releases import DecideRollout, ImportEvaluations, StartRollout
from gateway.replaying import Replayer, tally
from ledger.records import Receipt, RolloutEvaluation, SloEvaluation
from tests.gateway.control.ledger_of import MINUTE_US, experiment_one, perform, pour, rows
from tests.gateway.control.rollout_of import (
    ROLLOUT,
    WINDOW_US,
    arm_receipts,
    evaluations,
    plan,
    ready,
    release,
)
from tests.server import Server
from tests.server_fixtures import Fleet
from tests.system.watching import until

ADMIN = Actor(name="ada", role="admin", via="console")
TENANT = "support-desk"
REQUESTS = 12


def performed(fleet: Fleet, operation: Operation) -> None:
    done = anywhere.perform(fleet.ledger, operation, ADMIN)
    assert isinstance(done, Done), done


def served_by(server: Server, fleet: Fleet) -> list[tuple[str | None, str | None]]:
    """(route, arm) of so many more requests, as their receipts say."""
    known = {one.request_id for one in rows(fleet, Receipt)}
    for _ in range(REQUESTS):
        assert server.chat("hello", key=server.keys[TENANT], max_tokens=4)[0] == 200
    fresh = [one for one in rows(fleet, Receipt) if one.request_id not in known]
    assert len(fresh) == REQUESTS
    return [(one.route_id, one.arm) for one in fresh]


def test_after_a_rollback_no_request_goes_to_the_canary_and_every_decision_replays(fleet: Fleet):
    """REL-3, RTE-3, on the data plane: a share is published, taken back, and both replayed."""
    with fleet.serving() as server:
        performed(fleet, ImportEvaluations(text=evaluations()))
        performed(fleet, release())
        all_but_one = plan(steps_permille=(999,))
        performed(fleet, StartRollout(rollout=all_but_one, reason="to see it served"))
        assert {arm for _, arm in served_by(server, fleet)} == {"canary"}
        performed(
            fleet, DecideRollout(rollout_id=ROLLOUT, decision="roll_back", reason="enough seen")
        )
        after = served_by(server, fleet)
        assert "fast-v3" not in {route for route, _ in after}
        assert {arm for _, arm in after} == {None}
    steps = [one.decision for one in rows(fleet, RolloutEvaluation)]
    assert steps == ["start", "roll_back"]
    with contextlib.closing(fleet.reader()) as reader:
        compared = tally(Replayer(reader).all(), keep=1)
    assert compared.identical == compared.total == 2 * REQUESTS


def test_a_server_rolls_a_worse_tail_back_by_itself_and_serves_no_canary(fleet: Fleet):
    """REL-3: two windows that closed while nobody served; the first pass acts, and it holds."""
    begun_us = SystemClock().now_us() // MINUTE_US * MINUTE_US - 2 * WINDOW_US - 5 * MINUTE_US
    ready(fleet, begun_us)
    perform(fleet, StartRollout(rollout=plan(), reason="new build"), begun_us)
    for number in range(2):
        pour(fleet, arm_receipts(begun_us + number * WINDOW_US, seed=number + 1, slow=0.06))
    with fleet.serving() as server:
        until(lambda: rows(fleet, RolloutEvaluation)[-1].decision == "roll_back", "it goes back")
        assert {arm for _, arm in served_by(server, fleet)} == {None}
    steps = [(one.decision, one.actor) for one in rows(fleet, RolloutEvaluation)]
    assert steps == [
        ("start", "console:ada"),
        ("continue", "evaluator"),
        ("roll_back", "evaluator"),
    ]


def test_the_server_evaluates_by_itself_and_tells_its_metrics(fleet: Fleet):
    pour(fleet, experiment_one(SystemClock().now_us() - 20 * MINUTE_US))
    with fleet.serving() as server:
        until(lambda: rows(fleet, SloEvaluation) != [], "windows are evaluated")
        told = b'weighbridge_slo_state{slo="capacity",state="OK"} 1.0'
        until(lambda: told in server.call("/metrics")[2], "the metrics tell the state")
    assert {one.slo_id for one in rows(fleet, SloEvaluation)} >= {"capacity", "main-path"}
