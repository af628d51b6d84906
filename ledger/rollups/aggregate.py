"""What a batch of receipts adds to the rollups. Pure.

A receipt counts once, under the time of its acceptance. One that resolves another comes with its
predecessor, which is taken away again. Latencies: TTFT, mean ITL and queue time where they were
measured, e2e of completed requests alone.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from ledger.histograms import bucket_of
from ledger.money import split
from ledger.records import Receipt
from ledger.rollups.tables import COSTS, COUNTS, MINUTE_US, QUARTER, grain_us
from ledger.slo import (
    SloDefinition,
    judge_covered,
    user_cancelled_unserved,
    valid_completion,
)

Dimensions = tuple[str, ...]
Histogram = dict[int, int]  # bucket -> count, which may be negative in a batch
QUARTER_US = grain_us(QUARTER)


@dataclass(slots=True)
class Group:
    """The receipts of one batch that share a quarter hour and all dimensions."""

    sums: list[int]  # tables.COUNTS, then tables.COSTS in pico
    latencies: tuple[Histogram, ...]  # tables.LATENCIES; shared by groups of one latency series
    definitions: tuple[SloDefinition, ...]  # the objectives that cover these receipts


@dataclass(slots=True)
class Batch:
    """Sums by (quarter hour, dimensions); histograms likewise; SLO counts by (key, minute)."""

    groups: dict[tuple[int, Dimensions], Group] = field(default_factory=dict)
    latencies: dict[tuple[int, Dimensions], tuple[Histogram, ...]] = field(default_factory=dict)
    sli: dict[tuple[str, int], list[int]] = field(default_factory=dict)
    newest_us: int = 0


def aggregate(
    added: Iterable[Receipt], removed: Iterable[Receipt], definitions: Sequence[SloDefinition]
) -> Batch:
    """The batch that adds and takes away these receipts' contributions."""
    batch = Batch()
    for receipt in added:
        _contribute(batch, receipt, 1, definitions)
    for receipt in removed:
        _contribute(batch, receipt, -1, definitions)
    batch.newest_us = max((bucket_us for bucket_us, _ in batch.groups), default=0)
    return batch


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
    )


def measures_of(values: Sequence[int]) -> tuple[int, ...]:
    """`tables.MEASURES` of a batch's sums: the counts, then each cost as its two limbs."""
    counts = len(COUNTS)
    limbs = [limb for cost_pico in values[counts:] for limb in split(cost_pico)]
    return (*values[:counts], *limbs)


def _contribute(
    batch: Batch, receipt: Receipt, sign: int, definitions: Sequence[SloDefinition]
) -> None:
    """Adds one receipt (sign 1) or takes it away (-1). The hot path: a few µs for each receipt."""
    accepted_us = receipt.accepted_at_us
    key = (accepted_us - accepted_us % QUARTER_US, dimensions_of(receipt))
    group = batch.groups.get(key)
    if group is None:
        group = batch.groups[key] = _new_group(batch, receipt, key[0], definitions)
    sums, status = group.sums, receipt.status
    sums[0] += sign
    if status == "completed":
        sums[1] += sign
        sums[2] += sign * valid_completion(receipt)
    elif status != "rejected" and not user_cancelled_unserved(receipt):
        sums[1] += sign
    sums[3] += sign * receipt.input_tokens
    sums[4] += sign * receipt.cached_input_tokens
    sums[5] += sign * receipt.output_tokens
    sums[6] += sign * receipt.attempts
    sums[7] += sign * receipt.cost_input_pico
    sums[8] += sign * receipt.cost_cached_input_pico
    sums[9] += sign * receipt.cost_output_pico
    sums[10] += sign * receipt.cost_fixed_pico
    sums[11] += sign * receipt.cost_retry_and_hedge_pico
    sums[12] += sign * receipt.cost_total_pico
    if status != "rejected":
        ttft, itl, e2e, queue = group.latencies
        _count(ttft, receipt.first_token_us, sign)
        _count(itl, receipt.itl_mean_us, sign)
        _count(queue, receipt.queue_us, sign)
        if status == "completed":
            _count(e2e, receipt.e2e_us, sign)
    for definition in group.definitions:
        verdict = judge_covered(definition, receipt)
        if verdict is not None:
            minute = (definition.key, accepted_us - accepted_us % MINUTE_US)
            counts = batch.sli.get(minute)
            if counts is None:
                counts = batch.sli[minute] = [0, 0]
            if verdict == "good":
                counts[0] += sign
            counts[1] += sign


def _new_group(
    batch: Batch, receipt: Receipt, bucket_us: int, definitions: Sequence[SloDefinition]
) -> Group:
    # What a selector asks for are dimensions, so one answer holds for the whole group.
    covering = tuple(one for one in definitions if one.selector.covers(receipt))
    series = (
        receipt.logical_model,
        receipt.identity_id or "",
        receipt.route_id or "",
        receipt.priority,
        receipt.release_id or "",
        receipt.arm or "",
    )
    latencies = batch.latencies.setdefault((bucket_us, series), ({}, {}, {}, {}))
    return Group([0] * (len(COUNTS) + len(COSTS)), latencies, covering)


def _count(histogram: Histogram, value_us: int | None, sign: int) -> None:
    if value_us is not None:
        bucket = bucket_of(value_us)
        histogram[bucket] = histogram.get(bucket, 0) + sign
