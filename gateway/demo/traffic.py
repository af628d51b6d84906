"""An hour of arrivals for the demonstration: real lengths and times, an overlay that says so.

No public trace carries tenants, priorities or deadlines: they are drawn from a seed.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from gateway.policy.values import Priority
from simulator.trace_files import read_trace
from simulator.traces import Trace
from simulator.workload import generate_conversation_hour, uniforms

T = TypeVar("T")

SEED = 20_231_116
TRACE_FILE = Path("data") / "traces" / "azure2023_conv.csv.gz"
FAST_WINDOW_TOKENS = 7_000  # longer conversations ask for the long-context model
OUTPUT_CAPS = (128, 256, 512, 1_024)
HANG_UP_SHARE = 0.01

_TENANT_SHARES = (("support-desk", 0.62), ("research-lab", 0.25), ("back-office", 0.13))
_PRIORITIES: dict[str, tuple[tuple[Priority, float], ...]] = {
    "support-desk": (("interactive", 0.85), ("normal", 0.15)),
    "research-lab": (("normal", 0.35), ("batch", 0.65)),
    "back-office": (("interactive", 0.4), ("normal", 0.6)),
}
_DEADLINES_US: dict[Priority, tuple[int, ...]] = {
    "interactive": (15_000_000, 30_000_000, 30_000_000, 30_000_000),
    "normal": (60_000_000,),
    "batch": (300_000_000,),
}
_TASKS = ("chat", "chat", "summary", "extract")


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """One request of the replay; `hang_up_after_us` is when its client goes away, if it does."""

    at_us: int  # since the first arrival
    input_tokens: int
    output_tokens: int
    tenant_id: str
    logical_model: str
    priority: Priority
    task_type: str
    max_output_tokens: int
    deadline_us: int
    wants_schema: bool
    hang_up_after_us: int | None


def load(shared: Path | None) -> Trace:
    """Return the public hour of conversations where it is, else one with the same statistics."""
    path = shared / TRACE_FILE if shared else None
    if path is not None and path.exists():
        return read_trace(path)
    return generate_conversation_hour(SEED)


def arrivals(trace: Trace, seed: int = SEED) -> Iterator[Arrival]:
    """Yield the trace's requests in order, with the overlay drawn from `seed`."""
    n = len(trace)
    draws = [uniforms(seed, stream, n).tolist() for stream in range(100, 107)]
    columns = (trace.arrival_us, trace.input_tokens, trace.output_tokens)
    for at_us, input_tokens, output_tokens, *drawn in zip(
        *[column.tolist() for column in columns], *draws, strict=True
    ):
        tenant, priority, deadline, task, hang_up, hang_up_at, margin = drawn
        tenant_id = _pick(_TENANT_SHARES, tenant)
        chosen: Priority = _pick(_PRIORITIES[tenant_id], priority)
        deadlines = _DEADLINES_US[chosen]
        cap = next((c for c in OUTPUT_CAPS if c >= output_tokens), OUTPUT_CAPS[-1])
        kind = _TASKS[int(task * len(_TASKS))]
        yield Arrival(
            at_us=at_us,
            input_tokens=input_tokens,
            output_tokens=output_tokens,
            tenant_id=tenant_id,
            logical_model="assist-long"
            if input_tokens + cap > FAST_WINDOW_TOKENS or margin < 0.08
            else "assist",
            priority=chosen,
            task_type=kind,
            max_output_tokens=cap,
            deadline_us=deadlines[int(deadline * len(deadlines))],
            wants_schema=kind == "extract",
            hang_up_after_us=int(hang_up_at * 8_000_000) if hang_up < HANG_UP_SHARE else None,
        )


def _pick(shares: tuple[tuple[T, float], ...], draw: float) -> T:
    for value, share in shares:
        draw -= share
        if draw < 0:
            return value
    return shares[-1][0]
