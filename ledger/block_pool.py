"""All blocks of a ledger checked, a long ledger's by several processes."""

import os
import sqlite3
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path

from ledger.blocks import Sound, Usual, check_block
from ledger.chain import BLOCK_ROWS
from ledger.rates import RateTable
from ledger.reading import connect_read_only, fetch_one

PROCESSES_LIMIT = 4
ROWS_PER_PROCESS = 50_000
"""A process of its own takes some tenths of a second to start: fewer rows aren't worth one."""

Span = tuple[int, int]  # first and last seq
Checked = tuple[int, int, Sound | None]


def checked_blocks(
    connection: sqlite3.Connection,
    size: int,
    tables: Mapping[str, RateTable],
    *,
    rows_per_process: int = ROWS_PER_PROCESS,
) -> Iterator[Checked]:
    """(first, last, the block if it is sound) of all rows up to `size`, in order.

    Other processes read the ledger by its path, over connections of their own: rows up to `size`
    don't change. Where they can't be had, this one does the work.
    """
    spans = [(at, min(at + BLOCK_ROWS - 1, size)) for at in range(1, size + 1, BLOCK_ROWS)]
    processes = min(os.cpu_count() or 1, PROCESSES_LIMIT, size // rows_per_process)
    path = fetch_one(connection, "PRAGMA database_list")[2]
    done = 0
    if processes > 1 and path:
        try:
            for checked in _by_processes(Path(path), spans, dict(tables), processes):
                yield checked
                done += 1
        except (BrokenProcessPool, OSError):
            pass  # nothing was said of the blocks that are left
    usual = Usual()
    for first, last in spans[done:]:
        yield first, last, check_block(connection, first, last, tables, usual)


def _by_processes(
    path: Path, spans: list[Span], tables: dict[str, RateTable], processes: int
) -> Iterator[Checked]:
    with ProcessPoolExecutor(
        processes, get_context("spawn"), initializer=_open, initargs=(path, tables)
    ) as pool:
        try:
            for (first, last), sound in zip(spans, pool.map(_check, spans), strict=True):
                yield first, last, sound
        finally:
            pool.shutdown(cancel_futures=True)


class _Process:
    """What a process that checks blocks has open."""

    connection: sqlite3.Connection
    tables: dict[str, RateTable]
    usual: Usual


def _open(path: Path, tables: dict[str, RateTable]) -> None:
    _Process.connection, _Process.tables = connect_read_only(path), tables
    _Process.usual = Usual()


def _check(span: Span) -> Sound | None:
    return check_block(_Process.connection, *span, _Process.tables, _Process.usual)
