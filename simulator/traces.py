"""A workload as numpy columns, and the error that refuses a bad one.

`Trace` is what every reader and generator returns and what the engine replays. Source:
SIMULATOR.md "workload", SIM-1.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

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


class Record(NamedTuple):
    """One request as a reader hands it over; times in µs on the source's own clock.

    A tuple, because traces have millions: the numbers first, then names, then blocks.
    """

    arrival_us: int
    input_tokens: int
    output_tokens: int
    shared_prefix_tokens: int = 0
    priority: int = 0
    cancel_us: int = NONE
    deadline_us: int = NONE
    session: str = ""
    tenant: str = ""
    block_ids: tuple[int, ...] = ()


_COLUMNS = Record._fields[:7]


class TraceBuilder:
    """Records as they are read, kept as columns: a list of objects takes several times as much."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._numbers = array("q")
        self._sessions, self._tenants = _Codes(), _Codes()
        self._block_ids: list[tuple[int, ...]] = []

    def __len__(self) -> int:
        return len(self._block_ids)

    def add(self, record: Record) -> None:
        """Take one more request."""
        arrival, inputs, outputs, shared, priority, cancel, deadline, session, tenant, ids = record
        self._numbers.extend((arrival, inputs, outputs, shared, priority, cancel, deadline))
        self._sessions.add(session)
        self._tenants.add(tenant)
        self._block_ids.append(ids)

    def build(self, dropped: int = 0, block_id_tokens: int = 0) -> Trace:
        """The records as a `Trace`: stably sorted by arrival, rebased so that the first is at 0.

        Block ids are kept where they have a size and any request has some.
        """
        rows = np.frombuffer(self._numbers, np.int64).reshape(-1, len(_COLUMNS))
        order = np.argsort(rows[:, 0], kind="stable")
        first = int(rows[order[0], 0]) if len(order) else 0
        columns = {name: rows[order, place] for place, name in enumerate(_COLUMNS)}
        for name in ("cancel_us", "deadline_us"):
            columns[name] = np.where(columns[name] == NONE, NONE, columns[name] - first)
        columns["arrival_us"] -= first
        session, session_names = self._sessions.in_order(order)
        tenant, tenant_names = self._tenants.in_order(order)
        has_ids = block_id_tokens > 0 and any(self._block_ids)
        return Trace(
            source=self._source,
            **columns,
            session=session,
            session_names=session_names,
            tenant=tenant,
            tenant_names=tenant_names,
            block_ids=tuple(self._block_ids[i] for i in order.tolist()) if has_ids else (),
            block_id_tokens=block_id_tokens if has_ids else 0,
            dropped=dropped,
        )


def build_trace(
    source: str, records: Iterable[Record], dropped: int = 0, block_id_tokens: int = 0
) -> Trace:
    """The records as a `Trace`, see `TraceBuilder.build`."""
    builder = TraceBuilder(source)
    for record in records:
        builder.add(record)
    return builder.build(dropped, block_id_tokens)


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


class _Codes:
    """Names as indices into those seen so far; "" is -1."""

    def __init__(self) -> None:
        self._index: dict[str, int] = {"": NONE}
        self._codes = array("q")

    def add(self, name: str) -> None:
        self._codes.append(self._index.setdefault(name, len(self._index) - 1))

    def in_order(self, order: Ints) -> tuple[Ints, tuple[str, ...]]:
        """The codes in that order, numbered anew by first appearance in it, and the names."""
        codes = np.array(self._codes, dtype=np.int64)[order]
        known, places = np.unique(codes, return_index=True)
        known = known[np.argsort(places)]
        known = known[known != NONE]
        names = [name for name in self._index if name]
        renumbered = np.full(len(names) + 1, NONE, dtype=np.int64)  # the last is that of NONE
        renumbered[known] = np.arange(len(known))
        return renumbered[codes], tuple(names[code] for code in known.tolist())
