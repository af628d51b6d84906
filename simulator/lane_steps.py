"""One step of all lanes at once: an iteration with prefill where there is any, then a stretch.

Where about half of the rows have something to do it is worked out for those alone, else for all
rows with masks: numpy takes a microsecond a call and another one for a thousand rows, and twice
that to gather or scatter. Semantics: SCHEDULING in scheduler.py; source SIM-1.
"""

from dataclasses import dataclass

import numpy as np

from simulator.iterations import Int64Array
from simulator.lane_state import BoolArray, Lanes, LaneState, of_rows
from simulator.stepping import NEARLY_2
from simulator.timing import MAX_PS


@dataclass(slots=True, kw_only=True)
class Work:
    """One iteration's prefill by row, and what finishes its prefill in it: (rows, jobs) each."""

    left: Int64Array
    prefill: Int64Array
    pairs: Int64Array
    singles: Int64Array
    single_context: Int64Array
    finishing: list[tuple[Int64Array, Int64Array]]


def step(state: LaneState, lanes: Lanes) -> BoolArray | None:
    """Run each lane on; return which lack KV for that and must be handed over, None for nobody.

    Lanes that are over stay as they are.
    """
    idle = state.decodes == 0
    idle &= ~state.partial
    idle &= state.next_arrival < MAX_PS
    np.maximum(state.now, state.next_arrival, out=state.now, where=idle)
    waits = state.next_arrival <= state.now
    short = None
    blocked = waits | state.partial
    if blocked.any():
        rows = len(waits)
        work = Work(
            left=state.max_tokens - state.decodes,
            prefill=np.zeros(rows, np.int64),
            pairs=np.zeros(rows, np.int64),
            singles=np.zeros(rows, np.int64),
            single_context=np.zeros(rows, np.int64),
            finishing=[],
        )
        seats = state.max_seqs - state.decodes
        at = np.flatnonzero(state.partial)
        if len(at):
            seats[at] -= 1
            short = _continue_partial(state, lanes, work, at)
            if short is not None:
                waits &= ~short
        waits &= work.left > 0
        waits &= seats > 0
        at = np.flatnonzero(waits)
        if len(at):
            _admit(state, lanes, work, at, seats)
        blocked &= ~_prefill(state, lanes, work)

    goes = state.next_arrival > state.now
    goes &= ~state.partial
    goes |= blocked
    goes &= state.decodes > 0
    if short is not None:
        goes &= ~short
    lacking = _decode(state, lanes, goes, blocked)
    if short is None or lacking is None:
        return short if lacking is None else lacking
    return short | lacking


def _continue_partial(
    state: LaneState, lanes: Lanes, work: Work, at: Int64Array
) -> BoolArray | None:
    """Go on with the partly prefilled job of each row `at`; return who lacks KV for that."""
    job, start, left = state.head[at] - 1, state.computed[at], work.left[at]
    gap = lanes.input[job] - start
    tokens = np.minimum(gap, left)
    reached = start + tokens
    held = -(-reached // of_rows(state.block_tokens, at))
    short = None
    usable = of_rows(state.usable, at)
    tight = state.committed[at] > usable
    if tight.any():
        some = at[tight]
        used = state.used_blocks(lanes, some, state.iteration[some] + 1)
        used += held[tight] - state.fixed[some]
        lacks = some[used > of_rows(state.usable, some)]
        if len(lacks):
            short = np.zeros(len(state.lane), bool)
            short[lacks] = True
            fine = ~short[at]
            at, job, start, left, gap, tokens, reached, held = (
                column[fine] for column in (at, job, start, left, gap, tokens, reached, held)
            )
    last_one = gap == 1
    if last_one.any():
        work.singles[at] = last_one
        work.single_context[at] = start * last_one
        chunk = tokens * ~last_one
    else:
        chunk = tokens
    work.prefill[at] = chunk
    work.pairs[at] = chunk * start + (chunk * (chunk - 1) >> 1)
    work.left[at] = left - tokens
    finished = tokens == gap
    state.computed[at] = reached
    state.fixed[at] = held * ~finished
    state.partial[at] = ~finished
    work.finishing.append((at[finished], job[finished]))
    return short


def _admit(state: LaneState, lanes: Lanes, work: Work, at: Int64Array, seats: Int64Array) -> None:
    """Give prefill to the waiting of the rows `at`, head of line first, one job a row a round."""
    while len(at):
        job, now, left = state.head[at], state.now[at], work.left[at]
        length = lanes.input[job]
        tokens = np.minimum(length, left)
        whole = tokens == length
        promised = state.committed[at] + lanes.final_blocks[job]
        fits = _fitting(state, lanes, work, at, job, tokens, whole, promised)
        if fits is not None:
            at, job, now, left, length, tokens, whole, promised = (
                column[fits] for column in (at, job, now, left, length, tokens, whole, promised)
            )
            if not len(at):
                return
        lanes.scheduled[job] = now
        state.committed[at] = promised
        chunk = tokens
        if lanes.has_single_tokens:
            alone = length == 1
            work.singles[at] += alone
            chunk = tokens * ~alone
        work.prefill[at] += chunk
        work.pairs[at] += chunk * (chunk - 1) >> 1
        left = left - tokens
        work.left[at] = left
        seats[at] -= 1
        following = job + 1
        arrival = lanes.arrival[following]
        state.head[at] = following
        state.next_arrival[at] = arrival
        parts = np.flatnonzero(~whole)
        if len(parts):
            row, computed = at[parts], tokens[parts]
            state.partial[row] = True
            state.computed[row] = computed
            state.fixed[row] = -(-computed // of_rows(state.block_tokens, row))
            work.finishing.append((at[whole], job[whole]))
        else:
            work.finishing.append((at, job))
        more = arrival <= now
        more &= left > 0
        at = at[more]
        if len(at):
            at = at[seats[at] > 0]


def _fitting(
    state: LaneState,
    lanes: Lanes,
    work: Work,
    at: Int64Array,
    job: Int64Array,
    tokens: Int64Array,
    whole: BoolArray,
    promised: Int64Array,
) -> BoolArray | None:
    """Return in which of the rows `at` the head of line may be admitted, None for in all."""
    fits = None
    chunked = of_rows(state.chunked, at)
    if not isinstance(chunked, int) or not chunked:
        fits = whole | (chunked != 0)
    tight = promised > of_rows(state.admissible, at)
    if tight.any():
        some = at[tight]
        entering = np.zeros(len(state.lane), np.int64)
        for row, other in work.finishing:
            entering[row] += lanes.input_blocks[other]
        reach = np.where(
            of_rows(state.whole_must_fit, some), lanes.input[job[tight]], tokens[tight]
        )
        used = state.used_blocks(lanes, some, state.iteration[some] + 1) + entering[some]
        used += -(-reach // of_rows(state.block_tokens, some))
        fits = np.ones(len(at), bool) if fits is None else fits
        fits[tight] &= used <= of_rows(state.admissible, some)
    return None if fits is None or fits.all() else fits


def _prefill(state: LaneState, lanes: Lanes, work: Work) -> BoolArray:
    """Run the iteration that `work` describes; return in which rows there was any."""
    some = work.prefill > 0
    ran = some | (work.singles > 0)
    single = state.decodes + work.singles
    took = lanes.table[work.prefill + single + state.table_begin]
    took += single * state.per_decode
    took += (state.context + work.single_context) * state.per_context
    took += work.pairs * state.per_pair
    took += some * state.mixed
    took *= ran
    state.now += took
    state.iteration += ran
    state.context += state.decodes * ran
    for at, job in work.finishing:
        if len(at):
            state.enter(lanes, at, job)
    state.complete(lanes, np.flatnonzero(state.next_end <= state.iteration))
    return ran


def _decode(
    state: LaneState, lanes: Lanes, goes: BoolArray, blocked: BoolArray
) -> BoolArray | None:
    """Run decode steps up to the next end, but only to the first boundary after an arrival.

    That boundary is estimated in floating point and corrected exactly. Returns who lacks KV.
    """
    b = state.decodes * state.per_context
    a = lanes.decode_table[state.decodes + state.table_begin]
    a += state.context * state.per_context
    steps = state.next_end - state.iteration
    steps *= goes
    took = steps * a
    took += b * (steps * (steps - 1) >> 1)
    span = state.next_arrival - state.now
    # An arrival behind a blocked head, or with no seat left, can't change the batch.
    cut = span < took
    cut &= goes
    cut &= ~blocked
    cut &= state.decodes < state.max_seqs
    cut &= state.decodes < state.max_tokens
    of = np.flatnonzero(cut)
    if len(of):
        some_a, some_b, wide = a[of], b[of], span[of]
        slope = some_a - 0.5 * some_b
        root = np.sqrt(slope * slope + 2.0 * some_b * wide)
        root += slope
        few = np.maximum((NEARLY_2 * wide / root).astype(np.int64), 1)
        lasts = few * some_a + some_b * (few * (few - 1) >> 1)
        while (low := lasts < wide).any():
            lasts += (some_a + few * some_b) * low
            few += low
        steps[of] = few
        took[of] = lasts
    short = None
    tight = state.committed > state.usable
    if tight.any():
        some = np.flatnonzero(tight & goes)
        used = state.used_blocks(lanes, some, state.iteration[some] + steps[some])
        short = np.zeros(len(tight), bool)
        short[some] = used > of_rows(state.usable, some)
    state.now += took
    state.iteration += steps
    state.context += steps * state.decodes
    state.complete(lanes, np.flatnonzero(state.next_end <= state.iteration))
    return short
