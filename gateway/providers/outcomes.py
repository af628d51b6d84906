"""What a provider's answer is turned into: one type for every adapter (PRV-2).

A time-out is `Unknown`, never `Failed`: the caller stopped waiting, nothing more is known.
"""

from dataclasses import dataclass, field
from typing import Literal

from gateway.policy.values import EndState
from ledger.rates import Usage

UsageSource = Literal["counted", "provider", "estimated"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Timings:
    """Measured phases of one attempt, in µs. None: not known.

    `itl_us` holds the gaps between output tokens in order (empty for fewer than two tokens).
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
    itl_us: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How an attempt ended, with what it is known to have used until then."""

    usage: Usage
    usage_source: UsageSource = "provider"
    provider_request_id: str | None = None
    timings: Timings = field(default_factory=Timings)

    @property
    def status(self) -> EndState:
        raise TypeError("an outcome is one of the five kinds below")


@dataclass(frozen=True, slots=True, kw_only=True)
class Completed(Outcome):
    finish_reason: Literal["stop", "length", "tool_calls"]
    schema_valid: bool | None = None

    @property
    def status(self) -> EndState:
        return "completed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejected(Outcome):
    """The provider refused before running it."""

    reason: str
    retry_after_ms: int | None = None

    @property
    def status(self) -> EndState:
        return "failed"  # the request was accepted here; what failed is the attempt


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed(Outcome):
    reason: str
    retryable: bool = False

    @property
    def status(self) -> EndState:
        return "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancelled(Outcome):
    """Cancelled, and the backend said so. A cancel that nobody acknowledged is `Unknown`."""

    reason: str = "client_gone"

    @property
    def status(self) -> EndState:
        return "cancelled"


@dataclass(frozen=True, slots=True, kw_only=True)
class Unknown(Outcome):
    reason: str

    @property
    def status(self) -> EndState:
        return "unknown"
