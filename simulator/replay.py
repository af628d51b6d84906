"""Replays a trace on replicas in virtual time and sums up what its users would have seen.

`replay(scenario)` returns a `Replay`: a `Summary` of exact quantiles, and the series that the
report draws. Source: SIM-1.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from typing import Protocol, runtime_checkable

import numpy as np

from simulator.batch import JobArrays, SimulationResult, job_arrays
from simulator.fitting import Floats
from simulator.fleet import Fleet, FleetResult, Loads, Route, least_loaded
from simulator.observed import beyond, reach_of
from simulator.profiles import HeldOut, Profile
from simulator.run_notes import growing, told_of
from simulator.scheduler import OUTCOMES
from simulator.summaries import (
    Curve,
    Series,
    Spread,
    busy_shares,
    distribution_of,
    distribution_of_parts,
    series_of,
)
from simulator.timing import MAX_TRACE_US, PS_PER_MS, PS_PER_S, PS_PER_US, ObservedRange
from simulator.traces import NONE, Ints, Trace

MAX_REPLICAS = 256

MANY_REQUESTS = 100_000
"""From so many on what the run leaves behind is looked for before its figures are worked out."""


@runtime_checkable
class Shedding(Protocol):
    """A routing callable that counts what it sheds by reason code."""

    @property
    def shed(self) -> Mapping[str, int]:
        """How many requests it has shed so far, by reason code."""
        ...


def _round_robin() -> Route:
    turns = count()

    def route(_: int, loads: Loads) -> int:
        return next(turns) % len(loads.outstanding)

    return route


def _most_free_kv(_: int, loads: Loads) -> int:
    replicas = range(len(loads.outstanding))
    # Ties, among them all replicas when idle, go to the fewest outstanding, then the first.
    return max(replicas, key=lambda r: (loads.snapshot(r).free_kv_tokens, -loads.outstanding[r]))


POLICIES: dict[str, Callable[[], Route]] = {
    "least-loaded": lambda: least_loaded,
    "most-free-kv": lambda: _most_free_kv,
    "round-robin": _round_robin,
}
"""Makers of routing callables by name; each run gets a fresh one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """What is replayed on what.

    `policy` names an entry of `POLICIES`, or `routing`, which makes a routing callable for the
    scenario.
    """

    trace: Trace
    profile: Profile
    replicas: int = 1
    policy: str = "least-loaded"
    routing: Callable[[Scenario], Route] | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.replicas <= MAX_REPLICAS:
            raise ValueError(f"replicas must be between 1 and {MAX_REPLICAS}")
        if self.routing is None and self.policy not in POLICIES:
            raise ValueError(f"no policy {self.policy!r}; there are {', '.join(POLICIES)}")
        if len(self.trace) == 0:
            raise ValueError("the trace holds no requests")
        if int(self.trace.arrival_us[-1]) > MAX_TRACE_US:
            raise ValueError("the trace is longer than 26 days; split it")


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """What a table shows of one run. Counts are of requests; times are virtual.

    `refused` is larger than a replica's KV pool and never ran; `shed` is what the routing policy
    rejected, `shed_reasons` by reason code where it tells. `goodput_share` is the share of the
    requests with a deadline that completed within it, None where the trace has none.
    `busy_shares` has a replica's share of the run in which it computed, for however few requests.
    `flags` say what the figures may not be used for; `notes` are these and what was assumed.
    """

    source: str
    profile: str
    replicas: int
    policy: str
    requests: int
    completed: int
    cancelled: int
    refused: int
    shed: int
    shed_reasons: tuple[tuple[str, int], ...]
    span_s: float
    output_tokens_per_s: float
    ttft: Spread
    itl: Spread
    e2e: Spread
    busy_shares: tuple[float, ...]
    preemptions: int
    cached_tokens: int
    goodput_share: float | None
    held_out: tuple[HeldOut, ...]
    flags: tuple[str, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """One run: its summary, the two distributions and the series of the report."""

    summary: Summary
    ttft: Curve
    itl: Curve
    series: Series


def jobs_of(trace: Trace, block_tokens: int) -> JobArrays:
    """The trace as the engine's columns.

    Block ids say exactly which prompts begin alike. A trace without them says how much of a
    prompt is shared, not with whom: the shared prefixes are taken as heads of one common text,
    the upper bound that its column states.
    """
    hashes = _known_hashes(trace, block_tokens) or _common_hashes(trace, block_tokens)
    return job_arrays(
        trace.arrival_us * PS_PER_US,
        trace.input_tokens,
        trace.output_tokens,
        priority=trace.priority,
        cancel_ps=np.where(trace.cancel_us == NONE, NONE, trace.cancel_us * PS_PER_US),
        block_hashes=hashes or None,
    )


def _common_hashes(trace: Trace, block_tokens: int) -> list[tuple[int, ...]]:
    blocks = trace.shared_prefix_tokens // block_tokens
    chain = tuple(range(int(blocks.max())))
    # One tuple a length, shared by all prompts.
    heads = {number: chain[:number] for number in np.unique(blocks).tolist()}
    return [heads[number] for number in blocks.tolist()] if chain else []


def _known_hashes(trace: Trace, block_tokens: int) -> list[tuple[int, ...]]:
    """A hash for each full engine block of a prompt, made of its source block's id and place.

    Nothing where the trace has no ids, or the engine's blocks don't divide the source's.
    """
    if not trace.block_ids or trace.block_id_tokens % block_tokens:
        return []
    parts = trace.block_id_tokens // block_tokens
    # One tuple an id, shared by all prompts: a trace repeats its ids by the million.
    pieces: dict[int, tuple[int, ...]] = {}
    hashes = []
    for ids, tokens in zip(trace.block_ids, trace.input_tokens.tolist(), strict=True):
        known: list[int] = []
        for block in ids:
            known += pieces.setdefault(block, tuple(block * parts + k for k in range(parts)))
        hashes.append(tuple(known[: tokens // block_tokens]))
    return hashes


def replay(scenario: Scenario, progress: Callable[[float], None] | None = None) -> Replay:
    """The run of a scenario; `progress` hears the share of requests that have ended.

    Raises OverflowError where virtual time leaves its range (53 days).
    """
    trace, profile = scenario.trace, scenario.profile
    config = replace(
        profile.replica,
        prefix_cache=profile.replica.prefix_cache or bool(trace.shared_prefix_tokens.any()),
        priority_scheduling=profile.replica.priority_scheduling or bool(trace.priority.any()),
    )
    routing = scenario.routing
    route = POLICIES[scenario.policy]() if routing is None else routing(scenario)
    total, drained = len(trace), None
    heard, run_over = route, _unheard
    if progress is not None:
        heard, run_over = _reporting(route, total, progress), partial(progress, 1.0)
        drained = partial(_tell_left, total, progress)
    fleet = Fleet(
        jobs_of(trace, config.block_tokens), [(config, profile.time)] * scenario.replicas, heard
    ).run(drained)
    if total >= MANY_REQUESTS:
        # Its parts refer to each other: they would stay, with 400 bytes a request.
        gc.collect()
    shed = tuple(sorted(route.shed.items())) if isinstance(route, Shedding) else ()
    capacity = config.usable_blocks * config.block_tokens * scenario.replicas
    run_over()
    ttft, ttft_curve = distribution_of(_ttft_ms(fleet.jobs, scenario.profile.overhead_us))
    itl, itl_curve = distribution_of_parts(partial(_inter_token_gaps, fleet, run_over))
    return Replay(
        summary=_summary(scenario, fleet, shed, ttft, itl),
        ttft=ttft_curve,
        itl=itl_curve,
        series=series_of(trace, fleet, capacity),
    )


def _reporting(route: Route, total: int, progress: Callable[[float], None]) -> Route:
    every = max(1, total // 200)
    arrived = count(1)

    def reporting(job: int, loads: Loads) -> int | None:
        number = next(arrived)
        if number % every == 0:
            _tell_left(total, progress, total - number + 1 + sum(loads.outstanding))
        return route(job, loads)

    return reporting


def _tell_left(total: int, progress: Callable[[float], None], left: int) -> None:
    progress(1 - left / total)


def _unheard() -> None:
    """Nobody asked to hear of the run."""


def _inter_token_gaps(
    fleet: FleetResult, part: Callable[[], None]
) -> Iterator[tuple[Floats, Ints]]:
    """(gap ms, how often) in parts, one replica after the other; exact. `part` hears each."""
    for replica in range(len(fleet.iterations)):
        for gaps, counts in fleet.of_replica(replica).inter_token_parts():
            part()
            yield gaps / PS_PER_MS, counts


def _ttft_ms(jobs: SimulationResult, overhead_us: int) -> Floats:
    first = jobs.first_token_ps
    seen = first >= 0
    return (first[seen] - jobs.arrival_ps[seen]) / PS_PER_MS + overhead_us / 1_000


def _summary(
    scenario: Scenario,
    fleet: FleetResult,
    shed: tuple[tuple[str, int], ...],
    ttft: Spread,
    itl: Spread,
) -> Summary:
    jobs, trace = fleet.jobs, scenario.trace
    ended = {name: int((jobs.outcome == k).sum()) for k, name in enumerate(OUTCOMES)}
    done = jobs.outcome == OUTCOMES.index("completed")
    overhead_us = scenario.profile.overhead_us
    e2e_ms = (jobs.done_ps - jobs.arrival_ps)[done] / PS_PER_MS + overhead_us / 1_000
    span_s = max(float(jobs.done_ps.max()), 1.0) / PS_PER_S
    flags = _flags(scenario, fleet)
    has_deadline = trace.deadline_us != NONE
    in_time = done & (jobs.done_ps / PS_PER_US + overhead_us <= trace.deadline_us)
    return Summary(
        source=trace.source,
        profile=scenario.profile.label,
        replicas=scenario.replicas,
        policy=scenario.policy,
        requests=len(trace),
        completed=ended["completed"],
        cancelled=ended["cancelled"],
        refused=ended["refused"],
        shed=ended["shed"],
        shed_reasons=shed,
        span_s=span_s,
        output_tokens_per_s=float(jobs.output_tokens.sum()) / span_s,
        ttft=ttft,
        itl=itl,
        e2e=distribution_of(e2e_ms)[0],
        busy_shares=busy_shares(fleet),
        preemptions=int(jobs.preemptions.sum()),
        cached_tokens=int(jobs.cached_tokens.sum()),
        goodput_share=float(in_time.sum()) / int(has_deadline.sum())
        if has_deadline.any()
        else None,
        held_out=scenario.profile.held_out,
        flags=flags,
        notes=(*flags, *_shed_note(shed), *told_of(trace, scenario.profile, jobs)),
    )


def _flags(scenario: Scenario, fleet: FleetResult) -> tuple[str, ...]:
    """Those of promises (c) and (d), rankings only and extrapolation, and a growing queue."""
    profile = scenario.profile
    caveat = [profile.caveat] if profile.caveat else []
    reach = _reach(scenario, fleet)
    return (*caveat, *growing(fleet.jobs), *beyond(profile.time.observed, reach))


def _shed_note(shed: tuple[tuple[str, int], ...]) -> list[str]:
    return ["shed: " + ", ".join(f"{number:,} {code}" for code, number in shed)] if shed else []


def _reach(scenario: Scenario, fleet: FleetResult) -> ObservedRange:
    """The largest batch that any one replica made, in each dimension."""
    largest = (0, 0, 0)
    for number in range(scenario.replicas):
        jobs = fleet.of_replica(number)
        ran = jobs.first_token_ps >= 0
        if ran.any():
            rows = np.flatnonzero(fleet.replica == number)[ran]
            reach = reach_of(
                jobs.first_token_ps[ran].astype(np.float64),
                jobs.done_ps[ran].astype(np.float64),
                scenario.trace.input_tokens[rows],
                jobs.output_tokens[ran],
                max_batched_tokens=scenario.profile.replica.max_num_batched_tokens,
            )
            largest = (
                max(largest[0], reach.max_prefill_tokens),
                max(largest[1], reach.max_decodes),
                max(largest[2], reach.max_decode_context_sum),
            )
    return ObservedRange(
        max_prefill_tokens=largest[0],
        max_decodes=largest[1],
        max_decode_context_sum=largest[2],
    )
