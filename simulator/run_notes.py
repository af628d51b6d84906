"""What a run's figures rest on, in sentences: assumptions, what isn't used, what never fits.

`told_of(trace, profile, jobs)` returns the notes, `growing(jobs)` the flag of a queue without
bound. Source: SIM-1.
"""

from __future__ import annotations

import numpy as np

from simulator.batch import SimulationResult
from simulator.fitting import Floats
from simulator.profiles import Profile
from simulator.scheduler import OUTCOMES
from simulator.traces import NONE, Ints, Trace

MIN_GROWING = 20
"""A queue of fewer at the end of the arrivals is not called growing."""


def told_of(trace: Trace, profile: Profile, jobs: SimulationResult) -> tuple[str, ...]:
    """A sentence for each thing that a reader of the figures would otherwise not know."""
    return (
        *([profile.backtest_note] if profile.backtest_note else []),
        *_too_large(profile, jobs),
        *_prefix_cache(trace, profile),
        *_unused(trace),
    )


def _too_large(profile: Profile, jobs: SimulationResult) -> list[str]:
    refused = int((jobs.outcome == OUTCOMES.index("refused")).sum())
    if not refused:
        return []
    return [
        f"{refused:,} of {len(jobs.outcome):,} requests are larger than a replica's KV pool"
        f" ({profile.replica.max_servable_tokens:,} tokens): refused on any number of replicas"
    ]


def growing(jobs: SimulationResult) -> list[str]:
    """A sentence where the queue is longer at each quarter of the arrivals.

    And by half from the middle to the end. Then the waits, and every quantile with them, depend
    on how long the trace is.
    """
    last = int(jobs.arrival_ps.max())
    quarters = np.array([last // 4, last // 2, last * 3 // 4, last], dtype=np.int64)
    waits = waiting_at(jobs, quarters).tolist()
    rising = waits[0] < waits[1] < waits[2] < waits[3]
    if not (rising and waits[3] >= MIN_GROWING and 2 * waits[3] >= 3 * waits[1]):
        return []
    return [
        "the queue grows without bound, arrivals outpace service:"
        f" {waits[0]:,}, {waits[1]:,}, {waits[2]:,} and {waits[3]:,} requests waiting at the"
        " quarters of the trace; a longer trace would wait longer"
    ]


def waiting_at(jobs: SimulationResult, at_ps: Ints | Floats) -> Ints:
    """How many requests have arrived and neither begun nor ended by each instant."""
    begun = np.where(jobs.scheduled_ps >= 0, jobs.scheduled_ps, jobs.done_ps)
    arrived = np.searchsorted(np.sort(jobs.arrival_ps), at_ps, side="right")
    return np.asarray(arrived - np.searchsorted(np.sort(begun), at_ps, side="right"), np.int64)


def _prefix_cache(trace: Trace, profile: Profile) -> list[str]:
    if not trace.shared_prefix_tokens.any():
        return []
    switched = "" if profile.replica.prefix_cache else "the prefix cache was switched on for it; "
    if trace.block_ids and trace.block_id_tokens % profile.replica.block_tokens == 0:
        return (
            [f"the trace has block ids: {switched}cached tokens are those of equal block ids"]
            if switched
            else []
        )
    return [
        f"the trace has shared_prefix_tokens: {switched}all are taken as heads of one text,"
        " so cached tokens are an upper bound"
    ]


def _unused(trace: Trace) -> list[str]:
    """Columns that a trace has and no policy of `simulate` looks at."""
    names = [
        name
        for name, column in (("tenant", trace.tenant), ("session", trace.session))
        if (column != NONE).any()
    ]
    if not names:
        return []
    return [f"not used: {' and '.join(names)} of the trace; no fair queue stands in front"]
