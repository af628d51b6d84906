"""The fields of one row or object, read by name and type; what can't be read names its place. Pure.

A column of a CSV is its number, from 1; of a JSON object it is the column where the object starts.
"""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from ledger.invoices.currencies import CURRENCIES
from ledger.invoices.values import Unreadable
from ledger.money import parse_scaled
from ledger.zones import to_us

TEXT_LIMIT_CHARS = 200
FINEST_PLACES = 40  # decimal places that an amount may be printed with
TOKENS_LIMIT = 10**15
TIME_LIMIT_US = 32_503_680_000_000_000  # the year 3000: what is later has no place in any calendar
AMOUNT_LIMIT_PICO = 10**30  # 10^18 units

_LEAP_SECOND = re.compile(r"(.*[0-9]:[0-5][0-9]):60(?![0-9])(.*)", re.DOTALL)
# No text of a report holds these: control characters but tab and line ends, and half a character.
_REFUSED = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]")


Span = tuple[int, int]  # start_us, end_us; the end is exclusive


class Number(str):
    """A number of a JSON document, as it is printed: no digit is lost to a float."""

    __slots__ = ()


def rounded_to(text: str, places: int) -> tuple[int, bool]:
    """(`text` x 10^places rounded half to even, whether that changed it). ValueError: no number."""
    finest = parse_scaled(text, FINEST_PLACES)
    step = 10 ** (FINEST_PLACES - places)
    value, rest = divmod(finest, step)
    if 2 * rest > step or (2 * rest == step and value % 2):
        value += 1
    return value, rest != 0


def refused_character(text: str) -> str | None:
    """The first character that no text of a report may hold, as "U+0000"; None: there is none.

    The one rule of all formats. A control character acts on who reads it, a terminal or a
    spreadsheet; half a character, as JSON's "\\ud800" alone, can't be stored.
    """
    found = _REFUSED.search(text)
    return None if found is None else f"U+{ord(found[0]):04X}"


class Fields:
    """The cells of a row, or the values of an object. "" and null are None."""

    __slots__ = ("_column", "_columns", "_values", "line")

    def __init__(
        self,
        values: Mapping[str, Any],
        *,
        line: int,
        column: int = 1,
        columns: Mapping[str, int] | None = None,
    ) -> None:
        self._values, self._column, self._columns = values, column, columns
        self.line = line

    def bad(self, name: str, code: str, message: str) -> Unreadable:
        """What to raise about the field `name`."""
        column = self._column if self._columns is None else self._columns.get(name, 1)
        return Unreadable(code, f"{name}: {message}", self.line, column)

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def raw(self, name: str) -> Any:
        """The value as it was parsed; Unreadable (MISSING) where there is no such field."""
        if name not in self._values:
            raise self.bad(name, "MISSING", "it is not there")
        return self._values[name]

    def text(self, name: str, *, limit: int = TEXT_LIMIT_CHARS) -> str | None:
        """The text, None where it is empty, null or not there."""
        value = self._values.get(name)
        if value is None or value == "":
            return None
        if not isinstance(value, str) or isinstance(value, Number):
            raise self.bad(name, "WRONG_TYPE", "it must be a text")
        if len(value) > limit:
            raise self.bad(name, "TOO_LONG", f"it has more than {limit} characters")
        self.check(name, value)
        return value

    def check(self, name: str, text: str) -> None:
        """Unreadable (CHARACTER) where `text`, of the field `name`, has a refused character."""
        found = refused_character(text)
        if found is not None:
            raise self.bad(name, "CHARACTER", f"it has {found}, which is no character of a text")

    def need(self, name: str) -> str:
        """The text; Unreadable (MISSING) where there is none."""
        value = self.text(name)
        if value is None:
            raise self.bad(name, "MISSING", "it is empty")
        return value

    def flag(self, name: str) -> bool:
        """A JSON boolean, or True/False in any case as text; False where there is none."""
        value = self._values.get(name)
        if value is None or value == "":
            return False
        text = str(value).lower()
        if text not in {"true", "false"}:
            raise self.bad(name, "WRONG_TYPE", "it must be true or false")
        return text == "true"

    def number(self, name: str) -> str | None:
        """A number's digits: of a JSON number, or of a cell; None where there is none."""
        value = self._values.get(name)
        if value is None or value == "":
            return None
        if not isinstance(value, str):
            raise self.bad(name, "WRONG_TYPE", "it must be a number")
        return str(value)

    def quantity(self, name: str) -> str | None:
        """A number as it is printed, of at most 64 characters; None where there is none."""
        text = self.number(name)
        if text is not None:
            try:
                parse_scaled(text, FINEST_PLACES)
            except ValueError as error:
                raise self.bad(name, "NOT_A_NUMBER", str(error)) from None
        return text

    def count(self, name: str) -> int | None:
        """A whole number of at most TOKENS_LIMIT; "3.0" is 3. None where there is none."""
        text = self.number(name)
        return None if text is None else self.whole(name, text, 0)

    def tokens(self, name: str) -> int:
        """A whole number that is not negative; Unreadable where it is anything else."""
        value = self.count(name)
        if value is None:
            raise self.bad(name, "MISSING", "it is empty")
        if value < 0:
            raise self.bad(name, "NEGATIVE", f"{value} is negative")
        return value

    def whole(self, name: str, text: str, places: int) -> int:
        """`text` x 10^places, which must be whole."""
        try:
            value = parse_scaled(text, places)
        except ValueError as error:
            raise self.bad(name, "NOT_A_NUMBER", str(error)) from None
        if abs(value) > TOKENS_LIMIT:
            raise self.bad(name, "OUT_OF_RANGE", f"{text} is beyond {TOKENS_LIMIT:,}")
        return value

    def pico(self, name: str, *, places: int = 12) -> tuple[int, bool]:
        """An amount in pico units and whether it was rounded to one; 10 places for cents."""
        text = self.number(name)
        if text is None:
            raise self.bad(name, "MISSING", "it is empty")
        try:
            value, rounded = rounded_to(text, places)
        except ValueError as error:
            raise self.bad(name, "NOT_A_NUMBER", str(error)) from None
        if abs(value) > AMOUNT_LIMIT_PICO:
            raise self.bad(name, "OUT_OF_RANGE", f"{text} is beyond 10^18 units")
        return value, rounded

    def optional_pico(self, name: str) -> int | None:
        return None if self.number(name) is None else self.pico(name)[0]

    def currency(self, name: str) -> str:
        """An ISO 4217 code in capitals, whatever its case in the file."""
        value = self.need(name).upper()
        if value not in CURRENCIES:
            raise self.bad(name, "CURRENCY", f"{value[:20]!r} is no currency code of ISO 4217")
        return value

    def items(self, name: str) -> list[object]:
        """A JSON list."""
        value = self.raw(name)
        if not isinstance(value, list):
            raise self.bad(name, "WRONG_TYPE", "it must be a list")
        return value

    def span(self, start_us: int, end_us: int) -> Span:
        """Both; Unreadable (TIME) where the end is not after the start."""
        if start_us >= end_us:
            raise Unreadable("TIME", "the period doesn't end after it starts", self.line)
        return start_us, end_us

    def seconds(self, name: str) -> int:
        """A time as Unix seconds, in microseconds."""
        value = self.count(name)
        if value is None or not 0 <= value * 1_000_000 < TIME_LIMIT_US:
            raise self.bad(name, "TIME", "it must be a time in Unix seconds")
        return value * 1_000_000

    def time(self, name: str, *, utc: bool = False) -> int:
        """A time in ISO 8601 or RFC 3339; with `utc`, one without an offset is taken as UTC.

        A leap second, 23:59:60 of UTC, is the second after it. Of the years 1970 to 2999: what is
        shown of a line is a date of a calendar, which ends with the year 9999.
        """
        text = self.need(name)
        leap = _LEAP_SECOND.fullmatch(text)
        try:
            moment = datetime.fromisoformat(text if leap is None else f"{leap[1]}:59{leap[2]}")
        except ValueError:
            raise self.bad(name, "TIME", f"{text[:40]!r} is no ISO 8601 time") from None
        if moment.tzinfo is None:
            if not utc:
                raise self.bad(name, "TIME", f"{text[:40]!r} has no offset from UTC")
            moment = moment.replace(tzinfo=UTC)
        at_us = to_us(moment)
        if leap is not None:
            if at_us // 60_000_000 % 1_440 != 1_439:
                raise self.bad(name, "TIME", f"{text[:40]!r} is no leap second: 23:59:60 UTC is")
            at_us += 1_000_000
        if not 0 <= at_us < TIME_LIMIT_US:
            raise self.bad(name, "TIME", f"{text[:40]!r} is not in the years 1970 to 2999")
        return at_us
