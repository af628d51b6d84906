"""Model and accelerator pairs that the simulator ships with: coefficients, KV pool, sources.

`profile(key)` returns a `Profile`, `PROFILES` all of them in the order of the tables. The
coefficients live in profile_data.py and are the exact output of profile_recipes.py over the
named public measurements; a test refits them. A profile that wasn't calibrated on receipts of a
deployment supports rankings only, and says so in `label`. Source: SIM-1.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, isnan
from typing import Literal

from simulator.fitting import KindError
from simulator.profile_data import CALIBRATED, FITS
from simulator.scheduler import ReplicaConfig
from simulator.timing import TimeModel

Basis = Literal["kernel tables", "static batches", "receipts", "roofline"]

LARGEST_MEAN_ERROR = 0.10
LARGEST_P99_ERROR = 0.25
"""A calibration that is further off on receipts that its fit never saw forecasts no figures."""

RANKINGS_ONLY = "uncalibrated: rankings only"
ANOTHERS = "calibrated on a public run, not on this deployment"


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOut:
    """A backtest's errors of one metric on receipts that the fit never saw.

    Fractions, forecast over measured - 1, of the mean and of the 99th percentile.
    """

    split: str
    metric: str
    mean_error: float
    p99_error: float

    @property
    def tolerable(self) -> bool:
        """Whether both are small enough to forecast figures; NaN isn't."""
        return abs(self.mean_error) <= LARGEST_MEAN_ERROR and (
            abs(self.p99_error) <= LARGEST_P99_ERROR
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """A replica of one model on one accelerator group.

    `basis` says what the coefficients were fitted to, `fit` the error on that by kind of
    iteration, `kv_note` whether the KV pool was read from an engine or derived from sizes.
    `overhead_us` is spent outside the engine, before the first token. `own` says that the
    receipts were the user's: only then may a forecast be taken at its word. `held_out` are the
    errors of the backtests of a calibration.
    """

    key: str
    model: str
    accelerator: str
    time: TimeModel
    replica: ReplicaConfig
    basis: Basis
    source: str
    licence: str
    kv_note: str
    overhead_us: int = 0
    fit: tuple[KindError, ...] = ()
    own: bool = False
    held_out: tuple[HeldOut, ...] = ()

    @property
    def calibrated(self) -> bool:
        """Whether forecasts in absolute numbers are meant: only after a fit to receipts."""
        return self.time.calibrated

    @property
    def label(self) -> str:
        """The profile's name as every table and picture shows it."""
        return f"{self.model} on {self.accelerator} ({self.caveat or 'calibrated on receipts'})"

    @property
    def caveat(self) -> str:
        """What its figures may not be used for; nothing for one's own calibration."""
        if not self.calibrated:
            return RANKINGS_ONLY
        if self.misses:
            return f"this calibration misses its own receipts by {self.misses}: rankings only"
        return "" if self.own else ANOTHERS

    @property
    def misses(self) -> str:
        """The metrics whose held-out errors are too large, with these; nothing if none is."""
        return ", ".join(_told(error) for error in self._worst() if not error.tolerable)

    @property
    def backtest_note(self) -> str:
        """The held-out errors by metric, as every calibrated forecast shows them."""
        if not self.calibrated:
            return ""
        if not self.held_out:
            return "the calibration has no backtest: its error is unknown"
        told = ", ".join(_told(error) for error in self._worst())
        return f"backtest, worst error of mean / p99 on receipts that the fit never saw: {told}"

    def _worst(self) -> list[HeldOut]:
        """By metric the largest mean and the largest p99 error, whatever the split."""
        by_metric: dict[str, list[HeldOut]] = {}
        for error in self.held_out:
            by_metric.setdefault(error.metric, []).append(error)
        return [
            HeldOut(
                split="worst",
                metric=metric,
                mean_error=max((error.mean_error for error in errors), key=_size),
                p99_error=max((error.p99_error for error in errors), key=_size),
            )
            for metric, errors in by_metric.items()
        ]


def _size(error: float) -> float:
    return inf if isnan(error) else abs(error)


def _told(error: HeldOut) -> str:
    return f"{error.metric.upper()} {error.mean_error:+.1%} / {error.p99_error:+.1%}"


def derived_kv_blocks(
    *,
    memory_bytes: int,
    accelerators: int,
    weight_bytes: int,
    kv_bytes_per_token: int,
    block_tokens: int = 16,
    memory_share: float = 0.9,
    working_bytes: int = 1_240_000_000,
) -> int:
    """KV blocks that fit beside weights and working memory, rounded down.

    An engine takes `memory_share` of each accelerator; `working_bytes` each is what vLLM 0.19
    left for activations in the one run whose block count is known (RTX 4090, 2,588 blocks).
    """
    budget = accelerators * (round(memory_bytes * memory_share) - working_bytes) - weight_bytes
    return max(0, budget // (kv_bytes_per_token * block_tokens))


_LLMSERVINGSIM = "casys-kaist/LLMServingSim @5daddb21, profiler/perf, vLLM 0.19 kernels"
_RUNS = "casys-kaist/LLMServingSim @5daddb21, bench/examples, vLLM 0.19.0 receipts"
_SPLITWISE = "Mutinifni/splitwise-sim @8f99e7dc, data/perf_model.csv; Patel et al., ISCA 2024"
_RTX_PRO_6000_BYTES = 102_641_958_912
_DGX_80GB_BYTES = 85_899_345_920
_FIT = {fit.model.name: fit for fit in FITS}
_CALIBRATED = {time.name: (time, overhead_us) for time, overhead_us in CALIBRATED}


def _shipped(
    key: str, model: str, accelerator: str, basis: Basis, source: str, blocks: int, kv_note: str
) -> Profile:
    return Profile(
        key=key,
        model=model,
        accelerator=accelerator,
        time=_FIT[key].model,
        replica=ReplicaConfig(kv_blocks=blocks),
        basis=basis,
        source=source,
        licence="MIT",
        kv_note=kv_note,
        fit=_FIT[key].errors,
    )


def _held_out(split: str, *errors: tuple[str, float, float]) -> tuple[HeldOut, ...]:
    return tuple(
        HeldOut(split=split, metric=metric, mean_error=mean / 100, p99_error=p99 / 100)
        for metric, mean, p99 in errors
    )


def _calibrated(
    key: str,
    accelerator: str,
    replica: ReplicaConfig,
    kv_note: str,
    held_out: tuple[HeldOut, ...],
) -> Profile:
    time, overhead_us = _CALIBRATED[key]
    return Profile(
        key=key,
        model="Llama 3.1 8B",
        accelerator=accelerator,
        time=time,
        replica=replica,
        basis="receipts",
        source=_RUNS,
        licence="MIT",
        kv_note=kv_note,
        overhead_us=overhead_us,
        held_out=held_out,
    )


# The table "How true it is" of docs/simulator.md in %, mean and p99; a test holds them to it.
_RTX4090_BACKTEST = (
    *_held_out("interleaved", ("ttft", 0.2, -0.2), ("tpot", -0.6, -0.1), ("e2e", -0.0, -0.1)),
    *_held_out(
        "first half to last half", ("ttft", 0.5, -0.2), ("tpot", -0.6, 6.6), ("e2e", 0.3, 0.2)
    ),
)
_RTXPRO6000_BACKTEST = (
    *_held_out("interleaved", ("ttft", -0.4, -0.3), ("tpot", 0.2, 0.2), ("e2e", 0.1, 0.0)),
    *_held_out(
        "first half to last half", ("ttft", -0.4, -1.0), ("tpot", 1.0, -0.1), ("e2e", 0.5, 0.1)
    ),
)

PROFILES: tuple[Profile, ...] = (
    _shipped(
        "llama-3.1-8b-rtx4090",
        "Llama 3.1 8B",
        "RTX 4090",
        "kernel tables",
        _LLMSERVINGSIM,
        2_588,
        "read from the engine",
    ),
    _shipped(
        "llama-3.1-8b-rtxpro6000",
        "Llama 3.1 8B",
        "RTX PRO 6000",
        "kernel tables",
        _LLMSERVINGSIM,
        derived_kv_blocks(
            memory_bytes=_RTX_PRO_6000_BYTES,
            accelerators=1,
            weight_bytes=2 * 8_030_261_248,
            kv_bytes_per_token=131_072,
        ),
        "derived from sizes",
    ),
    _shipped(
        "qwen3-32b-rtxpro6000x2",
        "Qwen3 32B",
        "2 x RTX PRO 6000",
        "kernel tables",
        # Their tables leave the all-reduce between the two cards out.
        _LLMSERVINGSIM + "; without all-reduce",
        derived_kv_blocks(
            memory_bytes=_RTX_PRO_6000_BYTES,
            accelerators=2,
            weight_bytes=2 * 32_762_123_264,
            kv_bytes_per_token=262_144,
        ),
        "derived from sizes",
    ),
    _shipped(
        "llama-2-70b-a100x4",
        "Llama 2 70B",
        "4 x A100 80GB",
        "static batches",
        _SPLITWISE,
        derived_kv_blocks(
            memory_bytes=_DGX_80GB_BYTES,
            accelerators=4,
            weight_bytes=2 * 68_976_648_192,
            kv_bytes_per_token=327_680,
        ),
        "derived from sizes",
    ),
    _shipped(
        "llama-2-70b-h100x4",
        "Llama 2 70B",
        "4 x H100 80GB",
        "static batches",
        _SPLITWISE,
        derived_kv_blocks(
            memory_bytes=_DGX_80GB_BYTES,
            accelerators=4,
            weight_bytes=2 * 68_976_648_192,
            kv_bytes_per_token=327_680,
        ),
        "derived from sizes",
    ),
    _calibrated(
        "llama-3.1-8b-rtx4090-vllm0.19",
        "RTX 4090",
        ReplicaConfig(kv_blocks=2_588, prefix_cache=True, full_sequence_must_fit=True),
        "read from the engine",
        _RTX4090_BACKTEST,
    ),
    _calibrated(
        "llama-3.1-8b-rtxpro6000-vllm0.19",
        "RTX PRO 6000",
        ReplicaConfig(
            kv_blocks=35_799, prefix_cache=True, full_sequence_must_fit=True, max_num_seqs=128
        ),
        "derived from sizes",
        _RTXPRO6000_BACKTEST,
    ),
)

DEFAULT_PROFILE = "llama-3.1-8b-rtxpro6000-vllm0.19"


class UnknownProfile(ValueError):
    """No shipped profile has that key; the message lists those that exist."""


def profile(key: str) -> Profile:
    """The shipped profile of that key; raises `UnknownProfile`."""
    for candidate in PROFILES:
        if candidate.key == key:
            return candidate
    known = ", ".join(candidate.key for candidate in PROFILES)
    raise UnknownProfile(f"no profile {key!r}; there are {known}")
