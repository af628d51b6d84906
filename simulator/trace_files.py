"""Reads request traces from files, or refuses them with line and column.

`read_trace(path)` returns a `Trace`. It knows this project's own CSV and JSONL shape, Azure's
published columns (TIMESTAMP, ContextTokens, GeneratedTokens), BurstGPT's (Timestamp, Request
tokens, Response tokens, Session ID) and Mooncake's JSONL (timestamp in ms, input_length,
output_length, hash_ids of 512-token blocks). A name ending in .gz is read through gzip.
Source: SIMULATOR.md "workload", SIM-1.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import chain, count
from pathlib import Path

from simulator.scheduler import MAX_JOB_TOKENS
from simulator.trace_shapes import ARRIVALS, MAX_TIME_US, MOONCAKE_BLOCK_TOKENS, SHAPES, Row
from simulator.traces import MAX_REQUESTS, Record, Trace, TraceBuilder, TraceError

MAX_LINE_CHARS = 4_000_000
DAY_US = 86_400_000_000
FORMAT = "write CSV with the columns' names in its first line, or JSONL, an object a line"
_NOT_UTF8 = re.compile("[\udc80-\udcff]")


def read_trace(path: Path, max_span_us: int = MAX_TIME_US) -> Trace:
    """The trace in a CSV or JSONL file (optionally gzipped), labelled with the file's name.

    Raises `TraceError` with line and column for anything that isn't a request, for an unknown
    shape, for an empty file and for arrivals further apart than `max_span_us`; OSError when the
    file can't be opened.
    """
    with open_text(path) as text:
        return parse_trace(path.name, text, max_span_us)


@contextmanager
def open_text(path: Path) -> Iterator[io.TextIOBase]:
    """The file as UTF-8 text, through gzip if its name ends in .gz.

    What isn't UTF-8 comes as lone surrogates, which `limited_lines` refuses where they stand.
    """
    with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as raw:
        yield io.TextIOWrapper(raw, encoding="utf-8-sig", errors="surrogateescape", newline="")


def parse_trace(source: str, lines: io.TextIOBase, max_span_us: int = MAX_TIME_US) -> Trace:
    """The trace in open text; JSONL where the first line starts with a brace, CSV otherwise."""
    rows = _rows(source, lines)
    head = next(rows, None)
    if head is None:
        raise TraceError(source=source, line=1, column="1", reason="holds no requests")
    arrival, read = _shape_of(head)
    builder, taken, dropped = TraceBuilder(source), 0, 0
    first = last = (0, head)
    for row in chain([head], rows):
        record = read(row)
        if record is None:
            dropped += 1
            continue
        if record.input_tokens + record.output_tokens > MAX_JOB_TOKENS:
            raise row.refuse("1", f"prompt and output may have {MAX_JOB_TOKENS} tokens together")
        at = record.arrival_us
        if not taken:
            first = last = (at, row)
        elif at < first[0]:
            first = (at, row)
        elif at > last[0]:
            last = (at, row)
        builder.add(record)
        taken += 1
        if taken > MAX_REQUESTS:
            raise row.refuse("1", f"more than {MAX_REQUESTS} requests")
    if not taken:
        raise TraceError(source=source, line=1, column="1", reason="holds no requests")
    if last[0] - first[0] > max_span_us:
        raise _too_long(arrival, first, last, max_span_us)
    return builder.build(dropped, MOONCAKE_BLOCK_TOKENS)


def _too_long(
    arrival: str, first: tuple[int, Row], last: tuple[int, Row], max_span_us: int
) -> TraceError:
    """Both ends of the trace: either may be the one that is wrong."""
    return last[1].refuse(
        arrival,
        f"the last arrival, {last[1].text(arrival)[:40]!r}, is"
        f" {(last[0] - first[0]) / DAY_US:,.1f} days after the first,"
        f" {first[1].text(arrival)[:40]!r} in line {first[1].line}; a trace may last"
        f" {max_span_us / DAY_US:,.1f} days: correct the time, or split the trace",
    )


def any_rows(path: Path) -> Iterator[Row]:
    """The rows of a CSV or JSONL file of any columns; `TraceError` where it is neither."""
    with open_text(path) as text:
        yield from _rows(path.name, text)


def _rows(source: str, lines: io.TextIOBase) -> Iterator[Row]:
    limited = limited_lines(source, lines)
    first_line = next(limited, "")
    rest = chain([first_line], limited)
    if first_line and not first_line.strip():
        raise TraceError(source=source, line=1, column="1", reason=f"a blank line; {FORMAT}")
    if first_line.lstrip().startswith("["):
        raise TraceError(source=source, line=1, column="1", reason=f"a JSON array; {FORMAT}")
    is_json = first_line.lstrip().startswith("{")
    return _json_rows(source, rest) if is_json else csv_rows(source, rest)


def _shape_of(row: Row) -> tuple[str, Callable[[Row], Record | None]]:
    """The name of the shape's column of arrivals, and the reader of its rows."""
    names = set(row.fields)
    for needed, reader in SHAPES:
        if needed <= names:
            return next(name for name in ARRIVALS if name in needed), reader()
    closest = max((needed for needed, _ in SHAPES), key=lambda needed: len(needed & names))
    missing = ", ".join(sorted(closest - names))
    other = len(names) == 1 and any(separator in min(names) for separator in ";\t|")
    raise TraceError(
        source=row.source,
        line=1,
        column="1",
        reason=f"unknown shape: no column named {missing}"
        + ("; fields are separated by commas" if other else ""),
    )


def limited_lines(source: str, lines: io.TextIOBase) -> Iterator[str]:
    """The lines; `TraceError` at one that isn't UTF-8, at which the archive breaks, or that is
    longer than 4,000,000 characters, before it fills the memory."""
    for number in count(1):
        try:
            line = lines.readline(MAX_LINE_CHARS + 1)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise TraceError(
                source=source, line=number, column="1", reason=f"not readable as text: {error}"
            ) from None
        if len(line) > MAX_LINE_CHARS:
            raise TraceError(
                source=source, line=number, column=str(MAX_LINE_CHARS), reason="line too long"
            )
        if not line.isascii() and (bad := _NOT_UTF8.search(line)):
            raise TraceError(
                source=source,
                line=number,
                column=str(bad.start() + 1),
                reason=f"not readable as text: byte 0x{ord(bad[0]) & 0xFF:02x} is not UTF-8",
            )
        if not line:
            return
        yield line


def table_rows(path: Path) -> Iterator[Row]:
    """The rows of any CSV file, as `csv_rows`, read through gzip if its name ends in .gz."""
    with open_text(path) as text:
        yield from csv_rows(path.name, limited_lines(path.name, text))


def csv_rows(source: str, lines: Iterator[str]) -> Iterator[Row]:
    """The rows below the header; a row with more or fewer fields than it is a `TraceError`."""
    reader = csv.reader(lines, strict=True)
    try:
        header = [name.strip() for name in next(reader, [])]
        places = {name: place for place, name in enumerate(header, start=1)}
        if len(places) < len(header):
            raise TraceError(source=source, line=1, column="1", reason="a column name twice")
        for fields in reader:
            if not fields:
                continue
            if len(fields) != len(header):
                raise TraceError(
                    source=source,
                    line=reader.line_num,
                    column=str(min(len(fields), len(header)) + 1),
                    reason=f"{len(fields)} fields where the header has {len(header)}",
                )
            row = dict(zip(header, fields, strict=True))
            yield Row(source, reader.line_num, row, places)
    except csv.Error as error:
        raise TraceError(
            source=source, line=reader.line_num, column="1", reason=str(error)
        ) from None


def _json_rows(source: str, lines: Iterator[str]) -> Iterator[Row]:
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            fields = json.loads(line)
        except (json.JSONDecodeError, RecursionError) as error:
            column = str(error.colno) if isinstance(error, json.JSONDecodeError) else "1"
            raise TraceError(
                source=source, line=number, column=column, reason="not valid JSON"
            ) from None
        if not isinstance(fields, dict):
            raise TraceError(source=source, line=number, column="1", reason="not an object")
        yield Row(source, number, fields, {})
