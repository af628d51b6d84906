"""The published shapes of request traces: which columns name one, and how a row is read.

`SHAPES` pairs the column names that identify a shape with a maker of its row reader, which
returns a `Record`, or None for a record that never produced a token. Columns are found by name,
never by place; unknown ones are ignored. A bad field raises `TraceError` with line and column.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from decimal import Decimal, DecimalException

from simulator.traces import NONE, Record, TraceError

MAX_TOKENS = 10_000_000
MAX_TIME_US = 100 * 365 * 86_400 * 1_000_000
MAX_DIGITS = 20
MOONCAKE_BLOCK_TOKENS = 512

_OWN = frozenset({"arrival_us", "input_tokens", "output_tokens"})
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Row:
    """One line of a table: typed access to its fields, refusing with the line and column."""

    __slots__ = ("fields", "line", "places", "source")

    def __init__(
        self, source: str, line: int, fields: Mapping[str, object], places: Mapping[str, int]
    ) -> None:
        self.source = source
        self.line = line
        self.fields = fields
        self.places = places

    def refuse(self, name: str, reason: str) -> TraceError:
        place = self.places.get(name)
        column = name if place is None else f"{place} ({name})"
        return TraceError(source=self.source, line=self.line, column=column, reason=reason)

    def has(self, name: str) -> bool:
        return self.fields.get(name) not in (None, "")

    def text(self, name: str) -> str:
        value = self.fields.get(name)
        return "" if value is None else str(value)

    def integer(self, name: str, low: int, high: int) -> int:
        value = self.fields.get(name)
        # Nearly all are plain digits; what isn't is looked at closely, for whoever has to mend it.
        if type(value) is str and len(value) < MAX_DIGITS and value.isdigit() and value.isascii():
            number = int(value)
            if low <= number <= high:
                return number
        if value is None or value == "":
            raise self.refuse(name, "missing")
        if isinstance(value, (bool, float)) or not isinstance(value, (int, str)):
            raise self.refuse(name, f"{value!r} is not a whole number")
        text = str(value).strip()
        if not (text.isascii() and text.removeprefix("-").isdigit()):
            raise self.refuse(name, f"{text[:40]!r} is not a whole number")
        if len(text) > MAX_DIGITS:
            raise self.refuse(name, f"a number of {len(text)} digits is not in {low} to {high}")
        number = int(text)
        if not low <= number <= high:
            raise self.refuse(name, f"{number} is not between {low} and {high}")
        return number

    def needed(self, name: str) -> str:
        if not self.has(name):
            raise self.refuse(name, "missing")
        return self.text(name)

    def number(self, name: str, low: float, high: float = 1e12) -> float:
        text = self.needed(name)
        try:
            number = float(text)
        except ValueError:
            raise self.refuse(name, f"{text[:40]!r} is not a number") from None
        if not low <= number <= high:
            raise self.refuse(name, f"{number:g} is not between {low:g} and {high:g}")
        return number

    def optional(self, name: str, low: int, high: int, absent: int) -> int:
        value = self.fields.get(name)
        return absent if value is None or value == "" else self.integer(name, low, high)

    def scaled_us(self, name: str, us_per_unit: int) -> int:
        """A decimal number of units as whole microseconds, rounded half to even."""
        try:
            scaled = Decimal(self.text(name)) * us_per_unit
            # The range is checked before the conversion: int() of 1e999999 would eat the memory.
            inside = 0 <= scaled <= MAX_TIME_US
        except DecimalException:
            raise self.refuse(name, f"{self.text(name)[:40]!r} is not a number") from None
        if not inside:
            raise self.refuse(name, f"{self.text(name)[:40]} is outside the supported time range")
        return int(scaled.to_integral_value())

    def instant_us(self, name: str) -> int:
        """An ISO 8601 instant as microseconds UTC: no zone is UTC, a seventh digit is cut."""
        try:
            when = datetime.fromisoformat(self.text(name).strip())
        except ValueError:
            raise self.refuse(name, f"{self.text(name)[:40]!r} is not a time") from None
        if when.tzinfo is None:
            when = when.replace(tzinfo=UTC)
        passed = when - _EPOCH
        return (passed.days * 86_400 + passed.seconds) * 1_000_000 + passed.microseconds


def _own(row: Row) -> Record | None:
    input_tokens = row.integer("input_tokens", 1, MAX_TOKENS)
    arrival = row.integer("arrival_us", 0, MAX_TIME_US)
    output_tokens = row.integer("output_tokens", 1, MAX_TOKENS)
    if len(row.fields) == len(_OWN):
        return Record(arrival, input_tokens, output_tokens)
    return Record(
        arrival_us=arrival,
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        session=row.text("session"),
        tenant=row.text("tenant"),
        shared_prefix_tokens=row.optional("shared_prefix_tokens", 0, input_tokens, 0),
        priority=row.optional("priority", -1_000_000, 1_000_000, 0),
        cancel_us=row.optional("cancel_us", arrival, MAX_TIME_US, NONE),
        deadline_us=row.optional("deadline_us", arrival, MAX_TIME_US, NONE),
    )


def _azure(row: Row) -> Record | None:
    return Record(
        arrival_us=row.instant_us("TIMESTAMP"),
        input_tokens=row.integer("ContextTokens", 1, MAX_TOKENS),
        output_tokens=row.integer("GeneratedTokens", 1, MAX_TOKENS),
    )


def _burstgpt(row: Row) -> Record | None:
    # BurstGPT records a failed call as a response of 0 tokens: nothing to replay.
    output_tokens = row.integer("Response tokens", 0, MAX_TOKENS)
    arrival = row.scaled_us("Timestamp", 1_000_000)
    input_tokens = row.integer("Request tokens", 0, MAX_TOKENS)
    if output_tokens == 0 or input_tokens == 0:
        return None
    return Record(
        arrival_us=arrival,
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        session=row.text("Session ID"),
    )


def _mooncake_reader() -> Callable[[Row], Record | None]:
    """A reader that remembers block hashes: leading ones seen before are the shared prefix."""
    seen: set[int] = set()

    def read(row: Row) -> Record | None:
        input_tokens = row.integer("input_length", 1, MAX_TOKENS)
        blocks = row.fields.get("hash_ids", [])
        if not isinstance(blocks, list) or not all(type(b) is int for b in blocks):
            raise row.refuse("hash_ids", "not a list of whole numbers")
        shared = 0
        for block in blocks:
            if block not in seen:
                break
            shared += 1
        seen.update(blocks)
        return Record(
            arrival_us=row.scaled_us("timestamp", 1_000),
            input_tokens=input_tokens,
            output_tokens=row.integer("output_length", 1, MAX_TOKENS),
            shared_prefix_tokens=min(shared * MOONCAKE_BLOCK_TOKENS, input_tokens),
            block_ids=tuple(blocks),
        )

    return read


ARRIVALS = ("arrival_us", "TIMESTAMP", "Timestamp", "timestamp")
"""The names of the column of arrivals, one a shape."""

# What tells one published shape from another: its own names for arrival and lengths.
SHAPES: tuple[tuple[frozenset[str], Callable[[], Callable[[Row], Record | None]]], ...] = (
    (_OWN, lambda: _own),
    (frozenset({"TIMESTAMP", "ContextTokens", "GeneratedTokens"}), lambda: _azure),
    (frozenset({"Timestamp", "Request tokens", "Response tokens"}), lambda: _burstgpt),
    (frozenset({"timestamp", "input_length", "output_length"}), _mooncake_reader),
)
