"""How far a calibration has seen, how far a forecast reaches, and the difference in words.

`reach_of` returns the largest batch that a set of requests made; `beyond` names each dimension
in which a forecast leaves what was observed. Source: SIMULATOR.md "what is promised" (d).
"""

from __future__ import annotations

import numpy as np

from simulator.fitting import Floats
from simulator.timing import ObservedRange
from simulator.traces import Ints

MAX_INSTANTS = 512


def reach_of(
    first_token: Floats,
    last_token: Floats,
    input_tokens: Ints,
    output_tokens: Ints,
    *,
    max_batched_tokens: int,
) -> ObservedRange:
    """The most prefill tokens, decodes and summed decode contexts that the requests met at once.

    Times are on one clock. Decodes are looked at when a request starts or ends decoding, at 512
    of those instants at most; a request's context grows evenly between its tokens. One chunk is
    at most the budget.
    """
    events = np.unique(np.concatenate([first_token, last_token]))
    if len(events) > MAX_INSTANTS:
        picks = np.linspace(0, len(events) - 1, MAX_INSTANTS).round().astype(np.int64)
        events = events[picks]
    span = np.maximum(last_token - first_token, 1e-9)
    decodes = 0
    contexts = 0
    for instant in events:
        running = (first_token <= instant) & (instant < last_token)
        grown = (instant - first_token[running]) / span[running] * output_tokens[running]
        decodes = max(decodes, int(running.sum()))
        contexts = max(contexts, int((input_tokens[running] + grown).sum()))
    return ObservedRange(
        max_prefill_tokens=min(max_batched_tokens, int(input_tokens.sum())),
        max_decodes=decodes,
        max_decode_context_sum=contexts,
    )


def beyond(observed: ObservedRange | None, reach: ObservedRange) -> tuple[str, ...]:
    """One sentence for each dimension in which `reach` exceeds `observed`; none is no flag."""
    if observed is None:
        return ("extrapolation: this model says nothing about what it was fitted to",)
    dimensions = (
        ("prefill tokens in an iteration", reach.max_prefill_tokens, observed.max_prefill_tokens),
        ("decodes in an iteration", reach.max_decodes, observed.max_decodes),
        (
            "context tokens under decode",
            reach.max_decode_context_sum,
            observed.max_decode_context_sum,
        ),
    )
    return tuple(
        f"extrapolation: {asked:,} {what}, {seen:,} observed"
        for what, asked, seen in dimensions
        if asked > seen
    )
