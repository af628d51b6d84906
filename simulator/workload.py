"""Draws seeded workloads: the same seed gives the same bytes, on any machine and numpy.

`generate_conversation_hour(seed)` returns a `Trace` with the statistics of Azure's public hour of
conversations; `overlay` adds priorities, cancellations and deadlines, which no public trace
carries; `scaled` changes the rate. Uniforms come from PCG64's raw 64-bit words, whose stream
numpy guarantees, not from its distribution methods, which may change. Source: SIM-1.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from simulator.traces import NONE, Ints, Trace, plain_trace

Floats = NDArray[np.float64]

# Statistics of AzureLLMInferenceTrace_conv (2023-11-16, Azure/AzurePublicDataset, CC-BY-4.0;
# Patel et al., "Splitwise", ISCA 2024), computed over all 19,366 records. Lengths are drawn
# independently of one another: their rank correlation there is 0.07.
AZURE_CONV_SOURCE = "generated: statistics of Azure LLM inference trace 2023, conversations"
AZURE_CONV_REQUESTS = 19_366
AZURE_CONV_SPAN_US = 3_501_721_937
AZURE_CONV_REQUESTS_PER_MINUTE = (
    191, 265, 329, 353, 307, 273, 268, 261, 322, 298, 301, 302, 345, 326, 283,
    279, 280, 308, 343, 351, 351, 343, 408, 396, 386, 398, 432, 480, 476, 453,
    448, 507, 438, 413, 423, 418, 465, 311, 329, 316, 333, 355, 319, 360, 334,
    375, 330, 249, 221, 249, 265, 280, 256, 254, 242, 260, 246, 225, 37,
)  # fmt: skip
AZURE_CONV_QUANTILES = (
    0.0, 0.01, 0.02, 0.05, 0.08, 0.10, 0.15, 0.20, 0.25, 0.30, 0.35, 0.40, 0.45, 0.50, 0.55,
    0.60, 0.65, 0.70, 0.75, 0.80, 0.85, 0.90, 0.95, 0.97, 0.98, 0.99, 0.995, 0.999, 1.0,
)  # fmt: skip
AZURE_CONV_INPUT_TOKENS = (
    2, 29, 91, 181, 201, 207, 372, 387, 396, 403, 414, 703, 984, 1020, 1045,
    1071, 1097, 1130, 1189, 1315, 1876, 2734, 4083, 4090, 4098, 4142, 4831, 6212, 14050,
)  # fmt: skip
AZURE_CONV_OUTPUT_TOKENS = (
    7, 16, 24, 41, 49, 54, 67, 77, 85, 91, 96, 103, 113, 129, 151,
    177, 217, 384, 395, 400, 411, 424, 451, 509, 540, 601, 643, 954, 1000,
)  # fmt: skip

MAX_GENERATED_REQUESTS = 10_000_000
MIN_RATE, MAX_RATE = 0.001, 1_000


def uniforms(seed: int, stream: int, n: int) -> Floats:
    """n floats in [0, 1) with 53 random bits each, a function of (seed, stream) only."""
    raw = np.random.PCG64(np.random.SeedSequence([seed, stream])).random_raw(n)
    return (np.asarray(raw, dtype=np.uint64) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def generate_conversation_hour(seed: int, requests: int = AZURE_CONV_REQUESTS) -> Trace:
    """A `Trace` like Azure's public hour of conversations: `requests` over 3,502 s.

    Arrivals are an inhomogeneous Poisson process given its count: uniforms through the inverse
    of the cumulative requests per minute, sorted, so gaps are near-exponential about a rate that
    moves (the source's gap CV is 1.09). Lengths are inverse-CDF draws, linear between the
    stated quantiles, rounded to whole tokens. Raises ValueError outside 1..10,000,000 requests.
    """
    if not 1 <= requests <= MAX_GENERATED_REQUESTS:
        raise ValueError(f"requests must be between 1 and {MAX_GENERATED_REQUESTS}")
    per_minute = np.array(AZURE_CONV_REQUESTS_PER_MINUTE, dtype=np.float64)
    cumulative = np.concatenate([[0.0], np.cumsum(per_minute) / per_minute.sum()])
    edges_us = np.minimum(np.arange(len(cumulative)) * 60_000_000, AZURE_CONV_SPAN_US)
    arrival = np.interp(np.sort(uniforms(seed, 0, requests)), cumulative, edges_us)
    arrival_us = np.floor(arrival).astype(np.int64)
    return plain_trace(
        f"{AZURE_CONV_SOURCE}; seed {seed}",
        arrival_us - arrival_us[0],
        draw_lengths(uniforms(seed, 1, requests), AZURE_CONV_QUANTILES, AZURE_CONV_INPUT_TOKENS),
        draw_lengths(uniforms(seed, 2, requests), AZURE_CONV_QUANTILES, AZURE_CONV_OUTPUT_TOKENS),
    )


def draw_lengths(uniform: Floats, quantiles: tuple[float, ...], values: tuple[float, ...]) -> Ints:
    """Token counts, at least 1, by inverse CDF, linear between the given quantiles."""
    drawn = np.rint(np.interp(uniform, quantiles, values)).astype(np.int64)
    return np.maximum(drawn, 1)


def scaled(trace: Trace, rate: float) -> Trace:
    """The trace at `rate` times its rate: arrivals divided by it, rounded to the microsecond.

    A deadline and a cancel stay as long after their arrival as they were: callers don't become
    less patient where there are more of them. Raises ValueError unless 0.001 <= rate <= 1,000.
    """
    if not MIN_RATE <= rate <= MAX_RATE:
        raise ValueError(f"the rate must be scaled by a factor between {MIN_RATE} and {MAX_RATE:,}")
    arrival_us = np.rint(trace.arrival_us / rate).astype(np.int64)

    def moved(times: Ints) -> Ints:
        return np.where(times == NONE, NONE, arrival_us + (times - trace.arrival_us))

    return replace(
        trace,
        source=trace.source if rate == 1 else f"{trace.source}; rate x {rate:g}",
        arrival_us=arrival_us,
        cancel_us=moved(trace.cancel_us),
        deadline_us=moved(trace.deadline_us),
    )


def taken(trace: Trace, rows: Ints) -> Trace:
    """The trace's rows (n,), in the order given, on the same clock."""
    return replace(
        trace,
        arrival_us=trace.arrival_us[rows],
        input_tokens=trace.input_tokens[rows],
        output_tokens=trace.output_tokens[rows],
        session=trace.session[rows],
        shared_prefix_tokens=trace.shared_prefix_tokens[rows],
        tenant=trace.tenant[rows],
        priority=trace.priority[rows],
        cancel_us=trace.cancel_us[rows],
        deadline_us=trace.deadline_us[rows],
        block_ids=tuple(trace.block_ids[row] for row in rows.tolist()) if trace.block_ids else (),
    )


def overlay(
    trace: Trace,
    seed: int,
    *,
    urgent_share: float = 0.0,
    cancel_share: float = 0.0,
    cancel_within_us: int = 30_000_000,
    deadline_us: int = NONE,
) -> Trace:
    """The trace with invented priorities, cancellations and deadlines, and a label that says so.

    `urgent_share` of the requests get priority -1, the rest 0; `cancel_share` are aborted,
    uniformly within `cancel_within_us` after arrival; a `deadline_us` other than -1 is counted
    from each arrival. Raises ValueError for a share outside 0..1.
    """
    if not (0 <= urgent_share <= 1 and 0 <= cancel_share <= 1 and cancel_within_us > 0):
        raise ValueError("shares lie between 0 and 1, the cancel window is positive")
    n = len(trace)
    urgent = uniforms(seed, 10, n) < urgent_share
    cancelled = uniforms(seed, 11, n) < cancel_share
    after = np.floor(uniforms(seed, 12, n) * cancel_within_us).astype(np.int64)
    no_deadline = np.full(n, NONE, dtype=np.int64)
    return replace(
        trace,
        source=f"{trace.source}; priorities, cancellations, deadlines overlaid, seed {seed}",
        priority=np.where(urgent, -1, 0).astype(np.int64),
        cancel_us=np.where(cancelled, trace.arrival_us + after, NONE),
        deadline_us=no_deadline if deadline_us == NONE else trace.arrival_us + deadline_us,
    )
