"""What a batch of receipts adds to the rollups. Pure.

A receipt counts once, under the time of its acceptance. One that resolves another comes with its
predecessor, which is taken away again.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from ledger.histograms import bucket_of
from ledger.money import split
from ledger.records import Receipt
from ledger.rollups.tables import MINUTE_US, QUARTER, grain_us
from ledger.slo import SloDefinition, judge, user_cancelled_unserved, valid_completion

Dimensions = tuple[str, ...]
Histogram = dict[int, int]  # bucket -> count, which may be negative in a batch
QUARTER_US = grain_us(QUARTER)


@dataclass(slots=True)
class Batch:
    """Sums by (quarter hour, dimensions); histograms likewise; SLO counts by (key, minute)."""

    totals: dict[tuple[int, Dimensions], list[int]] = field(default_factory=dict)
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
    )


def measures_of(values: Sequence[int]) -> tuple[int, ...]:
    """`tables.MEASURES` of a batch's sums: the counts, then each cost as its two limbs."""
    limbs = [limb for cost_pico in values[7:] for limb in split(cost_pico)]
    return (*values[:7], *limbs)


def _contribute(
    batch: Batch, receipt: Receipt, sign: int, definitions: Sequence[SloDefinition]
) -> None:
    accepted_us = receipt.accepted_at_us
    bucket_us = accepted_us - accepted_us % QUARTER_US
    batch.newest_us = max(batch.newest_us, bucket_us)
    key = (bucket_us, dimensions_of(receipt))
    sums = batch.totals.get(key)
    if sums is None:
        sums = batch.totals[key] = [0] * 13
    judged = receipt.status != "rejected" and not user_cancelled_unserved(receipt)
    sums[0] += sign
    sums[1] += sign * judged
    sums[2] += sign * valid_completion(receipt)
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
    if receipt.status != "rejected":
        _count_latencies(batch, receipt, bucket_us, sign)
    minute_us = accepted_us - accepted_us % MINUTE_US
    for definition in definitions:
        verdict = judge(definition, receipt)
        if verdict is not None:
            counts = batch.sli.setdefault((definition.key, minute_us), [0, 0])
            counts[0] += sign * (verdict == "good")
            counts[1] += sign


def _count_latencies(batch: Batch, receipt: Receipt, bucket_us: int, sign: int) -> None:
    """TTFT, mean ITL and queue where they were measured; e2e of completed requests alone."""
    key = (
        bucket_us,
        (
            receipt.logical_model,
            receipt.identity_id or "",
            receipt.route_id or "",
            receipt.priority,
            receipt.release_id or "",
            receipt.arm or "",
        ),
    )
    histograms = batch.latencies.get(key)
    if histograms is None:
        histograms = batch.latencies[key] = ({}, {}, {}, {})
    ttft, itl, e2e, queue = histograms
    _count(ttft, receipt.first_token_us, sign)
    _count(itl, receipt.itl_mean_us, sign)
    _count(queue, receipt.queue_us, sign)
    if receipt.status == "completed":
        _count(e2e, receipt.e2e_us, sign)


def _count(histogram: Histogram, value_us: int | None, sign: int) -> None:
    if value_us is not None:
        bucket = bucket_of(value_us)
        histogram[bucket] = histogram.get(bucket, 0) + sign
