"""How many replicas a load needs: a sweep, and the fewest that meet a target.

`sweep(scenario, counts)` returns a replay for each number of replicas; `fewest` the first that
meets a `Target`. Source: SIMULATOR.md "capacity", SIM-1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import isnan

from simulator.replay import Replay, Scenario, Summary, replay

MAX_SWEEP = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What users must see: p99 bounds in ms, each optional, and the least completed share.

    The share is of what could complete: without what callers cancelled, and without what no
    number of replicas can serve.
    """

    ttft_p99_ms: float | None = None
    itl_p99_ms: float | None = None
    completed_share: float = 0.99


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The fewest replicas that meet the target, None if none does, and a sentence that says so."""

    replicas: int | None
    sentence: str


def misses(summary: Summary, target: Target) -> tuple[str, ...]:
    """What of the target the run misses, in words with both numbers; nothing if it meets it."""
    found = []
    for name, spread, limit in (
        ("TTFT", summary.ttft, target.ttft_p99_ms),
        ("ITL", summary.itl, target.itl_p99_ms),
    ):
        if limit is None or spread.p99_ms <= limit:
            continue
        if isnan(spread.p99_ms):
            found.append(f"no {name} was seen: too few tokens were generated")
        else:
            found.append(f"{name} p99 {_above(spread.p99_ms, limit)}")
    could = summary.requests - summary.cancelled - summary.refused
    if could == 0:
        found.append("no request was served: all were cancelled or are too large")
    elif summary.completed / could < target.completed_share:
        found.append(
            f"{summary.completed / could:.1%} completed, under {target.completed_share:.1%}"
        )
    return tuple(found)


def sweep(
    scenario: Scenario,
    counts: Sequence[int],
    progress: Callable[[float], None] | None = None,
) -> tuple[Replay, ...]:
    """One replay a number of replicas, in the order given; `progress` hears the share done.

    Raises ValueError for none or more than 64 numbers.
    """
    if not 1 <= len(counts) <= MAX_SWEEP:
        raise ValueError(f"a sweep has between 1 and {MAX_SWEEP} runs")
    replays = []
    for index, replicas in enumerate(counts):
        told = None if progress is None else _part(progress, index, len(counts))
        replays.append(replay(replace(scenario, replicas=replicas), told))
    return tuple(replays)


def fewest(replays: Sequence[Replay], target: Target) -> Answer:
    """The answer to "how many replicas": monotone or not, the smallest number that meets it.

    The sentence carries the flags of the run that it speaks of.
    """
    ordered = sorted((run.summary for run in replays), key=lambda summary: summary.replicas)
    met = next((summary for summary in ordered if not misses(summary, target)), None)
    if met is None:
        why = "; ".join(misses(ordered[-1], target))
        told = f"no run meets the target; with replicas = {ordered[-1].replicas}: {why}"
    else:
        told = f"the target is met from replicas = {met.replicas}"
    caveat = "".join(f" [{note}]" for note in (met or ordered[-1]).flags)
    return Answer(replicas=None if met is None else met.replicas, sentence=told + caveat)


def caveats(replays: Sequence[Replay]) -> tuple[str, ...]:
    """Every note once: those of all runs as they stand, the others with the run's replicas."""
    summaries = [run.summary for run in replays]
    common = [n for n in summaries[0].notes if all(n in summary.notes for summary in summaries)]
    others = [
        f"replicas = {summary.replicas}: {note}"
        for summary in summaries
        for note in summary.notes
        if note not in common
    ]
    return (*common, *others)


def _above(value_ms: float, limit_ms: float) -> str:
    """Both numbers with the limit's own digits, the first with more where they'd be equal."""
    asked = f"{limit_ms:,.6f}".rstrip("0").rstrip(".")
    digits = len(asked.partition(".")[2])
    told = next(
        (text for k in (digits, 3, 6) if (text := f"{value_ms:,.{k}f}") != f"{limit_ms:,.{k}f}"),
        f"{value_ms!r}",
    )
    return f"{told} ms, over {asked}"


def _part(progress: Callable[[float], None], index: int, parts: int) -> Callable[[float], None]:
    return lambda share: progress((index + share) / parts)
