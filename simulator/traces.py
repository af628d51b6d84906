"""A workload as numpy columns, and the error that refuses a bad one.

`Trace` is what every reader and generator returns and what the engine replays. Source:
SIMULATOR.md "workload", SIM-1.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]

MAX_REQUESTS = 10_000_000
NONE = -1


class TraceError(ValueError):
    """A refused trace: its `source`, `line` (from 1), `column` (name or place) and `reason`."""

    def __init__(self, *, source: str, line: int, column: str, reason: str) -> None:
        super().__init__(f"{source}: line {line}, column {column}: {reason}")
        self.source = source
        self.line = line
        self.column = column
        self.reason = reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """A workload of n requests, ordered by arrival, ties in the order of the file.

    Every column has shape (n,) and is int64. `arrival_us` starts at 0. `session` and `tenant`
    index `session_names` and `tenant_names`; -1 is none. `shared_prefix_tokens` is the upper
    bound of the prompt's cacheable prefix. `priority` is 0 unless overlaid (smaller is more
    urgent). `cancel_us` is the caller's abort and `deadline_us` its latest useful end, both on
    the clock of `arrival_us`; -1 is none. `block_ids`, where the source has them, identify each
    prompt's blocks of `block_id_tokens`: equal ids mean equal prompts up to there. `dropped`
    counts records of the source that never produced a token and so can't be replayed.
    """

    source: str
    arrival_us: Ints
    input_tokens: Ints
    output_tokens: Ints
    session: Ints
    shared_prefix_tokens: Ints
    tenant: Ints
    priority: Ints
    cancel_us: Ints
    deadline_us: Ints
    session_names: tuple[str, ...] = ()
    tenant_names: tuple[str, ...] = ()
    block_ids: tuple[tuple[int, ...], ...] = ()
    block_id_tokens: int = 0
    dropped: int = 0

    def __len__(self) -> int:
        return len(self.arrival_us)


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One request as a reader hands it over; times in µs on the source's own clock."""

    arrival_us: int
    input_tokens: int
    output_tokens: int
    session: str = ""
    tenant: str = ""
    shared_prefix_tokens: int = 0
    priority: int = 0
    cancel_us: int = NONE
    deadline_us: int = NONE
    block_ids: tuple[int, ...] = ()


def build_trace(
    source: str, records: list[Record], dropped: int = 0, block_id_tokens: int = 0
) -> Trace:
    """The records as a `Trace`: stably sorted by arrival, rebased so that the first is at 0."""
    arrival = np.array([r.arrival_us for r in records], dtype=np.int64)
    order = np.argsort(arrival, kind="stable")
    first = int(arrival[order[0]]) if len(records) else 0
    sorted_records = [records[i] for i in order.tolist()]

    def column(value: Callable[[Record], int]) -> Ints:
        return np.array([value(r) for r in sorted_records], dtype=np.int64)

    def rebased(value: int) -> int:
        return value if value == NONE else value - first

    session, session_names = _codes([r.session for r in sorted_records])
    tenant, tenant_names = _codes([r.tenant for r in sorted_records])
    return Trace(
        source=source,
        arrival_us=arrival[order] - first,
        input_tokens=column(lambda r: r.input_tokens),
        output_tokens=column(lambda r: r.output_tokens),
        session=session,
        session_names=session_names,
        shared_prefix_tokens=column(lambda r: r.shared_prefix_tokens),
        tenant=tenant,
        tenant_names=tenant_names,
        priority=column(lambda r: r.priority),
        cancel_us=column(lambda r: rebased(r.cancel_us)),
        deadline_us=column(lambda r: rebased(r.deadline_us)),
        block_ids=tuple(r.block_ids for r in sorted_records) if block_id_tokens else (),
        block_id_tokens=block_id_tokens,
        dropped=dropped,
    )


def plain_trace(
    source: str,
    arrival_us: Ints,
    input_tokens: Ints,
    output_tokens: Ints,
    *,
    tenant: Ints | None = None,
    tenant_names: tuple[str, ...] = (),
) -> Trace:
    """A `Trace` from sorted columns, without sessions, priorities, deadlines or cancellations."""
    n = len(arrival_us)
    none = np.full(n, NONE, dtype=np.int64)
    zero = np.zeros(n, dtype=np.int64)
    return Trace(
        source=source,
        arrival_us=arrival_us,
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        session=none,
        shared_prefix_tokens=zero,
        tenant=none if tenant is None else tenant,
        tenant_names=tenant_names,
        priority=zero,
        cancel_us=none,
        deadline_us=none,
    )


def _codes(names: list[str]) -> tuple[Ints, tuple[str, ...]]:
    """Index of each name in order of first appearance, and the names; "" is -1."""
    index: dict[str, int] = {}
    codes = [index.setdefault(name, len(index)) if name else NONE for name in names]
    return np.array(codes, dtype=np.int64), tuple(index)
