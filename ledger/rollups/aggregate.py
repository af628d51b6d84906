"""What a batch of receipts adds to the rollups. Pure.

A receipt counts once, under the time of its acceptance. One that resolves another comes with its
predecessor, which is taken away again. Latencies: TTFT, mean ITL and queue time where they were
measured, e2e of completed requests alone.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

from ledger.histograms import bucket_of, buckets_of
from ledger.money import split
from ledger.receipt_cost import unpriced
from ledger.records import Receipt
from ledger.rollups.outcomes import Change
from ledger.rollups.tables import (
    COSTS,
    COUNTS,
    DIMENSIONS,
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
from ledger.slo_tally import Completed, Tally, tally_for

Dimensions = tuple[str, ...]
Objective = tuple[SloDefinition, Judge, Callable[[SloDefinition, Completed], Tally] | None]
Place = tuple[int, Dimensions]  # quarter hour, dimensions
Histogram = dict[int, int]  # bucket -> count, which may be negative in a batch
QUARTER_US = grain_us(QUARTER)
SHAPES_LIMIT = 100_000
FEW = 4  # equal receipts that are added one by one sooner than column by column
UNPRICED = COUNTS.index("unpriced")
FIRST_OUTCOME = COUNTS.index(OUTCOME_COUNTS[0])


@dataclass(frozen=True, slots=True)
class Shape:
    """What follows from dimensions alone: the latency series, the objectives that cover it."""

    series: Dimensions
    objectives: tuple[Objective, ...]


def _counters() -> dict[tuple[str, int], list[int]]:
    return defaultdict(lambda: [0, 0])


def _histograms() -> tuple[Histogram, ...]:
    return tuple([{} for _ in LATENCIES])


@dataclass(slots=True)
class Group:
    """The receipts of one batch that share a quarter hour and all dimensions."""

    sums: list[int]  # tables.COUNTS, then tables.COSTS in pico
    latencies: tuple[Histogram, ...]  # tables.LATENCIES; shared by groups of one latency series
    objectives: tuple[Objective, ...]  # those that these receipts count under


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
                    histogram[bucket] = histogram.get(bucket, 0) - count
        for minute, (good, valid) in other.sli.items():
            counts = self.sli[minute]
            counts[0] -= good
            counts[1] -= valid


class Aggregator:
    """Adds receipts up for one set of objectives; remembers what follows from dimensions alone."""

    def __init__(self, definitions: Sequence[SloDefinition]) -> None:
        self._definitions = tuple(definitions)
        self._shapes: dict[Dimensions, Shape] = {}

    def aggregate(self, added: Sequence[Receipt], removed: Sequence[Receipt] = ()) -> Batch:
        """The batch that adds and takes away these receipts' contributions."""
        if len(self._shapes) > SHAPES_LIMIT:
            self._shapes.clear()
        batch = Batch()
        self._add(batch, added)
        if removed:
            gone = Batch()
            self._add(gone, removed)
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

    def _add(self, batch: Batch, receipts: Sequence[Receipt]) -> None:
        """Adds receipts. They are put together by minute and dimensions first: what is the same
        for many is then asked once, and their numbers are added up column by column."""
        if len(receipts) <= FEW:
            for receipt in receipts:
                self._add_one(batch, receipt)
            return
        cells: dict[tuple[int, Dimensions], list[Receipt]] = {}
        for receipt in receipts:
            accepted_us = receipt.accepted_at_us
            cell = (accepted_us - accepted_us % MINUTE_US, _place_fields(receipt))
            alike = cells.get(cell)
            if alike is None:
                cells[cell] = [receipt]
            else:
                alike.append(receipt)
        for (minute_us, _), alike in cells.items():
            if len(alike) > FEW:
                self._add_alike(batch, minute_us, alike)
            else:
                for receipt in alike:
                    self._add_one(batch, receipt)

    def _add_one(self, batch: Batch, receipt: Receipt) -> None:
        """As `_add_alike` of one: to make columns of few takes longer than to add each."""
        group, measured = self._group(batch, receipt), _measure_fields(receipt)
        sums, status = group.sums, receipt.status
        sums[0] += 1
        for offset, value in zip(_SUMMED, measured[:_SUMS], strict=True):
            sums[offset] += value
        sums[UNPRICED] += unpriced(receipt)
        minute_us = receipt.accepted_at_us - receipt.accepted_at_us % MINUTE_US
        for definition, judge, _ in group.objectives:
            verdict = judge(definition, receipt)
            if verdict is not None:
                counts = batch.sli[definition.key, minute_us]
                counts[0] += verdict == "good"
                counts[1] += 1
        if status == "rejected":
            return
        completed = status == "completed"
        sums[1] += completed or not user_cancelled_unserved(receipt)
        sums[2] += completed and valid_completion(receipt)
        first_token_us, itl_mean_us, queue_us, e2e_us, *_ = measured[_SUMS:]
        durations_us = (first_token_us, itl_mean_us, e2e_us if completed else None, queue_us)
        for histogram, value_us in zip(group.latencies, durations_us, strict=True):
            if value_us is not None:
                bucket = bucket_of(value_us)
                histogram[bucket] = histogram.get(bucket, 0) + 1

    def _add_alike(self, batch: Batch, minute_us: int, receipts: Sequence[Receipt]) -> None:
        """Adds receipts of one minute and equal dimensions."""
        one, number = receipts[0], len(receipts)
        group = self._group(batch, one)
        picked = list(zip(*map(_measure_fields, receipts), strict=True))
        sums, status = group.sums, one.status
        sums[0] += number
        for offset, column in zip(_SUMMED, picked[:_SUMS], strict=True):
            sums[offset] += sum(column)
        sums[UNPRICED] += sum(map(unpriced, receipts))
        first_token_us, itl_mean_us, queue_us, e2e_us, deadline_us, cancel_ack_us = picked[_SUMS:]
        if status == "rejected":
            self._judge_each(batch, minute_us, group.objectives, receipts)
            return
        ttft, itl, e2e, queue = group.latencies
        _count(ttft, first_token_us)
        _count(itl, itl_mean_us)
        _count(queue, queue_us)
        if status != "completed":
            sums[1] += sum(not user_cancelled_unserved(receipt) for receipt in receipts)
            self._judge_each(batch, minute_us, group.objectives, receipts)
            return
        _count(e2e, e2e_us)
        completed = Completed(
            output_tokens=picked[2],
            first_token_us=first_token_us,
            itl_mean_us=itl_mean_us,
            queue_us=queue_us,
            e2e_us=e2e_us,
            deadline_us=deadline_us,
            cancel_ack_us=cancel_ack_us,
            cost_total_pico=picked[10],
            degraded=one.degraded_from is not None,
            schema_valid=one.schema_valid,
        )
        sums[1] += number
        sums[2] += sum(completed.valid())
        for definition, judge, tally in group.objectives:
            if tally is None:
                self._judge_each(batch, minute_us, ((definition, judge, tally),), receipts)
                continue
            good, valid = tally(definition, completed)
            if valid:
                counts = batch.sli[definition.key, minute_us]
                counts[0] += good
                counts[1] += valid

    def _judge_each(
        self,
        batch: Batch,
        minute_us: int,
        objectives: Sequence[Objective],
        receipts: Sequence[Receipt],
    ) -> None:
        for definition, judge, _ in objectives:
            verdicts = [judge(definition, receipt) for receipt in receipts]
            good, bad = verdicts.count("good"), verdicts.count("bad")
            if good or bad:
                counts = batch.sli[definition.key, minute_us]
                counts[0] += good
                counts[1] += good + bad

    def _group(self, batch: Batch, receipt: Receipt) -> Group:
        """Where a receipt counts in the batch: a new group where it is the first of its kind."""
        accepted_us = receipt.accepted_at_us
        key = (accepted_us - accepted_us % QUARTER_US, dimensions_of(receipt))
        group = batch.groups.get(key)
        if group is None:
            group = batch.groups[key] = self._new_group(batch, receipt, key)
        return group

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
            (one, judge_for(one), tally_for(one))
            for one in self._definitions
            if one.selector.covers(receipt)
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


_place_fields: Callable[[Receipt], Dimensions] = attrgetter(
    *(name for name in DIMENSIONS if name not in ("reason", "degraded", "tags")),
    "terminal_error_code",
    "degraded_from",
    "tags_json",
)
"""What `dimensions_of` and the selectors of objectives ask of a receipt, but for its tokens."""

_measure_fields: Callable[[Receipt], tuple[Any, ...]] = attrgetter(
    "input_tokens",
    "cached_input_tokens",
    "output_tokens",
    "attempts",
    *(f"{cost}_pico" for cost in COSTS),
    "first_token_us",
    "itl_mean_us",
    "queue_us",
    "e2e_us",
    "deadline_us",
    "cancel_ack_us",
)
# Where the first of them are added up, by place in a group's sums. OUTCOME_COUNTS come with
# reports, not with receipts; `judged`, `valid` and `unpriced` are counted, not added.
_SUMMED = (
    *(COUNTS.index(name) for name in ("input_tokens", "cached_input_tokens", "output_tokens")),
    COUNTS.index("attempts"),
    *range(len(COUNTS), len(COUNTS) + len(COSTS)),
)
_SUMS = len(_SUMMED)


def _count(histogram: Histogram, values_us: Sequence[int | None]) -> None:
    for bucket, count in Counter(buckets_of(values_us)).items():
        histogram[bucket] = histogram.get(bucket, 0) + count


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
