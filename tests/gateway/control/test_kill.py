"""Kill the evaluator at any point: no window twice or skipped, no action done twice (SLO-8)."""

import random
import subprocess
import time

from ledger.queries.objectives import objectives
from ledger.records import SloEvaluation
from tests import forked
from tests.gateway.control.ledger_of import NOW_US, STEP_US, actions, experiment_one, pour, rows
from tests.server import environment_of
from tests.server_fixtures import Fleet

STEPS = 16
KILLS = 6


def evaluator(fleet: Fleet) -> forked.Forked:
    """A started evaluator that has said that it is ready."""
    process = forked.start(
        ("-m", "tests.gateway.control.evaluator_process", str(fleet.ledger), str(NOW_US),
         str(STEPS)),
        env=environment_of(fleet.ledger), stdout=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout.readline() == "ready\n"
    return process


def test_an_evaluator_killed_again_and_again_comes_to_what_one_left_alone_comes_to(
    fleet: Fleet, tmp_path
):
    for step in range(STEPS):
        slow = 40 if step in (1, 2, 9) else 0
        pour(fleet, experiment_one(NOW_US + (step - 1) * STEP_US, times=10, slow=slow))
    (tmp_path / "alone").mkdir()
    alone = fleet.copy_to(tmp_path / "alone")
    drawn = random.Random(3)
    for _ in range(KILLS):
        process = evaluator(fleet)
        time.sleep(drawn.uniform(0.0, 0.5))  # when it dies differs, what is true after doesn't
        process.kill()
        process.wait()
    for each in (fleet, alone):
        process = evaluator(each)
        assert process.stdout.readline() == "done\n"
        process.wait()
    found, expected = outcome(fleet), outcome(alone)
    assert found == expected
    windows, phases = found
    assert len(windows) == len(set(windows))
    ends = sorted({end_us for _, end_us, _ in windows})
    assert ends == list(range(ends[0], ends[-1] + 1, STEP_US))
    with_reader = fleet.reader()
    assert len(windows) == len(ends) * len(objectives(with_reader))
    with_reader.close()
    assert len(phases) == len(set(phases)) > 0


def outcome(fleet: Fleet):
    """(each evaluation, each phase of an action), in the order of the chain."""
    windows = [(one.slo_id, one.end_us, one.state) for one in rows(fleet, SloEvaluation)]
    return windows, [(one.episode, one.phase) for one in actions(fleet)]
