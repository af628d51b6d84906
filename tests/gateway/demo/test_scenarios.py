"""DIA-2: over many seeds each fault is diagnosed as its own row, and a healthy fleet as nothing."""

import os
from collections import Counter

import pytest

from gateway.demo.scenario_run import run
from gateway.demo.scenarios import SCENARIOS
from gateway.replaying import Replayer, tally
from ledger.diagnosis import ROWS
from ledger.reading import connect_read_only

LONG_SEEDS = 20
RIGHT_SHARE = 0.95


def copied(ledger_template, tmp_path, name):
    path = tmp_path / f"{name}.sqlite3"
    path.write_bytes(ledger_template.read_bytes())
    return path


def test_there_is_a_scenario_for_each_row_and_one_without_a_fault():
    assert sorted(one.finds for one in SCENARIOS.values() if one.finds) == sorted(ROWS)
    assert [one.name for one in SCENARIOS.values() if one.finds is None] == ["healthy"]


def test_a_healthy_fleet_is_diagnosed_as_nothing(ledger_template, tmp_path):
    """Each of the others is run by tests/gateway/pages/test_now.py, up to its proof."""
    result = run(copied(ledger_template, tmp_path, "healthy"), SCENARIOS["healthy"], seed=4)
    assert (result.found, result.findings) == ("healthy", ())


def test_the_same_seed_gives_the_same_evidence_and_every_decision_replays(
    ledger_template, tmp_path
):
    first, second = (
        run(copied(ledger_template, tmp_path, name), SCENARIOS["billed-timeouts"], seed=9)
        for name in ("first", "second")
    )
    assert (first.before, first.now) == (second.before, second.now)
    connection = connect_read_only(tmp_path / "first.sqlite3")
    compared = tally(Replayer(connection).all(), keep=1)
    connection.close()
    assert compared.identical == compared.total > 0


@pytest.mark.slow
@pytest.mark.skipif("SCENARIO_SEEDS" not in os.environ, reason="minutes: make diagnosis-long")
def test_over_twenty_seeds_the_right_row_is_on_top_in_95_of_100(ledger_template, tmp_path):
    """The confusion matrix of nine scenarios and nine diagnoses; a healthy one raises none."""
    matrix = {name: Counter() for name in SCENARIOS}
    for name, scenario in SCENARIOS.items():
        for seed in range(LONG_SEEDS):
            path = copied(ledger_template, tmp_path, f"{name}-{seed}")
            matrix[name][run(path, scenario, seed).found] += 1
            path.unlink()
    for name, counted in matrix.items():
        print(f"{name:<20}{dict(counted)}")
    wrong = {
        name: dict(counted)
        for name, counted in matrix.items()
        if counted[SCENARIOS[name].finds or "healthy"] < RIGHT_SHARE * LONG_SEEDS
    }
    assert wrong == {}
    assert set(matrix["healthy"]) == {"healthy"}
