"""What a provider's answer is turned into: one type for every adapter (PRV-2).

A time-out is `Unknown`, never `Failed`: the caller stopped waiting, nothing more is known.
"""

from collections.abc import Sequence
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from gateway.policy.values import EndState
from gateway.quiet import Quiet
from ledger.quantiles import nearest_rank_index
from ledger.rates import Usage

UsageSource = Literal["counted", "provider", "estimated"]


class InterTokenLatency(Quiet, frozen=True, kw_only=True, gc=False):
    """The gaps between one attempt's output tokens, summed up; µs."""

    mean_us: int  # rounded down
    p50_us: int
    p95_us: int
    max_us: int


def inter_token_latency(gaps: NDArray[np.int64], a_us: float = 1.0) -> InterTokenLatency | None:
    """Return the gaps' mean, nearest-rank quantiles and maximum; None where there is no gap.

    `a_us` is a microsecond in the unit of `gaps`. Each gap is rounded half to even to whole
    microseconds by itself; what is made of those is exact, as long as they sum to under 2^53.
    """
    rounded: list[float] = np.rint(gaps / a_us).tolist()
    return _summed_up(rounded)


def inter_token_latency_us(gaps_us: Sequence[int]) -> InterTokenLatency | None:
    """Return the same of gaps in whole microseconds."""
    return _summed_up(list(gaps_us))


def _summed_up(gaps_us: list[int] | list[float]) -> InterTokenLatency | None:
    """Sort them here: numpy gives the interpreter lock away for it, which costs more than it."""
    count = len(gaps_us)
    if not count:
        return None
    gaps_us.sort()
    return InterTokenLatency(
        mean_us=int(sum(gaps_us)) // count,
        p50_us=int(gaps_us[nearest_rank_index(count, 50, 100)]),
        p95_us=int(gaps_us[nearest_rank_index(count, 95, 100)]),
        max_us=int(gaps_us[-1]),
    )


class Timings(Quiet, frozen=True, kw_only=True, gc=False):
    """Measured phases of one attempt, in µs. None: not known.

    first_decode_us is 0 where the engine emits the first token at the end of the iteration that
    completes the prefill, as vLLM V1 and the simulator do.
    """

    queue_us: int | None = None
    prefill_us: int | None = None
    first_decode_us: int | None = None
    first_byte_network_us: int | None = None
    decode_us: int | None = None
    first_token_us: int | None = None
    cancel_ack_us: int | None = None
    itl: InterTokenLatency | None = None  # None, too, for fewer than two output tokens


class Outcome(Quiet, frozen=True, kw_only=True, gc=False):
    """How an attempt ended, with what it is known to have used until then. One of five kinds."""

    status: ClassVar[EndState]
    usage: Usage
    usage_source: UsageSource = "provider"
    usage_convention: str | None = None  # of ledger.usage; None: the gateway's own count
    service_tier: str = ""  # the provider's word for where it ran; "": it said none
    provider_request_id: str | None = None
    timings: Timings = Timings()


class Completed(Outcome, frozen=True, kw_only=True, gc=False):
    status: ClassVar[EndState] = "completed"
    finish_reason: Literal["stop", "length", "tool_calls"]
    schema_valid: bool | None = None


class Rejected(Outcome, frozen=True, kw_only=True, gc=False):
    """The provider refused before running it: of the accepted request, a failure.

    `refused_parameters` are the optional parameters of the call that it refused with 400 or 422;
    the same call without them (`Call.without`) may pass, and may be tried once (RTY-2).
    """

    status: ClassVar[EndState] = "failed"
    reason: str
    retry_after_ms: int | None = None
    refused_parameters: tuple[str, ...] = ()


class Failed(Outcome, frozen=True, kw_only=True, gc=False):
    status: ClassVar[EndState] = "failed"
    reason: str
    retryable: bool = False


class Cancelled(Outcome, frozen=True, kw_only=True, gc=False):
    """Cancelled, and the backend said so. A cancel that nobody acknowledged is `Unknown`.

    `sent` False: its backend never had the request, so nothing ran and nothing is owed.
    """

    status: ClassVar[EndState] = "cancelled"
    reason: str
    sent: bool = True


class Unknown(Outcome, frozen=True, kw_only=True, gc=False):
    status: ClassVar[EndState] = "unknown"
    reason: str


_WITH_REASON = (Rejected, Failed, Cancelled, Unknown)


def error_code(outcome: Outcome) -> str | None:
    """Return the code of what went wrong or stopped it; None of a completed one."""
    return outcome.reason if isinstance(outcome, _WITH_REASON) else None


def ran(outcome: Outcome) -> bool:
    """Return whether a backend may have run anything of it: not what it refused or never had."""
    if isinstance(outcome, Cancelled):
        return outcome.sent
    return not isinstance(outcome, Rejected)
