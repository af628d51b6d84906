"""Replays of a trace, what they sum up to, and how many replicas a target needs."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.capacity import Target, caveats, fewest, misses, sweep
from simulator.profiles import HeldOut, profile
from simulator.replay import POLICIES, Scenario, jobs_of, replay
from simulator.summaries import weighted_quantiles
from simulator.timing import TimeModel
from simulator.traces import Record, build_trace
from simulator.workload import generate_conversation_hour, overlay, scaled, taken

PROFILE = profile("llama-3.1-8b-rtxpro6000")
BUSY = scaled(generate_conversation_hour(3, 400), 60.0)


def flat(ps=10_000_000_000, **changes):
    """A profile whose iterations all take 10 ms."""
    model = TimeModel(name="flat", breakpoints=((1, ps),), **changes)
    return replace(PROFILE, time=model)


def test_one_request_is_summed_up_exactly():
    trace = build_trace("one", [Record(arrival_us=7, input_tokens=5, output_tokens=4)])
    summary = replay(Scenario(trace=trace, profile=flat())).summary
    assert (summary.requests, summary.completed) == (1, 1)
    assert summary.ttft.mean_ms == summary.ttft.p99_ms == 10.0
    assert summary.itl.mean_ms == summary.itl.p50_ms == 10.0
    assert summary.e2e.p50_ms == 40.0
    assert summary.span_s == pytest.approx(0.04)
    assert summary.output_tokens_per_s == pytest.approx(100.0)
    assert summary.goodput_share is None


def test_overhead_outside_the_engine_counts_into_ttft_and_e2e_but_not_between_tokens():
    trace = build_trace("one", [Record(arrival_us=0, input_tokens=5, output_tokens=4)])
    summary = replay(Scenario(trace=trace, profile=replace(flat(), overhead_us=3_000))).summary
    assert (summary.ttft.p50_ms, summary.itl.p50_ms, summary.e2e.p50_ms) == (13.0, 10.0, 43.0)


def test_goodput_counts_only_what_completed_within_its_own_deadline():
    records = [
        Record(arrival_us=0, input_tokens=5, output_tokens=4, deadline_us=40_000),
        Record(arrival_us=0, input_tokens=5, output_tokens=5, deadline_us=49_999),
    ]
    summary = replay(Scenario(trace=build_trace("two", records), profile=flat())).summary
    assert summary.goodput_share == 0.5


def test_every_request_ends_once_whatever_the_policy():
    trace = overlay(BUSY, 9, urgent_share=0.2, cancel_share=0.2, cancel_within_us=2_000_000)
    for policy in POLICIES:
        summary = replay(Scenario(trace=trace, profile=PROFILE, replicas=3, policy=policy)).summary
        ended = summary.completed + summary.cancelled + summary.refused + summary.shed
        assert ended == summary.requests == 400
        assert summary.cancelled > 0


def test_progress_is_the_share_that_has_ended_and_changes_nothing():
    """The last arrives long before the end: what still runs then is most of the work."""
    heard: list[float] = []
    scenario = Scenario(trace=scaled(BUSY, 100.0), profile=PROFILE, replicas=2)
    assert replay(scenario, heard.append) == replay(scenario)
    assert heard == sorted(heard)
    assert heard[199] < 0.5  # when the last arrives
    assert heard[-1] == 1.0


@pytest.mark.parametrize(
    ("value_ms", "limit_ms", "told"),
    [
        (418.2, 0.4, "TTFT p99 418.2 ms, over 0.4"),
        (418.2, 400.0, "TTFT p99 418 ms, over 400"),
        (418.2, 418.0, "TTFT p99 418.200 ms, over 418"),
        (1e6 / 3, 1_000.25, "TTFT p99 333,333.33 ms, over 1,000.25"),
        (float("nan"), 5.0, "no TTFT was seen: too few tokens were generated"),
    ],
)
def test_a_target_that_is_missed_is_told_with_digits_that_tell_both_apart(value_ms, limit_ms, told):
    summary = replay(Scenario(trace=taken(BUSY, np.arange(1)), profile=PROFILE)).summary
    spread = replace(summary.ttft, quantiles_ms=(value_ms,) * 4)
    assert misses(replace(summary, ttft=spread), Target(ttft_p99_ms=limit_ms)) == (told,)


def test_the_same_scenario_gives_the_same_replay():
    scenario = Scenario(trace=BUSY, profile=PROFILE, replicas=2, policy="round-robin")
    assert replay(scenario) == replay(scenario)


def test_shared_prefixes_are_heads_of_one_text_and_are_found_again():
    records = [
        Record(arrival_us=k * 1_000_000, input_tokens=100, output_tokens=2, shared_prefix_tokens=70)
        for k in range(3)
    ]
    trace = build_trace("shared", records)
    jobs = jobs_of(trace, 16)
    assert jobs.block_hashes is not None
    assert [len(hashes) for hashes in jobs.block_hashes] == [4, 4, 4]
    # The first publishes four full blocks, the other two find them.
    assert replay(Scenario(trace=trace, profile=flat())).summary.cached_tokens == 2 * 64


def test_prompts_whose_block_ids_are_known_share_with_those_that_begin_alike_only():
    records = [
        Record(arrival_us=0, input_tokens=1_030, output_tokens=2, block_ids=(5, 6, 7)),
        Record(arrival_us=9_000_000, input_tokens=600, output_tokens=2, block_ids=(5, 9)),
        Record(arrival_us=18_000_000, input_tokens=600, output_tokens=2, block_ids=(8, 6)),
    ]
    trace = build_trace("ids", records, block_id_tokens=512)
    jobs = jobs_of(trace, 16)
    assert jobs.block_hashes is not None
    assert [len(hashes) for hashes in jobs.block_hashes] == [64, 37, 37]
    # The second finds the first block of 512; the third begins otherwise and finds nothing.
    caching = replace(flat(), replica=replace(PROFILE.replica, prefix_cache=True))
    assert replay(Scenario(trace=trace, profile=caching)).summary.cached_tokens == 512
    assert jobs_of(trace, 24).block_hashes is None


def test_the_series_begins_and_ends_empty_and_adds_up_in_between():
    series = replay(Scenario(trace=BUSY, profile=PROFILE)).series
    assert (series.waiting[-1], series.in_service[-1], series.context_tokens[-1]) == (0, 0, 0)
    assert max(series.in_service) > 1
    assert min(series.waiting) >= 0
    assert max(series.context_tokens) <= series.kv_capacity_tokens
    assert len(series.at_s) == len(series.waiting) == len(series.context_tokens)


def test_the_context_of_one_request_grows_from_prompt_to_prompt_and_output():
    trace = build_trace("one", [Record(arrival_us=0, input_tokens=50, output_tokens=101)])
    context = replay(Scenario(trace=trace, profile=flat())).series.context_tokens
    assert context[1] == pytest.approx(50, abs=1)
    assert context[-2] == pytest.approx(150, abs=1)


def test_curves_rise_and_end_at_the_maximum():
    run = replay(Scenario(trace=BUSY, profile=PROFILE))
    for curve in (run.ttft, run.itl):
        assert list(curve.values_ms) == sorted(curve.values_ms)
        assert curve.shares[-1] == 1.0


def test_an_uncalibrated_profile_is_flagged_and_so_is_extrapolation():
    seen = replay(Scenario(trace=BUSY, profile=PROFILE)).summary
    assert "uncalibrated: rankings only" in seen.notes
    crowded = replay(Scenario(trace=scaled(BUSY, 50), profile=PROFILE)).summary
    assert any(note.startswith("extrapolation: ") for note in crowded.notes)
    held_out = (HeldOut(split="halves", metric="ttft", mean_error=0.01, p99_error=-0.2),)
    calibrated = replace(
        PROFILE, time=replace(PROFILE.time, calibrated=True), own=True, held_out=held_out
    )
    told = (
        "backtest, worst error of mean / p99 on receipts that the fit never saw:"
        " TTFT +1.0% / -20.0%"
    )
    anothers = replace(calibrated, own=False)
    assert replay(Scenario(trace=BUSY, profile=calibrated, replicas=8)).summary.notes == (told,)
    assert replay(Scenario(trace=BUSY, profile=anothers, replicas=8)).summary.notes == (
        "calibrated on a public run, not on this deployment",
        told,
    )


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"replicas": 0}, "replicas must be between"),
        ({"policy": "fastest"}, "no policy 'fastest'"),
    ],
)
def test_a_scenario_that_cannot_be_run_is_refused(change, reason):
    with pytest.raises(ValueError, match=reason):
        Scenario(trace=BUSY, profile=PROFILE, **change)


def test_a_trace_beyond_the_range_of_virtual_time_is_refused():
    year_us = 365 * 86_400 * 1_000_000
    records = [Record(arrival_us=at, input_tokens=5, output_tokens=5) for at in (0, year_us)]
    with pytest.raises(ValueError, match="longer than 26 days"):
        Scenario(trace=build_trace("year", records), profile=PROFILE)


def test_more_replicas_wait_less_and_the_fewest_that_meet_the_target_are_found():
    load = scaled(generate_conversation_hour(3, 600), 1_000.0)
    runs = sweep(Scenario(trace=load, profile=PROFILE), [1, 2, 4, 8])
    by_replicas = [run.summary.ttft.p99_ms for run in runs]
    assert by_replicas == sorted(by_replicas, reverse=True)
    limit = by_replicas[2] + 1
    answer = fewest(runs, Target(ttft_p99_ms=limit))
    assert answer.replicas == 4
    assert "rankings only" in answer.sentence


def test_a_target_that_nothing_meets_is_answered_with_what_is_missed():
    runs = sweep(Scenario(trace=BUSY, profile=PROFILE), [1, 2])
    answer = fewest(runs, Target(ttft_p99_ms=0.001, itl_p99_ms=0.001))
    assert answer.replicas is None
    assert "with replicas = 2: TTFT p99" in answer.sentence
    assert "ITL p99" in answer.sentence


def test_callers_who_cancel_do_not_keep_a_run_from_its_target():
    """SIM-1: 5 % of cancels aren't 5 % of failures."""
    trace = overlay(BUSY, 9, cancel_share=0.3, cancel_within_us=100_000)
    summary = replay(Scenario(trace=trace, profile=PROFILE)).summary
    assert summary.completed + summary.cancelled == summary.requests
    assert summary.cancelled > 80
    assert misses(summary, Target()) == ()
    fewer = replace(summary, completed=summary.completed - 40, shed=40)
    assert "completed, under 99.0%" in misses(fewer, Target())[0]


def test_what_no_replica_can_hold_is_told_apart_and_left_out_of_the_share():
    tiny = replace(PROFILE, replica=replace(PROFILE.replica, kv_blocks=20))
    summary = replay(Scenario(trace=BUSY, profile=tiny)).summary
    assert summary.refused > 0
    assert misses(summary, Target()) == ()
    fits = tiny.replica.max_servable_tokens
    assert any(
        f"{summary.refused} of 400 requests are larger than a replica's KV pool ({fits} tokens)"
        in note
        for note in summary.notes
    )
    nobody = replace(summary, completed=0, refused=400)
    assert misses(nobody, Target()) == (
        "no request was served: all were cancelled or are too large",
    )


def test_goodput_is_a_share_of_those_that_have_a_deadline():
    records = [
        Record(arrival_us=0, input_tokens=5, output_tokens=4, deadline_us=40_000),
        Record(arrival_us=0, input_tokens=5, output_tokens=4),
    ]
    summary = replay(Scenario(trace=build_trace("two", records), profile=flat())).summary
    assert summary.goodput_share == 1.0


def test_a_replica_is_busy_while_it_computes():
    # Two requests of 40 ms each, the second from 160 ms on: 80 of 200 ms; the other replica idles.
    records = [Record(arrival_us=at, input_tokens=5, output_tokens=4) for at in (0, 160_000)]
    trace = build_trace("two", records)
    assert replay(Scenario(trace=trace, profile=flat())).summary.busy_shares == (0.4,)
    both = replay(Scenario(trace=trace, profile=flat(), replicas=2)).summary.busy_shares
    assert both == (0.4, 0.0)


def told(summary, beginning):
    return [note for note in summary.notes if note.startswith(beginning)]


def test_a_queue_without_bound_is_told_and_one_that_ends_is_not():
    single = replace(flat(), replica=replace(PROFILE.replica, max_num_seqs=1))

    def summary(gaps_us):
        at = np.cumsum(gaps_us).tolist()
        records = [Record(arrival_us=int(t), input_tokens=5, output_tokens=4) for t in at]
        return replay(Scenario(trace=build_trace("even", records), profile=single)).summary

    # 40 ms of service: a gap of 30 ms is a load of 4/3, one of 50 ms of 4/5.
    growing = told(summary([30_000] * 200), "the queue grows without bound")
    assert len(growing) == 1
    assert told(summary([50_000] * 200), "the queue grows") == []
    assert told(summary([1_000] * 50 + [50_000] * 200), "the queue grows") == []


def test_a_prefix_cache_that_a_trace_switches_on_is_told():
    records = [
        Record(arrival_us=k * 1_000_000, input_tokens=100, output_tokens=2, shared_prefix_tokens=70)
        for k in range(3)
    ]
    trace = build_trace("shared", records)
    runs = sweep(Scenario(trace=trace, profile=flat()), [1])
    note = told(runs[0].summary, "the trace has shared")
    assert "switched on" in note[0]
    # The answer carries what limits it, not what was assumed.
    sentence = fewest(runs, Target()).sentence
    assert "[uncalibrated: rankings only]" in sentence
    assert "shared_prefix_tokens" not in sentence
    assert "upper bound" in note[0]
    on = replace(flat(), replica=replace(PROFILE.replica, prefix_cache=True))
    note = told(replay(Scenario(trace=trace, profile=on)).summary, "the trace has shared")
    assert "switched on" not in note[0]


def test_tenants_and_sessions_that_change_nothing_are_said_to():
    record = Record(arrival_us=0, input_tokens=5, output_tokens=2, tenant="a", session="s")
    summary = replay(Scenario(trace=build_trace("one", [record]), profile=flat())).summary
    assert told(summary, "not used: tenant and session") != []
    assert told(replay(Scenario(trace=BUSY, profile=PROFILE)).summary, "not used") == []


def test_blocks_shared_between_prompts_are_held_once():
    records = [
        Record(arrival_us=k * 10_000, input_tokens=512, output_tokens=50, shared_prefix_tokens=480)
        for k in range(8)
    ]
    run = replay(Scenario(trace=build_trace("shared", records), profile=flat()))
    assert run.summary.cached_tokens == 7 * 480
    # One whole prompt, seven tails of 32 tokens, and the outputs.
    assert 512 < max(run.series.context_tokens) <= 512 + 7 * 32 + 8 * 50


def test_a_preempted_request_holds_nothing_while_it_waits():
    small = replace(flat(), replica=replace(PROFILE.replica, kv_blocks=40))
    records = [Record(arrival_us=0, input_tokens=100, output_tokens=300) for _ in range(4)]
    run = replay(Scenario(trace=build_trace("starved", records), profile=small))
    assert run.summary.preemptions > 0
    assert run.summary.completed == 4
    assert max(run.series.context_tokens) <= run.series.kv_capacity_tokens
    assert run.series.context_tokens[-1] == 0


def test_progress_rises_to_one_over_the_whole_sweep():
    heard: list[float] = []
    sweep(Scenario(trace=BUSY, profile=PROFILE), [1, 2], heard.append)
    assert heard == sorted(heard)
    assert heard[-1] == 1.0
    with pytest.raises(ValueError, match="between 1 and 64"):
        sweep(Scenario(trace=BUSY, profile=PROFILE), [])


@settings(max_examples=80, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 5)), min_size=1, max_size=30))
def test_weighted_quantiles_equal_those_of_the_values_written_out(pairs):
    values = np.array([value for value, _ in pairs], dtype=np.float64)
    weights = np.array([weight for _, weight in pairs], dtype=np.int64)
    shares = (0.25, 0.5, 0.75, 1.0)
    whole = np.sort(np.repeat(values, weights))
    expected = [whole[int(np.ceil(share * len(whole))) - 1] for share in shares]
    assert weighted_quantiles(values, weights, shares).tolist() == expected


def test_a_note_of_all_runs_is_told_once_and_one_of_some_with_its_replicas():
    crowded = scaled(BUSY, 20)
    runs = sweep(Scenario(trace=crowded, profile=PROFILE), [1, 64])
    assert [note.split(": ")[0] for note in runs[0].summary.notes] == [
        "uncalibrated",
        "the queue grows without bound, arrivals outpace service",
        "extrapolation",
    ]
    listed = caveats(runs)
    assert listed[0] == "uncalibrated: rankings only"
    assert [note[:29] for note in listed[1:]] == [
        "replicas = 1: the queue grows",
        "replicas = 1: extrapolation: ",
    ]
