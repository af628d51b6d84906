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
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path

from simulator.scheduler import MAX_JOB_TOKENS
from simulator.trace_shapes import MOONCAKE_BLOCK_TOKENS, SHAPES, Row
from simulator.traces import MAX_REQUESTS, Record, Trace, TraceError, build_trace

MAX_LINE_CHARS = 4_000_000


def read_trace(path: Path) -> Trace:
    """The trace in a CSV or JSONL file (optionally gzipped), labelled with the file's name.

    Raises `TraceError` with line and column for anything that isn't a request, for an unknown
    shape and for an empty file; OSError when the file can't be opened.
    """
    with open_text(path) as text:
        return parse_trace(path.name, text)


@contextmanager
def open_text(path: Path) -> Iterator[io.TextIOBase]:
    """The file as UTF-8 text, through gzip if its name ends in .gz.

    What turns out not to be text is a `TraceError`: a broken archive has no better place than
    its first line.
    """
    with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as raw:
        try:
            yield io.TextIOWrapper(raw, encoding="utf-8-sig", newline="")
        except (UnicodeDecodeError, EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise TraceError(
                source=path.name, line=1, column="1", reason=f"not readable as text: {error}"
            ) from None


def parse_trace(source: str, lines: io.TextIOBase) -> Trace:
    """The trace in open text; JSONL where the first line starts with a brace, CSV otherwise."""
    rows = _rows(source, lines)
    records: list[Record] = []
    dropped = 0
    read: Callable[[Row], Record | None] | None = None
    for row in rows:
        if read is None:
            read = _shape_of(row)
        record = read(row)
        if record is not None and record.input_tokens + record.output_tokens > MAX_JOB_TOKENS:
            raise row.refuse("1", f"prompt and output may have {MAX_JOB_TOKENS} tokens together")
        if record is None:
            dropped += 1
        else:
            records.append(record)
        if len(records) > MAX_REQUESTS:
            raise row.refuse("1", f"more than {MAX_REQUESTS} requests")
    if not records:
        raise TraceError(source=source, line=1, column="1", reason="holds no requests")
    has_ids = any(record.block_ids for record in records)
    return build_trace(source, records, dropped, MOONCAKE_BLOCK_TOKENS if has_ids else 0)


def any_rows(path: Path) -> Iterator[Row]:
    """The rows of a CSV or JSONL file of any columns; `TraceError` where it is neither."""
    with open_text(path) as text:
        yield from _rows(path.name, text)


def _rows(source: str, lines: io.TextIOBase) -> Iterator[Row]:
    limited = limited_lines(source, lines)
    first_line = next(limited, "")
    rest = chain([first_line], limited)
    is_json = first_line.lstrip().startswith("{")
    return _json_rows(source, rest) if is_json else csv_rows(source, rest)


def _shape_of(row: Row) -> Callable[[Row], Record | None]:
    names = set(row.fields)
    for needed, reader in SHAPES:
        if needed <= names:
            return reader()
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
    """The lines, refusing one longer than 4,000,000 characters before it fills the memory."""
    number = 0
    while line := lines.readline(MAX_LINE_CHARS + 1):
        number += 1
        if len(line) > MAX_LINE_CHARS:
            raise TraceError(
                source=source, line=number, column=str(MAX_LINE_CHARS), reason="line too long"
            )
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
