"""ADM-8: 1.2 times the load that can be sustained, for ten virtual minutes."""

from pathlib import Path

from tests.gateway.overload import (
    DEADLINES_US,
    MINUTE_US,
    START_US,
    Overload,
    arrivals,
    overloaded,
)
from tests.server_fixtures import Fleet

MINUTES = 10
SATURATING_PER_SECOND = 20
OVER = 1.2


def sustainable_per_second(fleet: Fleet) -> float:
    """The arrivals a second whose tokens the saturated route completes."""
    saturated = overloaded(fleet, SATURATING_PER_SECOND, 1)
    sample = list(arrivals(SATURATING_PER_SECOND, 1, seed=5))
    tokens = sum(each.input_tokens + each.output_tokens for each in sample) / len(sample)
    return saturated.tokens_per_second(1) / tokens


def shed_share(run: Overload, priority: str) -> float:
    all_of_it = run.by_priority(priority)
    return sum(each.status == "rejected" for each in all_of_it) / len(all_of_it)


def test_at_a_fifth_more_than_is_sustainable_interactive_requests_meet_their_deadlines(
    fleet: Fleet, tmp_path: Path
):
    (tmp_path / "saturated").mkdir()
    per_second = OVER * sustainable_per_second(fleet.copy_to(tmp_path / "saturated"))
    run = overloaded(fleet, per_second, MINUTES)
    assert len(run.receipts) > 1_000

    accepted = [each for each in run.by_priority("interactive") if each.status != "rejected"]
    on_time = [
        each
        for each in accepted
        if each.status == "completed" and (each.e2e_us or 0) <= DEADLINES_US["interactive"]
    ]
    assert len(accepted) > 500
    assert len(on_time) >= 0.99 * len(accepted)

    interactive, normal, batch = (
        shed_share(run, priority) for priority in ("interactive", "normal", "batch")
    )
    assert interactive < normal < batch
    assert batch > 3 * interactive
    codes = {each.terminal_error_code for each in run.receipts if each.status == "rejected"}
    assert codes == {"CAPACITY_SHED"}

    done = [each for each in run.by_priority("batch") if each.status == "completed"]
    minutes = {((each.ended_at_us or 0) - START_US) // MINUTE_US for each in done}
    assert minutes >= set(range(MINUTES)), "batch went without in some minute"

    assert 0 < run.longest_queue < run.queue_limit
    assert run.held_at_the_end == (0, 0, 0)
