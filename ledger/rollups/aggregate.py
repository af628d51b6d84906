"""What a batch of receipts adds to the rollups. Pure.

A receipt counts once, under the time of its acceptance. One that resolves another comes with its
predecessor, which is taken away again. Latencies: TTFT, mean ITL and queue time where they were
measured, e2e of completed requests alone.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from ledger.histograms import bucket_of
from ledger.money import split
from ledger.records import Receipt
from ledger.rollups.outcomes import Change
from ledger.rollups.tables import (
    COSTS,
    COUNTS,
    LATENCIES,
    MINUTE_US,
    OUTCOME_COUNTS,
    QUARTER,
    grain_us,
)
from ledger.slo import (
    Judge,
    SloDefinition,
    judge_for,
    user_cancelled_unserved,
    valid_completion,
)

Dimensions = tuple[str, ...]
Objective = tuple[SloDefinition, Judge]
Place = tuple[int, Dimensions]  # quarter hour, dimensions
Histogram = dict[int, int]  # bucket -> count, which may be negative in a batch
QUARTER_US = grain_us(QUARTER)
SHAPES_LIMIT = 100_000
FIRST_OUTCOME = COUNTS.index(OUTCOME_COUNTS[0])


@dataclass(frozen=True, slots=True)
class Shape:
    """What follows from dimensions alone: the latency series, the objectives that cover it."""

    series: Dimensions
    objectives: tuple[Objective, ...]


def _counters() -> dict[tuple[str, int], list[int]]:
    return defaultdict(lambda: [0, 0])


def _histograms() -> tuple[Histogram, ...]:
    return tuple(defaultdict(int) for _ in LATENCIES)


@dataclass(slots=True)
class Group:
    """The receipts of one batch that share a quarter hour and all dimensions."""

    sums: list[int]  # tables.COUNTS, then tables.COSTS in pico
    latencies: tuple[Histogram, ...]  # tables.LATENCIES; shared by groups of one latency series
    objectives: tuple[Objective, ...]  # those that these receipts count under
    minutes: dict[int, list[tuple[SloDefinition, Judge, list[int]]]] = field(default_factory=dict)


@dataclass(slots=True)
class Batch:
    """Sums by (quarter hour, dimensions); histograms likewise; SLO counts by (key, minute)."""

    groups: dict[Place, Group] = field(default_factory=dict)
    latencies: dict[Place, tuple[Histogram, ...]] = field(default_factory=dict)
    sli: dict[tuple[str, int], list[int]] = field(default_factory=_counters)

    @property
    def newest_us(self) -> int:
        """The newest quarter hour that the batch touches; 0 where it is empty."""
        return max((bucket_us for bucket_us, _ in self.groups), default=0)

    def take_away(self, other: "Batch") -> None:
        """Makes the other batch's receipts count once less."""
        for place, group in other.groups.items():
            mine = self.groups.setdefault(place, Group([0] * len(group.sums), (), ()))
            mine.sums = [kept - gone for kept, gone in zip(mine.sums, group.sums, strict=True)]
        for place, histograms in other.latencies.items():
            kept = self.latencies.setdefault(place, _histograms())
            for histogram, gone in zip(kept, histograms, strict=True):
                for bucket, count in gone.items():
                    histogram[bucket] -= count
        for minute, (good, valid) in other.sli.items():
            counts = self.sli[minute]
            counts[0] -= good
            counts[1] -= valid


class Aggregator:
    """Adds receipts up for one set of objectives; remembers what follows from dimensions alone."""

    def __init__(self, definitions: Sequence[SloDefinition]) -> None:
        self._definitions = tuple(definitions)
        self._shapes: dict[Dimensions, Shape] = {}

    def aggregate(self, added: Iterable[Receipt], removed: Iterable[Receipt] = ()) -> Batch:
        """The batch that adds and takes away these receipts' contributions."""
        if len(self._shapes) > SHAPES_LIMIT:
            self._shapes.clear()
        batch, gone = Batch(), Batch()
        for receipt in added:
            self._contribute(batch, receipt)
        for receipt in removed:
            self._contribute(gone, receipt)
        for each in (batch, gone):  # counters were made for every objective, counted or not
            for uncounted in [key for key, counts in each.sli.items() if not counts[1]]:
                del each.sli[uncounted]
        batch.take_away(gone)
        return batch

    def add_outcomes(self, batch: Batch, changes: Iterable[Change]) -> None:
        """Adds what outcome reports change to the places of their receipts."""
        for change in changes:
            accepted_us = change.receipt.accepted_at_us
            place = (accepted_us - accepted_us % QUARTER_US, dimensions_of(change.receipt))
            group = batch.groups.get(place)
            if group is None:
                group = batch.groups[place] = Group([0] * (len(COUNTS) + len(COSTS)), (), ())
            for offset, count in enumerate(change.counts, start=FIRST_OUTCOME):
                group.sums[offset] += count

    def _contribute(self, batch: Batch, receipt: Receipt) -> None:
        """Adds one receipt. The hot path: some µs for each receipt, written out for that."""
        accepted_us = receipt.accepted_at_us
        key = (accepted_us - accepted_us % QUARTER_US, dimensions_of(receipt))
        group = batch.groups.get(key)
        if group is None:
            group = batch.groups[key] = self._new_group(batch, receipt, key)
        sums, status = group.sums, receipt.status
        sums[0] += 1
        if status == "completed":
            sums[1] += 1
            if valid_completion(receipt):
                sums[2] += 1
        elif status != "rejected" and not user_cancelled_unserved(receipt):
            sums[1] += 1
        sums[3] += receipt.input_tokens
        sums[4] += receipt.cached_input_tokens
        sums[5] += receipt.output_tokens
        sums[6] += receipt.attempts
        # From 7 on, OUTCOME_COUNTS: they come with reports, not with receipts.
        sums[12] += receipt.cost_input_pico
        sums[13] += receipt.cost_cached_input_pico
        sums[14] += receipt.cost_output_pico
        sums[15] += receipt.cost_fixed_pico
        sums[16] += receipt.cost_other_pico
        sums[17] += receipt.cost_retry_and_hedge_pico
        sums[18] += receipt.cost_total_pico
        if status != "rejected":
            ttft, itl, e2e, queue = group.latencies
            if (value_us := receipt.first_token_us) is not None:
                ttft[bucket_of(value_us)] += 1
            if (value_us := receipt.itl_mean_us) is not None:
                itl[bucket_of(value_us)] += 1
            if (value_us := receipt.queue_us) is not None:
                queue[bucket_of(value_us)] += 1
            if status == "completed":
                e2e[bucket_of(receipt.e2e_us)] += 1
        minute_us = accepted_us - accepted_us % MINUTE_US
        counting = group.minutes.get(minute_us)
        if counting is None:
            counting = group.minutes[minute_us] = [
                (definition, judge, batch.sli[definition.key, minute_us])
                for definition, judge in group.objectives
            ]
        for definition, judge, counts in counting:
            verdict = judge(definition, receipt)
            if verdict is not None:
                counts[1] += 1
                if verdict == "good":
                    counts[0] += 1

    def _new_group(self, batch: Batch, receipt: Receipt, key: Place) -> Group:
        shape = self._shapes.get(key[1])
        if shape is None:
            shape = self._shapes[key[1]] = self._shape(receipt)
        place = (key[0], shape.series)
        latencies = batch.latencies.get(place)
        if latencies is None:
            latencies = batch.latencies[place] = _histograms()
        counting = tuple([one for one in shape.objectives if one[0].counts_at(key[0])])
        return Group([0] * (len(COUNTS) + len(COSTS)), latencies, counting)

    def _shape(self, receipt: Receipt) -> Shape:
        # What a selector asks for are dimensions, so one answer holds for all receipts of a group.
        covering = tuple(
            (one, judge_for(one)) for one in self._definitions if one.selector.covers(receipt)
        )
        series = (
            receipt.logical_model,
            receipt.identity_id or "",
            receipt.route_id or "",
            receipt.priority,
            receipt.release_id or "",
            receipt.arm or "",
        )
        return Shape(series, covering)


def dimensions_of(receipt: Receipt) -> Dimensions:
    """The receipt's place in `tables.DIMENSIONS`, "" for what it has not."""
    return (
        receipt.tenant_id,
        receipt.key_id,
        receipt.logical_model,
        receipt.identity_id or "",
        receipt.route_id or "",
        receipt.priority,
        receipt.user_path,
        receipt.task_type,
        receipt.release_id or "",
        receipt.arm or "",
        receipt.status,
        receipt.terminal_error_code or "",
        "" if receipt.degraded_from is None else "1",
        "" if receipt.schema_valid is None else str(receipt.schema_valid),
        receipt.tags_json,
    )


def measures_of(values: Sequence[int]) -> tuple[int, ...]:
    """`tables.MEASURES` of a batch's sums: the counts, then each cost as its two limbs."""
    counts = len(COUNTS)
    limbs = [limb for cost_pico in values[counts:] for limb in split(cost_pico)]
    return (*values[:counts], *limbs)
