"""A release comparison made ready to be read. Pure: the comparison in, text and pictures out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from gateway.pages.charts import Distribution, Plot, ecdf
from gateway.pages.formatting import NONE, milliseconds, percent, thousands, units
from gateway.release_asks import merged
from ledger.distributions import Latency, Metric, Quantile
from ledger.queries.releases import Comparison, Offered, Side
from ledger.records import ModelIdentity
from ledger.releases import (
    TAIL_BASELINE_MINIMUM,
    TAIL_CANARY_MINIMUM,
    RatioTest,
    TailTest,
)

METRIC_NAMES: dict[Metric, str] = {
    "ttft": "Time to first token",
    "itl": "Inter-token latency (mean of each request)",
    "e2e": "End to end",
    "queue": "Queue",
}
_VERDICT_CHIPS = {"PASS": "ok", "FAIL": "alert", "INCONCLUSIVE": "no_data"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A side that can be chosen: its value in the URL, and what it is in words."""

    value: str
    text: str


def choices(offered: Sequence[Offered], identities: Sequence[ModelIdentity]) -> tuple[Choice, ...]:
    """Every side with traffic, once each, as the selects offer it."""
    known = {one.identity_id: one for one in identities}
    return tuple(
        Choice(
            value=side.label,
            text=f"{described(side, known)} ({'; '.join(_traffic(by_model))})",
        )
        for side, by_model in merged(offered).items()
    )


def _traffic(by_model: Mapping[str, int]) -> list[str]:
    return [f"{model}, {receipts:,}" for model, receipts in by_model.items()]


def described(side: Side, known: Mapping[str, ModelIdentity]) -> str:
    """A side in words: an identity by its weights and how they are served, an arm by its name."""
    identity = known.get(side.identity_id)
    if identity is None:
        return side.label
    parts = (
        identity.weights_revision,
        identity.quantization,
        identity.serving_config_revision,
    )
    return ", ".join(part for part in parts if part)


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantileRow:
    """One quantile of both sides in ms; `worse`: the candidate is slower by over a tenth."""

    name: str
    baseline: str
    baseline_interval: str  # in which the quantile lies at 95 %; a dash: not bounded
    candidate: str
    candidate_interval: str
    difference: str
    worse: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricCard:
    """One latency of both sides: picture, table, and what the tail test says."""

    key: str
    name: str
    counts: tuple[int, int]
    exact: bool
    rows: tuple[QuantileRow, ...]
    plot: Plot | None
    verdict: str
    chip: str
    said: str


def metric_cards(found: Comparison) -> tuple[MetricCard, ...]:
    tails = dict(found.tails)
    pairs = zip(found.baseline.latencies, found.candidate.latencies, strict=True)
    return tuple(
        _metric_card(first, second, tails.get(first.metric), _labels(found))
        for first, second in pairs
        if first.metric in METRIC_NAMES
    )


def _labels(found: Comparison) -> tuple[str, str]:
    return f"baseline {found.baseline.side.label}", f"candidate {found.candidate.side.label}"


def _metric_card(
    first: Latency, second: Latency, test: TailTest | None, labels: tuple[str, str]
) -> MetricCard:
    return MetricCard(
        key=first.metric,
        name=METRIC_NAMES[first.metric],
        counts=(first.count, second.count),
        exact=first.exact and second.exact,
        rows=_rows(first, second),
        plot=ecdf(
            [
                Distribution(
                    label=label,
                    bins=tuple((each.low_us, each.high_us, each.count) for each in latency.bins),
                    band=latency.band,
                )
                for label, latency in zip(labels, (first, second), strict=True)
            ]
        ),
        verdict=test.verdict if test else "",
        chip=_VERDICT_CHIPS[test.verdict] if test else "",
        said=_tail_words(test) if test else "",
    )


def _rows(first: Latency, second: Latency) -> tuple[QuantileRow, ...]:
    names = {q.numerator * 100 // q.denominator for q in (*first.quantiles, *second.quantiles)}
    rows = []
    for name in sorted(names):
        known_of = [
            next((q for q in one.quantiles if q.numerator * 100 // q.denominator == name), None)
            for one in (first, second)
        ]
        before, after = (None if one is None else one.value_us for one in known_of)
        intervals = [interval_words(one) for one in known_of]
        known = before is not None and after is not None
        difference = after - before if before is not None and after is not None else None
        rows.append(
            QuantileRow(
                name=f"p{name}",
                baseline=milliseconds(before),
                baseline_interval=intervals[0],
                candidate=milliseconds(after),
                candidate_interval=intervals[1],
                difference=("+" if known and (difference or 0) > 0 else "")
                + milliseconds(difference),
                worse=difference is not None and difference * 10 > (before or 0),
            )
        )
    return tuple(rows)


def interval_words(found: Quantile | None) -> str:
    """The 95 % interval of a quantile in ms, open where so few requests don't bound it."""
    if found is None or (found.from_us is None and found.to_us is None):
        return NONE
    if found.to_us is None:
        return f"{milliseconds(found.from_us)} or more"
    if found.from_us is None:
        return f"{milliseconds(found.to_us)} or less"
    return f"{milliseconds(found.from_us)} to {milliseconds(found.to_us)}"


def _tail_words(test: TailTest) -> str:
    """The exceedance test in a sentence (REL-5)."""
    over = f"{test.exceeding:,} of {test.canary_count:,} candidate requests"
    limit = f"{milliseconds(round(test.threshold_us))} ms, the baseline's p99 and a tenth"
    p = f"p = {test.p_value:.4f}"
    said = f"{over} took longer than {limit} ({p}; fails at 0.01 or less)."
    if test.verdict == "INCONCLUSIVE":
        said += (
            f" Too few to decide: it needs {TAIL_BASELINE_MINIMUM:,} of the baseline and "
            f"{TAIL_CANARY_MINIMUM:,} of the candidate."
        )
    return said


@dataclass(frozen=True, slots=True, kw_only=True)
class FactRow:
    """One plain fact of both sides."""

    name: str
    unit: str
    baseline: str
    candidate: str


def facts(found: Comparison) -> tuple[FactRow, ...]:
    """Sample sizes, completion, cost and tokens, side by side."""
    one, two = found.baseline.sums, found.candidate.sums
    lines = (
        ("Requests", "", thousands(one.receipts), thousands(two.receipts)),
        ("Completed", "", thousands(one.completed), thousands(two.completed)),
        (
            "Valid completions",
            "of those that count",
            _ratio(one.valid, one.judged),
            _ratio(two.valid, two.judged),
        ),
        (
            "Completion rate",
            "",
            _share(found.baseline.completion_rate),
            _share(found.candidate.completion_rate),
        ),
        (
            "Failed, unknown, cancelled",
            "",
            f"{one.failed:,}, {one.unknown:,}, {one.cancelled:,}",
            f"{two.failed:,}, {two.unknown:,}, {two.cancelled:,}",
        ),
        ("Degraded", "", thousands(one.degraded), thousands(two.degraded)),
        (
            "Cost per completed request",
            "units",
            units(one.cost_per_completed_pico),
            units(two.cost_per_completed_pico),
        ),
        *(
            (
                (
                    "Without a price, in no cost",
                    "requests",
                    thousands(one.unpriced),
                    thousands(two.unpriced),
                ),
            )
            if one.unpriced or two.unpriced
            else ()
        ),
        (
            "Output tokens per completed",
            "tokens",
            _mean(one.output_tokens, one.completed),
            _mean(two.output_tokens, two.completed),
        ),
    )
    return tuple(
        FactRow(name=name, unit=unit, baseline=first, candidate=second)
        for name, unit, first, second in lines
    )


def _ratio(part: int, whole: int) -> str:
    return f"{part:,} of {whole:,}"


def _share(share: Fraction | None) -> str:
    return "NO_DATA" if share is None else percent(share.numerator, share.denominator, 2)


def _mean(total: int, count: int) -> str:
    """The mean to one decimal, rounded half up."""
    if not count:
        return NONE
    tenths = (20 * total + count) // (2 * count)
    return f"{tenths // 10:,}.{tenths % 10}"


def completion_words(test: RatioTest) -> str:
    """The test of the completion rate in a sentence (REL-5)."""
    if test.difference is None or test.low is None or test.high is None:
        return "No request of one side counts yet, so the completion rates can't be compared."
    return (
        f"The candidate's completion rate differs by {test.difference * 100:+.2f} points; between "
        f"{test.low * 100:+.2f} and {test.high * 100:+.2f} at 95 % confidence. "
        f"The margin is {test.margin * 100:g} point."
    )


def verdict_chip(verdict: str) -> str:
    return _VERDICT_CHIPS[verdict]
