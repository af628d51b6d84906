"""What a provider's report says, line by line, whatever its format (REC-1). Pure."""

from dataclasses import dataclass
from typing import Literal, get_args

import msgspec

Role = Literal["usage", "cost"]
Kind = Literal["usage", "credit", "refund", "tax", "commitment", "fee", "adjustment", "rounding"]
KINDS: tuple[str, ...] = get_args(Kind)

# Each token is in exactly one of these: `input` is what was neither read from nor written to a
# cache, whatever the provider's own convention (CST-6). `total` is a bucket that isn't split.
UNCACHED_METERS = frozenset({"input", "cache_write", "cache_write_5m", "cache_write_1h"})
TOKEN_METERS = UNCACHED_METERS | {"cached_input", "output"}
COMPARED_METERS = TOKEN_METERS | {"total"}
METERS = COMPARED_METERS | {"other"}


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One line as the file has it. Money is in pico units of `currency`; None: it names none."""

    role: Role
    kind: Kind
    start_us: int
    end_us: int  # exclusive
    meter: str
    line_number: int
    file: int = 0  # of the files given, counted from 0
    model: str | None = None
    project: str | None = None
    api_key: str | None = None
    tier: str | None = None
    tokens: int | None = None
    quantity: str | None = None
    currency: str | None = None
    amount_pico: int | None = None
    rounded: bool = False  # the printed amount was finer than a pico unit
    step: str | None = None
    list_pico: int | None = None
    effective_pico: int | None = None
    provider_request_id: str | None = None
    native_id: str | None = None  # the provider's own id of the line, unique in its file
    variant: str = ""  # what else tells it from the other lines of its format
    description: str = ""
    tags: tuple[tuple[str, str], ...] = ()
    invoice_number: str | None = None
    exported_at_us: int | None = None


class Bucket(msgspec.Struct, frozen=True, kw_only=True):
    """A span of time of which a report speaks; `empty`: it says that nothing was used."""

    start_us: int
    end_us: int
    empty: bool


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """What one file says. `more`: the provider has further pages of the same report."""

    provider: str
    role: Role
    lines: tuple[Line, ...]
    buckets: tuple[Bucket, ...] = ()  # none where a format speaks of used hours alone
    more: bool = False


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """A whole report, of one file or of all its pages."""

    provider: str
    format: str
    role: Role
    files_sha256: tuple[str, ...]
    lines: tuple[Line, ...]
    buckets: tuple[Bucket, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why a report can't be imported: a stable code, what to do, and where it stands."""

    code: str
    message: str
    file: int = 0
    line: int | None = None
    column: int | None = None

    def __str__(self) -> str:
        place = "" if self.line is None else f"line {self.line}, column {self.column}: "
        return f"{self.code}: {place}{self.message}"


class Unreadable(ValueError):
    """Ends the reading of a file; `formats.read` returns it as a Refusal."""

    def __init__(self, code: str, message: str, line: int | None = None, column: int = 1) -> None:
        super().__init__(message)
        self.code = code
        self.line = line
        self.column = column
