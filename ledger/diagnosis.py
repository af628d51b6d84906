"""What is wrong, from two windows of recorded evidence: the eight rows of the course (DIA-1). Pure.

A rule compares a window with the one before, and says what it saw, what causes it, the likeliest
first, and what not to do yet. Of several that hold, the more specific symptom explains the more
general one: slow first tokens for three tenants of four are a matter of fairness.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

Row = Literal[
    "ttft_tail",
    "decode_slow",
    "throughput_collapse",
    "cancels_up",
    "cost_jump",
    "fallback_schema",
    "billed_after_timeout",
    "tenant_unfair",
]
ROWS: tuple[Row, ...] = get_args(Row)
LEAST_REQUESTS = 100  # in each window; with fewer nothing is diagnosed
LEAST_OF_TENANT = 20
KV_SHORT = 0.35  # free, of the whole: admission keeps room for what runs to grow into


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """What one window's receipts and snapshots say. None: nothing was measured."""

    start_us: int  # of the first request that was read, where not all of the window's were
    end_us: int
    requests: int  # accepted, that were read
    ttft_p99_us: int | None = None
    queue_p99_us: int | None = None
    prefill_p95_us: int | None = None
    itl_p95_us: int | None = None
    input_tokens_mean: float = 0.0
    output_tokens_mean: float = 0.0
    failed: int = 0
    unknown: int = 0
    unknown_billed: int = 0  # of them: known to have cost something
    user_cancels: int = 0
    degraded: int = 0  # completed on a fallback
    degraded_schema: tuple[int, int] = (0, 0)  # (broken, judged) of degraded answers
    main_schema: tuple[int, int] = (0, 0)
    cost_per_valid_pico: int | None = None
    identities: Mapping[str, float] = field(default_factory=dict)  # share of accepted requests
    tenants: Mapping[str, tuple[int, int]] = field(default_factory=dict)  # requests, queue p95 µs
    tokens_per_second: float | None = None  # of output, generated in the window
    running_mean: float | None = None
    kv_free_share: float | None = None  # the median over snapshots


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One diagnosis: the symptom, its evidence as (what, before, now), causes, what not to do."""

    row: Row
    symptom: str
    evidence: tuple[tuple[str, str, str], ...]
    causes: tuple[str, ...]  # the likeliest first
    not_yet: str
    drill: str  # query of the receipts page that shows the requests


def diagnose(before: Picture, now: Picture) -> tuple[Finding, ...]:
    """What is wrong in the later window, the most specific symptom first; empty: nothing is.

    Nothing is found, and nothing is cleared, in windows of fewer than LEAST_REQUESTS.
    """
    if min(before.requests, now.requests) < LEAST_REQUESTS:
        return ()
    return tuple(found for rule in RULES if (found := rule(before, now)) is not None)


def _ratio(now: float | None, before: float | None) -> float | None:
    return None if now is None or not before else now / before


def _at_least(ratio: float | None, limit: float) -> bool:
    return ratio is not None and ratio >= limit


def _ms(us: int | None) -> str:
    return "none" if us is None else f"{us / 1000:,.0f} ms"


def _share(part: int, whole: int) -> str:
    return f"{part} of {whole}"


def billed_after_timeout(before: Picture, now: Picture) -> Finding | None:
    """Time-outs whose backend went on: unknown ends that are known to have cost something."""
    if now.unknown_billed < 3 or now.unknown < 0.01 * now.requests:
        return None
    if now.unknown * before.requests < 3 * before.unknown * now.requests:
        return None
    return Finding(
        row="billed_after_timeout",
        symptom="charged twice after time-outs",
        evidence=(
            (
                "unknown ends",
                _share(before.unknown, before.requests),
                _share(now.unknown, now.requests),
            ),
            ("of them with usage", str(before.unknown_billed), str(now.unknown_billed)),
        ),
        causes=(
            "the backend goes on generating: a cancel is not acknowledged",
            "callers send again what is still running",
        ),
        not_yet="take a time-out for a request that did not run",
        drill="status=unknown",
    )


def fallback_schema(before: Picture, now: Picture) -> Finding | None:
    """Fallbacks succeed and break the caller's schema."""
    broken, judged = now.degraded_schema
    main_broken, main_judged = now.main_schema
    main = main_broken / main_judged if main_judged else 0.0
    if judged < 10 or broken < 0.2 * judged or broken / judged < main + 0.15:
        return None
    return Finding(
        row="fallback_schema",
        symptom="the fallback answers, and breaks the schema",
        evidence=(
            ("degraded answers", str(before.degraded), str(now.degraded)),
            (
                "of them against their schema",
                _share(*before.degraded_schema),
                _share(broken, judged),
            ),
            ("main path against its schema", _share(*before.main_schema), _share(*now.main_schema)),
        ),
        causes=(
            "the fallback is not equivalent: structured output differs",
            "it stops by other rules",
        ),
        not_yet="count every completed request as a success",
        drill="degraded=yes",
    )


def tenant_unfair(before: Picture, now: Picture) -> Finding | None:
    """One tenant is served as ever, others wait."""
    waits = {
        name: queue_us
        for name, (requests, queue_us) in now.tenants.items()
        if requests >= LEAST_OF_TENANT and name in before.tenants
    }
    if len(waits) < 2:
        return None
    spared = min(waits, key=lambda name: (waits[name], name))
    worst = max(waits, key=lambda name: (waits[name], name))
    floor_us = 20_000
    apart = max(waits[worst], floor_us) / max(waits[spared], floor_us)
    grown = max(waits[worst], floor_us) / max(before.tenants[worst][1], floor_us)
    busier = now.tenants[spared][0] * before.requests / max(1, before.tenants[spared][0])
    if apart < 4 or grown < 4 or busier < 1.2 * now.requests:
        return None
    return Finding(
        row="tenant_unfair",
        symptom=f"{spared} is served as ever while others wait",
        evidence=tuple(
            (f"queue p95 of {name}", _ms(before.tenants[name][1]), _ms(waits[name]))
            for name in sorted(waits, key=lambda name: -waits[name])
        ),
        causes=("no quota holds the busy tenant", "the queue is not fair between tenants"),
        not_yet="only make the one queue longer",
        drill=f"tenant={worst}",
    )


def throughput_collapse(before: Picture, now: Picture) -> Finding | None:
    """Busy as ever, its KV full, and fewer tokens come out of it."""
    produced = _ratio(now.tokens_per_second, before.tokens_per_second)
    busy = _ratio(now.running_mean, before.running_mean)
    full = now.kv_free_share is not None and now.kv_free_share <= KV_SHORT
    if produced is None or produced > 0.85 or not _at_least(busy, 0.9) or not full:
        return None
    return Finding(
        row="throughput_collapse",
        symptom="busy, and fewer tokens come out",
        evidence=(
            (
                "output tokens a second",
                f"{before.tokens_per_second:,.0f}",
                f"{now.tokens_per_second:,.0f}",
            ),
            ("running requests", f"{before.running_mean:.1f}", f"{now.running_mean:.1f}"),
            (
                "free KV, the median",
                "none" if before.kv_free_share is None else f"{before.kv_free_share:.0%}",
                f"{now.kv_free_share:.0%}",
            ),
        ),
        causes=(
            "KV is full: requests are preempted and computed again",
            "long requests hold the slots",
            "the scheduler is out of balance",
        ),
        not_yet="raise the limit of concurrent requests further",
        drill="",
    )


def cost_jump(before: Picture, now: Picture) -> Finding | None:
    """A valid result costs more since other identities serve, or requests are larger."""
    dearer = _ratio(now.cost_per_valid_pico, before.cost_per_valid_pico)
    names = {*before.identities, *now.identities}
    moved = 0.5 * sum(
        abs(now.identities.get(name, 0.0) - before.identities.get(name, 0.0)) for name in names
    )
    longer = _ratio(now.output_tokens_mean, before.output_tokens_mean)
    if not _at_least(dearer, 1.25) or moved < 0.2:
        return None
    grew = f"{before.output_tokens_mean:,.0f}", f"{now.output_tokens_mean:,.0f}"
    counted = f"{before.input_tokens_mean:,.0f}", f"{now.input_tokens_mean:,.0f}"
    more_out = _at_least(longer, 1.15)
    causes = ("answers got longer", "the tokenizer counts more") if more_out else (
        "the tokenizer counts more",
        "answers got longer",
    )  # fmt: skip
    return Finding(
        row="cost_jump",
        symptom="a valid result costs more since traffic was switched",
        evidence=(
            (
                "cost of a valid result, pico",
                f"{before.cost_per_valid_pico:,}",
                f"{now.cost_per_valid_pico:,}",
            ),
            ("traffic of other identities", "0 %", f"{moved:.0%}"),
            ("output tokens, the mean", *grew),
            ("input tokens, the mean", *counted),
        ),
        causes=(*causes, "hedges or retries"),
        not_yet="compare the price tables alone",
        drill="",
    )


def cancels_up(before: Picture, now: Picture) -> Finding | None:
    """Nothing fails, and more users go away."""
    share = now.user_cancels / now.requests
    was = before.user_cancels / before.requests
    failing = (now.failed + now.unknown) / now.requests
    if share < 0.05 or share < 2.5 * was or failing > 0.03:
        return None
    return Finding(
        row="cancels_up",
        symptom="answers succeed, and users go away",
        evidence=(
            (
                "cancelled by users",
                _share(before.user_cancels, before.requests),
                _share(now.user_cancels, now.requests),
            ),
            ("first token p99", _ms(before.ttft_p99_us), _ms(now.ttft_p99_us)),
            ("degraded answers", str(before.degraded), str(now.degraded)),
        ),
        causes=("the first token is too late", "the answer's pace is off", "worse answers"),
        not_yet="take 2xx for proof of health",
        drill="status=cancelled",
    )


def decode_slow(before: Picture, now: Picture) -> Finding | None:
    """Tokens come slower, the first one as soon as before."""
    paced = _ratio(now.itl_p95_us, before.itl_p95_us)
    first = _ratio(now.ttft_p99_us, before.ttft_p99_us) or 1.0
    if paced is None or paced < 1.3 or first > max(1.5, paced):
        return None
    return Finding(
        row="decode_slow",
        symptom="tokens come slower, the first one is on time",
        evidence=(
            ("time between tokens p95", _ms(before.itl_p95_us), _ms(now.itl_p95_us)),
            ("first token p99", _ms(before.ttft_p99_us), _ms(now.ttft_p99_us)),
            *_running(before, now),
        ),
        causes=("decode is overloaded", "batches are too large", "KV preemption"),
        not_yet="only add entry replicas",
        drill="",
    )


def ttft_tail(before: Picture, now: Picture) -> Finding | None:
    """The first token is late for some, and tokens then come as before."""
    first = _ratio(now.ttft_p99_us, before.ttft_p99_us)
    paced = _ratio(now.itl_p95_us, before.itl_p95_us) or 1.0
    if first is None or first < 1.5 or first < 1.2 * paced:
        return None
    queued = (now.queue_p99_us or 0) - (before.queue_p99_us or 0)
    filled = (now.prefill_p95_us or 0) - (before.prefill_p95_us or 0)
    causes = ("the queue grew", "long prompts came together", "prefill is contended")
    return Finding(
        row="ttft_tail",
        symptom="first tokens are late, the flow after them is steady",
        evidence=(
            ("first token p99", _ms(before.ttft_p99_us), _ms(now.ttft_p99_us)),
            ("queue p99", _ms(before.queue_p99_us), _ms(now.queue_p99_us)),
            ("prefill p95", _ms(before.prefill_p95_us), _ms(now.prefill_p95_us)),
            (
                "input tokens, the mean",
                f"{before.input_tokens_mean:,.0f}",
                f"{now.input_tokens_mean:,.0f}",
            ),
            ("time between tokens p95", _ms(before.itl_p95_us), _ms(now.itl_p95_us)),
        ),
        causes=causes if queued >= filled else (causes[1], causes[2], causes[0]),
        not_yet="only tune the decode batch",
        drill="",
    )


def _running(before: Picture, now: Picture) -> tuple[tuple[str, str, str], ...]:
    if before.running_mean is None or now.running_mean is None:
        return ()
    return (("running requests", f"{before.running_mean:.1f}", f"{now.running_mean:.1f}"),)


RULES: tuple[Callable[[Picture, Picture], Finding | None], ...] = (
    billed_after_timeout,
    fallback_schema,
    tenant_unfair,
    throughput_collapse,
    cost_jump,
    cancels_up,
    decode_slow,
    ttft_tail,
)
"""The most specific symptom first."""
