"""SCH-2: a backend's own metrics as a capacity snapshot."""

from hypothesis import given
from hypothesis import strategies as st

from gateway.policy.values import CapacitySnapshot
from gateway.providers.openai_metrics import QueueBound, Watch, read_metrics
from tests.faults.server import METRICS
from tests.gateway.providers.calls import route

NOW_US = 1_800_000_000_000_000
SECOND_US = 1_000_000


def vllm(waiting=2.0, running=3.0, share=0.25, generated=1_200.0, prompts=True) -> bytes:
    text = METRICS.replace('waiting{engine="0",model_name="faulty"} 2.0', f"waiting {waiting}")
    text = text.replace('running{engine="0",model_name="faulty"} 3.0', f"running {running}")
    text = text.replace('perc{engine="0",model_name="faulty"} 0.25', f"perc {share}")
    text = text.replace("1200.0", str(generated))
    return (text if prompts else text.replace("request_prompt", "other")).encode()


def watch(kv_tokens=1_000, first_revision=5) -> Watch:
    return Watch(route(), kv_tokens, first_revision)


def test_vllms_metrics_become_a_snapshot_with_its_age_and_revision():
    watching = watch()
    watching.take(METRICS.encode(), NOW_US)
    assert watching.snapshot == CapacitySnapshot(
        route_id="real-1",
        revision=5,
        observed_at_us=NOW_US,
        waiting_requests=2,
        running_requests=3,
        waiting_input_tokens=200,  # two of the mean prompt, 900 / 9
        reserved_kv_tokens=250,
        free_kv_tokens=750,
        recent_output_tokens_per_second=0,
        queue_p95_us=0,
        oldest_wait_us=0,
    )


def test_each_reading_has_its_own_revision_and_tells_the_rate_since_the_last():
    watching = watch()
    watching.take(vllm(), NOW_US)
    watching.take(vllm(generated=2_400.0), NOW_US + 2 * SECOND_US)
    assert watching.snapshot.revision == 6
    assert watching.snapshot.recent_output_tokens_per_second == 600
    watching.take(vllm(generated=10.0), NOW_US + 3 * SECOND_US)  # the backend was restarted
    assert watching.snapshot.recent_output_tokens_per_second == 0


def test_the_oldest_wait_is_bounded_by_the_time_since_nobody_waited():
    watching = watch()
    waits = []
    for second, waiting in enumerate([0, 1, 3, 0, 2]):
        watching.take(vllm(waiting=float(waiting)), NOW_US + second * SECOND_US)
        waits.append(watching.snapshot.oldest_wait_us // SECOND_US)
    assert waits == [0, 1, 2, 0, 1]


def loaded(finished: float, waiting=1.0, running=3.0, reason="stop") -> bytes:
    more = f'vllm:request_success_total{{engine="0",finished_reason="{reason}"}} {finished}\n'
    return vllm(waiting=waiting, running=running) + more.encode()


def waits_of(*readings: bytes) -> list[int]:
    watching, waits = watch(), []
    for second, text in enumerate(readings):
        watching.take(text, NOW_US + second * SECOND_US)
        waits.append(watching.snapshot.oldest_wait_us // SECOND_US)
    return waits


def test_a_steady_queue_that_moves_never_grows_old():
    """SCH-2: one waits all the time, and one a second finishes: nobody waits longer than that."""
    assert waits_of(*(loaded(second) for second in range(60))) == [0] + [1] * 59


def test_who_left_the_queue_is_who_finished_or_began_to_run():
    readings = (loaded(0, 2), loaded(1, 2), loaded(1, 2, running=4.0), loaded(1, 2, running=5.0))
    assert waits_of(*readings) == [0, 1, 2, 2]


def test_a_queue_that_stands_still_grows_old_whatever_is_aborted():
    assert waits_of(*(loaded(9, reason="length") for _ in range(40)))[-1] == 39
    assert waits_of(*(loaded(second, reason="abort") for second in range(40)))[-1] == 39


def test_a_restarted_backend_has_a_new_queue():
    assert waits_of(loaded(9), loaded(9), loaded(0), loaded(0)) == [0, 1, 0, 1]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=40))
def test_no_request_of_a_real_queue_waits_longer_than_the_bound(seconds):
    """SCH-2: each second some arrive and the first ones begin; the bound is never too short."""
    queue, bound, finished = [], QueueBound(), 0
    for second, (arriving, beginning) in enumerate(seconds):
        queue += [second] * arriving
        begun = min(beginning, len(queue))
        del queue[:begun]
        finished += begun
        told = bound.take(second, len(queue), 2.0, float(finished))
        oldest = second - queue[0] if queue else 0
        seen_from = second - 0  # what waited before the first reading is not known
        assert min(oldest, seen_from) <= told


def test_without_the_mean_prompt_who_waits_counts_with_the_longest():
    watching = watch()
    watching.take(vllm(prompts=False), NOW_US)
    assert watching.snapshot.waiting_input_tokens == 2 * route().max_input_tokens


def test_requests_of_several_engines_add_up_and_room_is_that_of_the_roomiest():
    text = vllm().decode() + 'vllm:num_requests_waiting{engine="1"} 5\n'
    text += 'vllm:kv_cache_usage_perc{engine="1"} 0.9\n'
    watching = watch()
    watching.take(text.encode(), NOW_US)
    assert (watching.snapshot.waiting_requests, watching.snapshot.free_kv_tokens) == (7, 750)


def test_sglangs_names_are_known():
    watching = watch()
    text = b"sglang:num_queue_reqs 1\nsglang:num_running_reqs 2\nsglang:token_usage 0.5\n"
    watching.take(text, NOW_US)
    assert (watching.snapshot.running_requests, watching.snapshot.free_kv_tokens) == (2, 500)


def test_a_reading_that_lacks_what_a_snapshot_needs_changes_nothing():
    nothing, watching = watch(), watch()
    nothing.take(b"<html>not metrics</html>", NOW_US)
    assert nothing.snapshot is None
    watching.take(vllm(), NOW_US)
    watching.take(vllm(share="NaN"), NOW_US + SECOND_US)
    assert watching.snapshot.observed_at_us == NOW_US


def test_a_share_over_one_leaves_no_room_and_never_less():
    watching = watch()
    watching.take(vllm(share=1.4), NOW_US)
    assert (watching.snapshot.reserved_kv_tokens, watching.snapshot.free_kv_tokens) == (1_000, 0)


@given(st.binary(max_size=200))
def test_no_bytes_are_a_fault(noise):
    values = read_metrics(b"vllm:num_requests_waiting 1\n" + noise)
    assert all(value >= 0 for kind in values.values() for value in kind)
