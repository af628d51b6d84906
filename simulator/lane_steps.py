"""One step of all lanes at once: a head's prefill, an iteration with what was prefilled, a stretch
of decode steps and an end, each in the rows that have one.

A row never waits for another: where an iteration takes more than one head, or more than one
decode ends with it, the row goes on with that in its next steps while the others run ahead. So a
step is the same few calls for all rows, and those are what it costs: numpy takes a microsecond a
call and half of one for a thousand rows. Semantics: SCHEDULING in scheduler.py; source SIM-1.
"""

import numpy as np
from numpy import count_nonzero

from simulator.iterations import Int64Array
from simulator.lane_state import ONE, SEAT_BITS, ZERO, BoolArray, Lanes, LaneState, of_rows
from simulator.timing import MAX_PS, NEARLY_2


def step(state: LaneState, lanes: Lanes) -> list[Int64Array]:
    """Run each lane on; return which rows lack KV for that and must be handed over.

    Lanes that are over stay as they are.
    """
    state.take_seats()
    arrived = state.next_arrival <= state.now
    idle = ((state.decodes == ZERO) > arrived).nonzero()[0]
    if len(idle):
        idle = idle[state.next_arrival[idle] < MAX_PS]
        state.now[idle] = state.next_arrival[idle]
        arrived[idle] = True
    # Somebody who ended with the last iteration may still have to leave.
    ready = (state.next_key >> SEAT_BITS) > state.iteration
    short: list[Int64Array] = []
    if count_nonzero(arrived):
        arrived &= ready
        ran = _prefill(state, lanes, arrived, short)
        free = state.next_arrival > state.now
        ready &= ~(ran > free)
        ready &= ~state.held
    else:
        free = ~arrived
    _decode(state, lanes, ready, free, short)
    return short


def _prefill(state: LaneState, lanes: Lanes, can: BoolArray, short: list[Int64Array]) -> BoolArray:
    """Give prefill to the heads where they `can` have some; return which rows ran an iteration.

    A row is `held` back from that if its next head may have a share in the same iteration.
    """
    prefill, pairs, joined, joined_context = state.batch
    left = state.max_tokens - state.decodes
    left += joined
    left -= prefill
    can &= left > ZERO
    can &= state.decodes < state.max_seqs
    gap = lanes.input[state.head]
    gap -= state.computed
    tokens = np.minimum(gap, left)
    if not lanes.all_chunked:
        can &= (tokens == gap) | (state.chunked != ZERO)
    tight = state.committed + state.head_blocks > state.admissible
    tight &= can
    if count_nonzero(tight):
        at = tight.nonzero()[0]
        can[at] = _fitting(state, lanes, at, tokens[at], gap[at], short)
    given = can.astype(np.int64)
    tokens *= given
    left -= tokens
    fresh = (state.computed < given).nonzero()[0]
    lanes.scheduled[state.head[fresh]] = state.now[fresh]

    whole = tokens == gap
    state.seat(lanes, whole.nonzero()[0])
    enters = whole.astype(np.int64)
    reach = state.computed + tokens
    context = reach * enters
    twice = reach + state.computed
    twice -= ONE
    state.computed = reach - context
    state.context += context
    state.decodes += enters
    state.committed += state.head_blocks * enters
    state.head += enters
    state.next_arrival = lanes.arrival[state.head]
    state.head_blocks = lanes.final_blocks[state.head]
    alone = gap == ONE
    if count_nonzero(alone):
        alone &= can
        # A last single token is a decode of the batch, whose context is what precedes it.
        state.singles = True
        state.context -= alone
        tokens[alone] = enters[alone] = context[alone] = 0
    twice *= tokens
    prefill += tokens
    pairs += twice
    joined += enters
    joined_context += context

    emits = whole | state.held
    whole &= state.next_arrival <= state.now
    whole &= left > ZERO
    whole &= state.decodes < state.max_seqs
    can |= state.held
    state.held = whole
    ran: BoolArray = can > whole
    emits &= ran
    _run(state, lanes, ran)
    at = emits.nonzero()[0]
    # Those before him who finished their prefill with him are told in the end.
    lanes.first_token[state.head[at] - ONE] = state.now[at]
    return ran


def _fitting(
    state: LaneState,
    lanes: Lanes,
    at: Int64Array,
    tokens: Int64Array,
    gap: Int64Array,
    short: list[Int64Array],
) -> BoolArray:
    """Return in which of the rows `at` KV suffices for so many tokens of the head's gap.

    A row whose head has begun and lacks KV is `short`.
    """
    before = state.computed[at]
    begun = before > 0
    whole_must_fit = (of_rows(state.whole_must_fit, at) != 0) & ~begun
    block_tokens = of_rows(state.block_tokens, at)
    reach = before + np.where(whole_must_fit, gap, tokens)
    used = state.used_blocks(lanes, at, state.iteration[at] + 1)
    used += -(-reach // block_tokens) - -(-before // block_tokens)
    limit = np.where(begun, of_rows(state.usable, at), of_rows(state.admissible, at))
    fits: BoolArray = used <= limit
    lacks = at[begun & ~fits]
    if len(lacks):
        short.append(lacks)
    return fits


def _run(state: LaneState, lanes: Lanes, ran: BoolArray) -> None:
    """Run the iteration in the rows that `ran`; those held go on with their batch."""
    prefill, pairs, joined, joined_context = state.batch
    runs = ran.astype(np.int64)
    decodes = state.decodes - joined
    took = lanes.decode_table[prefill + decodes + state.table_begin]
    took -= prefill * state.per_decode
    context = state.context - joined_context
    context *= state.per_context
    took += context
    half = pairs >> ONE
    half *= state.per_pair
    took += half
    took += state.mixed * (prefill > ZERO) if state.singles else state.mixed
    took *= runs
    state.now += took
    state.iteration += runs
    decodes *= runs
    state.context += decodes
    if count_nonzero(state.held):
        state.batch *= state.held.astype(np.int64)
    else:
        state.batch.fill(0)
        state.singles = False


def _decode(
    state: LaneState, lanes: Lanes, goes: BoolArray, free: BoolArray, short: list[Int64Array]
) -> None:
    """Run decode steps up to the next end, then let one leave who has come to his.

    Only to the first boundary after an arrival where nobody has arrived yet (`free`) and there is
    a seat: an arrival behind a head that can't be admitted can't change the batch.
    """
    goes &= state.decodes > ZERO
    next_end = state.next_key >> SEAT_BITS
    steps = next_end - state.iteration
    steps *= goes.astype(np.int64)
    b = state.decodes * state.per_context
    a = lanes.decode_table[state.decodes + state.table_begin]
    a += state.context * state.per_context
    took = _stretch(steps, a, b)
    span = state.next_arrival - state.now
    cut = span < took
    cut &= free
    cut &= state.decodes < state.max_seqs
    cut &= state.decodes < state.max_tokens
    at = cut.nonzero()[0]
    if len(at):
        steps[at], took[at] = _until(span[at], a[at], b[at])
    tight = state.committed + state.head_blocks > state.usable
    tight &= goes
    if count_nonzero(tight):
        at = tight.nonzero()[0]
        # Only a head that has begun holds any.
        head = state.head_blocks[at] * (state.computed[at] > 0)
        at = at[state.committed[at] + head > of_rows(state.usable, at)]
        used = state.used_blocks(lanes, at, state.iteration[at] + steps[at])
        short.append(at[used > of_rows(state.usable, at)])
    state.now += took
    state.iteration += steps
    steps *= state.decodes
    state.context += steps
    at = (next_end <= state.iteration).nonzero()[0]
    if len(at):
        state.complete(lanes, at)


def _stretch(steps: Int64Array, a: Int64Array, b: Int64Array) -> Int64Array:
    """Return the time of so many decode steps, the first of which takes a, each next b more."""
    took: Int64Array = steps - ONE
    took *= steps
    took >>= ONE
    took *= b
    took += steps * a
    return took


def _until(span: Int64Array, a: Int64Array, b: Int64Array) -> tuple[Int64Array, Int64Array]:
    """Return the fewest steps whose stretch lasts as long as `span` (positive), and its time.

    Estimated in floating point, always below the exact root, and then corrected exactly.
    """
    slope = a - 0.5 * b
    root = slope * slope
    root += 2.0 * b * span
    np.sqrt(root, out=root)
    root += slope
    few = (NEARLY_2 * span / root).astype(np.int64)
    few += ONE
    took = _stretch(few, a, b)
    while count_nonzero(low := took < span):
        took += (a + few * b) * low
        few += low
    return few, took
