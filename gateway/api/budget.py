"""What a client asks for besides the chat: budget, priority, capabilities, tags (BUD-1).

It comes in as headers (`x-deadline-ms`), or under the same names in the body's `metadata`, where
"x-" may be left out and "_" stands for "-". A header wins over the body. Names that mean nothing
here are left alone; a value that can't be used is an INVALID_REQUEST that names it. Values are
never quoted back: only their names are.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, get_args

from msgspec.structs import replace

from gateway.api.problems import Problem, invalid
from gateway.policy.values import Priority, UserPath
from gateway.quiet import Quiet
from ledger.money import INT64_MAX, parse_scaled

DEADLINE_LIMIT_MS = 7 * 24 * 3_600_000
TOKENS_LIMIT = 2**53  # beyond it JSON numbers aren't exact in most clients
LIST_LIMIT = 16
TAGS_LIMIT = 8

_INTEGER = re.compile(r"-?[0-9]{1,16}")
_DECIMAL = re.compile(r"[0-9]{1,12}(\.[0-9]{1,12})?")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/-]{0,63}")
_TAG_KEY = re.compile(r"[a-z0-9][a-z0-9-]{0,31}")
_TAG_VALUE = re.compile(r"[ -~]{1,64}")
_SESSION = re.compile(r"[!-~]{1,128}")
_TAG_PREFIX = "tag-"


class Asked(Quiet, frozen=True, kw_only=True, gc=False):
    """What was asked for; None: filled from the defaults of tenant and model (BUD-2)."""

    deadline_ms: int | None = None
    max_cost_pico: int | None = None
    max_input_tokens: int | None = None
    max_total_tokens: int | None = None
    ttft_objective_us: int | None = None
    tpot_objective_us: int | None = None
    priority: Priority = "interactive"
    user_path: UserPath = "interactive"
    task_type: str = "chat"
    required_capabilities: tuple[str, ...] = ()
    allowed_regions: tuple[str, ...] = ()
    quality_floor_milli: int = 0
    session_id: str = ""
    tags: tuple[tuple[str, str], ...] = ()


def read_budget(headers: Mapping[str, str], metadata: Mapping[str, str | int]) -> Asked | Problem:
    """Returns what headers (lower-case names) and metadata ask for, or the first problem."""
    given: dict[str, tuple[str, str]] = {}
    for name, value in metadata.items():
        plain = name.lower().replace("_", "-").removeprefix("x-")
        if plain in given and (plain in _READINGS or plain.startswith(_TAG_PREFIX)):
            place = f"metadata.{plain}"
            return invalid(f"{place} came in more than one spelling; send one.", place)
        given[plain] = (f"metadata.{plain}", str(value))
    for name, value in headers.items():
        if name.startswith("x-"):
            given[name[2:]] = (name, value)
    asked: dict[str, Any] = {}
    tags: dict[str, str] = {}
    for plain, (place, text) in given.items():
        if plain.startswith(_TAG_PREFIX):
            tags[plain.removeprefix(_TAG_PREFIX)] = text
            continue
        reading = _READINGS.get(plain)
        if reading is None:
            continue
        field, read, wanted = reading
        value = read(text.strip())
        if value is None:
            return invalid(f"{place} must be {wanted}.", place)
        asked[field] = value
    checked_tags = _tags(tags)
    if isinstance(checked_tags, Problem):
        return checked_tags
    return replace(Asked(tags=checked_tags), **asked) if asked else Asked(tags=checked_tags)


def is_budget_header(name: str) -> bool:
    """Returns whether a lower-case header name is one that is read here, a tag among them."""
    return name in _HEADERS or name.startswith(f"x-{_TAG_PREFIX}")


def header_readings() -> tuple[tuple[str, str], ...]:
    """Returns each header that is read here but the tags, with what its value must be."""
    return tuple((f"x-{plain}", wanted) for plain, (_, _, wanted) in _READINGS.items())


def is_single_budget_header(name: str) -> bool:
    """Returns whether a lower-case header name is one that is read here and no tag."""
    return name in _HEADERS


def _tags(tags: Mapping[str, str]) -> tuple[tuple[str, str], ...] | Problem:
    if not tags:
        return ()
    if len(tags) > TAGS_LIMIT:
        return invalid(f"At most {TAGS_LIMIT} tags are kept; {len(tags)} came.", "x-tag-*")
    for key, value in tags.items():
        if not _TAG_KEY.fullmatch(key) or not _TAG_VALUE.fullmatch(value):
            return invalid(
                "A tag is x-tag-<key>: <value>, with a key of at most 32 lower-case letters, "
                "digits and hyphens, and a value of 1 to 64 printable ASCII characters.",
                "x-tag-*",
            )
    return tuple(sorted(tags.items()))


def _integer(limit: int) -> Callable[[str], int | None]:
    def read(text: str) -> int | None:
        value = int(text) if _INTEGER.fullmatch(text) else None
        return value if value is not None and abs(value) <= limit else None

    return read


def _cost_pico(text: str) -> int | None:
    """Returns pico units of an exact decimal; no float is ever made of it."""
    if not _DECIMAL.fullmatch(text):
        return None
    pico = parse_scaled(text, 12)
    return pico if pico <= INT64_MAX else None


def _objective_us(text: str) -> int | None:
    """Returns a duration in µs of milliseconds with at most three places; none of it is zero."""
    if not _DECIMAL.fullmatch(text):
        return None
    try:
        duration_us = parse_scaled(text, 3)
    except ValueError:  # finer than a microsecond
        return None
    return duration_us if 0 < duration_us <= DEADLINE_LIMIT_MS * 1_000 else None


def _share_milli(text: str) -> int | None:
    if not _DECIMAL.fullmatch(text):
        return None
    try:
        milli = parse_scaled(text, 3)
    except ValueError:  # finer than thousandths
        return None
    return milli if milli <= 1000 else None


def _names(text: str) -> tuple[str, ...] | None:
    # An empty list is refused: it would read as "no restriction", the opposite of what was meant.
    names = sorted({part.strip() for part in text.split(",") if part.strip()})
    if not 0 < len(names) <= LIST_LIMIT or not all(map(_NAME.fullmatch, names)):
        return None
    return tuple(names)


def _matching(pattern: re.Pattern[str]) -> Callable[[str], str | None]:
    return lambda text: text if pattern.fullmatch(text) else None


def _one_of(choices: tuple[str, ...]) -> Callable[[str], str | None]:
    return lambda text: text if text in choices else None


_WHOLE_TOKENS = f"a whole number of tokens, at most {TOKENS_LIMIT}"
_OBJECTIVE = "a number of milliseconds above 0 with at most 3 places"
_NAME_LIST = (
    f"1 to {LIST_LIMIT} names separated by commas, each of at most 64 letters, digits and . _ : / -"
)

# name without "x-" -> field, how it is read (None: can't be used), what it must be.
# A number that is not positive is read here and refused in admission, with a receipt.
_READINGS: dict[str, tuple[str, Callable[[str], Any], str]] = {
    "deadline-ms": (
        "deadline_ms",
        _integer(DEADLINE_LIMIT_MS),
        f"a whole number of milliseconds, at most {DEADLINE_LIMIT_MS}",
    ),
    "max-cost-units": (
        "max_cost_pico",
        _cost_pico,
        "a decimal number of units such as 0.05, with at most 12 places and below 9223372",
    ),
    "max-input-tokens": ("max_input_tokens", _integer(TOKENS_LIMIT), _WHOLE_TOKENS),
    "max-total-tokens": ("max_total_tokens", _integer(TOKENS_LIMIT), _WHOLE_TOKENS),
    "slo-ttft-ms": ("ttft_objective_us", _objective_us, _OBJECTIVE),
    "slo-tpot-ms": ("tpot_objective_us", _objective_us, _OBJECTIVE),
    "priority": (
        "priority",
        _one_of(get_args(Priority)),
        f"one of {', '.join(get_args(Priority))}",
    ),
    "user-path": (
        "user_path",
        _one_of(get_args(UserPath)),
        f"one of {', '.join(get_args(UserPath))}",
    ),
    "task-type": (
        "task_type",
        _matching(_NAME),
        "a name of at most 64 letters, digits and . _ : / -",
    ),
    "required-capabilities": ("required_capabilities", _names, _NAME_LIST),
    "region": ("allowed_regions", _names, _NAME_LIST),
    "quality-floor": (
        "quality_floor_milli",
        _share_milli,
        "a decimal number from 0 to 1 with at most 3 places, such as 0.85",
    ),
    "session-id": (
        "session_id",
        _matching(_SESSION),
        "1 to 128 printable ASCII characters without spaces",
    ),
}

_HEADERS = frozenset(f"x-{plain}" for plain in _READINGS)
