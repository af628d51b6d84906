"""One step of all lanes at once: an iteration with prefill where there is any, then a stretch.

Where about half of the rows have something to do it is worked out for those alone, else for all
rows with masks: numpy takes a microsecond a call and another one for a thousand rows, and twice
that to gather or scatter. Semantics: SCHEDULING in scheduler.py; source SIM-1.
"""

import numpy as np
from numpy import count_nonzero

from simulator.iterations import Int64Array
from simulator.lane_state import BoolArray, Lanes, LaneState, of_rows
from simulator.timing import MAX_PS, NEARLY_2


def step(state: LaneState, lanes: Lanes) -> BoolArray | None:
    """Run each lane on; return which lack KV for that and must be handed over, None for nobody.

    Lanes that are over stay as they are.
    """
    idle = state.decodes == 0
    idle &= state.computed == 0
    idle &= state.next_arrival < MAX_PS
    np.maximum(state.now, state.next_arrival, out=state.now, where=idle)
    blocked = state.next_arrival <= state.now
    short = None
    if count_nonzero(blocked):
        work = Work(state)
        can = blocked & (work.left > 0)
        can &= state.decodes < state.max_seqs
        work.admit(lanes, can.nonzero()[0])
        short = work.short
        blocked &= ~work.run(lanes)
    goes = state.next_arrival > state.now
    goes |= blocked
    goes &= state.decodes > 0
    if short is not None:
        goes &= ~short
    lacking = _decode(state, lanes, goes, blocked)
    # Who ended with the prefill has waited until here: no step was left to him.
    state.complete(lanes, (state.next_end <= state.iteration).nonzero()[0])
    if short is None or lacking is None:
        return short if lacking is None else lacking
    return short | lacking


class Work:
    """One iteration's prefill by row; `left` of the budget, `short` where a chunk lacks KV.

    What the decodes were before it is kept aside, because who finishes his prefill joins them at
    once. `singles` are last single tokens, which count as decodes.
    """

    def __init__(self, state: LaneState) -> None:
        rows = len(state.lane)
        self.state = state
        self.decodes, self.context = state.decodes.copy(), state.context.copy()
        self.left = state.max_tokens - self.decodes
        self.prefill, self.pairs = np.zeros(rows, np.int64), np.zeros(rows, np.int64)
        self.singles: Int64Array | None = None
        self.short: BoolArray | None = None
        self.finished: list[tuple[Int64Array, Int64Array]] = []

    def admit(self, lanes: Lanes, at: Int64Array) -> None:
        """Give prefill to the heads of the rows `at`, begun or not, one a row a round."""
        state = self.state
        begun: BoolArray | None = state.computed[at] > 0
        while len(at):
            job, now, left = state.head[at], state.now[at], self.left[at]
            gap, final = lanes.input[job], lanes.final_blocks[job]
            if begun is not None and count_nonzero(begun):
                start = state.computed[at]
                gap, final = gap - start, final * ~begun
            else:
                begun, start = None, None
            tokens = np.minimum(gap, left)
            promised = state.committed[at] + final
            fits = self._fitting(lanes, at, job, tokens, gap, start, promised)
            if fits is not None:
                at, job, now, left = at[fits], job[fits], now[fits], left[fits]
                gap, tokens, promised = gap[fits], tokens[fits], promised[fits]
                if begun is not None and start is not None:
                    begun, start = begun[fits], start[fits]
                if not len(at):
                    return
            state.committed[at] = promised
            lanes.scheduled[job] = now if begun is None else np.where(
                begun, lanes.scheduled[job], now
            )  # fmt: skip
            self._charge(lanes, at, gap, tokens, start)
            left = left - tokens
            self.left[at] = left
            whole = tokens == gap
            if start is not None or count_nonzero(whole) < len(whole):
                reached = tokens if start is None else tokens + start
                state.computed[at] = reached * ~whole
                at, job, now, left = at[whole], job[whole], now[whole], left[whole]
                if not len(at):
                    return
            state.enter(lanes, at, job)
            self.finished.append((at, job))
            job = job + 1
            arrival = lanes.arrival[job]
            state.head[at], state.next_arrival[at] = job, arrival
            more = arrival <= now
            more &= left > 0
            at = at[more]
            at = at[state.decodes[at] < of_rows(state.max_seqs, at)]
            begun = None

    def _charge(
        self,
        lanes: Lanes,
        at: Int64Array,
        gap: Int64Array,
        tokens: Int64Array,
        start: Int64Array | None,
    ) -> None:
        """Count `tokens` of the `gap` of each row `at`, behind those from `start`."""
        if start is not None or lanes.has_single_tokens:
            alone = gap == 1
            if count_nonzero(alone):
                if self.singles is None:
                    self.singles = np.zeros(len(self.left), np.int64)
                self.singles[at] += alone
                tokens = tokens * ~alone
                if start is not None:
                    self.context[at] += start * alone
        self.prefill[at] += tokens
        pairs = tokens * (tokens - 1) >> 1
        self.pairs[at] += pairs if start is None else pairs + tokens * start

    def _fitting(
        self,
        lanes: Lanes,
        at: Int64Array,
        job: Int64Array,
        tokens: Int64Array,
        gap: Int64Array,
        start: Int64Array | None,
        promised: Int64Array,
    ) -> BoolArray | None:
        """Return in which of the rows `at` the head gets its tokens, None for in all.

        A head that has begun and lacks KV makes its row `short`.
        """
        state, fits = self.state, None
        chunked = of_rows(state.chunked, at)
        if not isinstance(chunked, int) or not chunked:
            fits = (tokens == gap) | (chunked != 0)
        tight = promised > of_rows(state.admissible, at)
        if count_nonzero(tight):
            some = at[tight]
            before = np.zeros(len(some), np.int64) if start is None else start[tight]
            begun = before > 0
            whole_must_fit = (of_rows(state.whole_must_fit, some) != 0) & ~begun
            block_tokens = of_rows(state.block_tokens, some)
            reach = before + np.where(whole_must_fit, gap[tight], tokens[tight])
            used = state.used_blocks(lanes, some, state.iteration[some] + 1)
            used += -(-reach // block_tokens) - -(-before // block_tokens)
            limit = np.where(begun, of_rows(state.usable, some), of_rows(state.admissible, some))
            fits = np.ones(len(at), bool) if fits is None else fits
            fits[tight] &= used <= limit
            lacks = some[begun & (used > limit)]
            if len(lacks):
                self.short = np.zeros(len(self.left), bool)
                self.short[lacks] = True
        return None if fits is None or count_nonzero(fits) == len(fits) else fits

    def run(self, lanes: Lanes) -> BoolArray:
        """Run the iteration; return in which rows there was any."""
        state = self.state
        some = self.prefill > 0
        if self.singles is None:
            ran, single = some, self.decodes
        else:
            ran, single = some | (self.singles > 0), self.decodes + self.singles
        took = lanes.decode_table[self.prefill + single + state.table_begin]
        took -= self.prefill * state.per_decode
        took += self.context * state.per_context
        took += self.pairs * state.per_pair
        took += some * state.mixed
        took *= ran
        state.now += took
        state.iteration += ran
        state.context += self.decodes * ran
        for at, job in self.finished:
            lanes.first_token[job] = state.now[at]
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
    of = cut.nonzero()[0]
    if len(of):
        some_a, some_b, wide = a[of], b[of], span[of]
        slope = some_a - 0.5 * some_b
        root = slope * slope
        root += 2.0 * some_b * wide
        np.sqrt(root, out=root)
        root += slope
        few = (NEARLY_2 * wide / root).astype(np.int64)
        np.maximum(few, 1, out=few)
        lasts = few * some_a
        lasts += some_b * (few * (few - 1) >> 1)
        while count_nonzero(low := lasts < wide):
            lasts += (some_a + few * some_b) * low
            few += low
        steps[of] = few
        took[of] = lasts
    short = None
    tight = state.committed > state.usable
    if count_nonzero(tight):
        some = (tight & goes).nonzero()[0]
        used = state.used_blocks(lanes, some, state.iteration[some] + steps[some])
        short = np.zeros(len(tight), bool)
        short[some] = used > of_rows(state.usable, some)
    state.now += took
    state.iteration += steps
    state.context += steps * state.decodes
    return short
