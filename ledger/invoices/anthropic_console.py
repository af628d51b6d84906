"""Anthropic's Console: its usage and its cost CSV (REC-1). Pure.

Names, not ids; a date is a UTC day, or with a time a UTC hour. Costs are rounded to a cent in each
row, so their sum can be half a cent a row away from the exact one: `step` says so.
"""

import re
from collections.abc import Iterator
from typing import Literal

from ledger.invoices.anthropic import CONSOLE_KEY, DEFAULT_WORKSPACE, PROVIDER, tier_of
from ledger.invoices.fields import Fields, Span
from ledger.invoices.files import csv_rows
from ledger.invoices.values import Bucket, Line, Page

DAY_US = 86_400_000_000
HOUR_US = 3_600_000_000
CENT = "0.01"

_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_USAGE = (
    ("input", "usage_input_tokens_no_cache", True),
    ("cached_input", "usage_input_tokens_cache_read", False),
    ("cache_write_5m", "usage_input_tokens_cache_write_5m", False),
    ("cache_write_1h", "usage_input_tokens_cache_write_1h", False),
    ("output", "usage_output_tokens", True),
)
_COST_METERS = {
    "input_no_cache": "input",
    "input_cache_read": "cached_input",
    "input_cache_write_5m": "cache_write_5m",
    "input_cache_write_1h": "cache_write_1h",
    "output": "output",
}


def is_usage(header: tuple[str, ...]) -> bool:
    return {"usage_date_utc", "usage_input_tokens_no_cache"} <= set(header)


def is_cost(header: tuple[str, ...]) -> bool:
    return {"usage_date_utc", "cost_usd", "token_type"} <= set(header)


def read_usage(text: str) -> Page:
    """The Console's CSV of tokens."""
    return _page(text, "usage")


def read_costs(text: str) -> Page:
    """The Console's CSV of costs, in dollars."""
    return _page(text, "cost")


def _page(text: str, role: Literal["usage", "cost"]) -> Page:
    _, rows = csv_rows(text)
    lines: list[Line] = []
    spans: dict[Span, None] = {}
    for row in rows:
        span = _span(row)
        spans[span] = None
        lines.extend(_usage_lines(row, span) if role == "usage" else _cost_line(row, span))
    buckets = tuple(Bucket(start_us=start, end_us=end, empty=False) for start, end in spans)
    return Page(provider=PROVIDER, role=role, lines=tuple(lines), buckets=buckets)


def _span(row: Fields) -> Span:
    start_us = row.time("usage_date_utc", utc=True)
    day = _DAY.fullmatch(row.need("usage_date_utc"))
    return start_us, start_us + (DAY_US if day else HOUR_US)


def _workspace(row: Fields) -> str:
    name = row.text("workspace")
    return DEFAULT_WORKSPACE if name is None or name == "Default" else name


def _tags(row: Fields) -> tuple[tuple[str, str], ...]:
    named = ((name, row.text(name)) for name in ("context_window", "inference_geo", "speed"))
    return tuple((name, value) for name, value in named if value is not None)


def _usage_lines(row: Fields, span: Span) -> Iterator[Line]:
    searches = 0 if row.number("web_search_count") is None else row.tokens("web_search_count")
    counted = [(meter, row.tokens(name), always) for meter, name, always in _USAGE]
    for meter, amount, always in (*counted, ("other", searches, False)):
        if amount or always:
            yield Line(
                role="usage", kind="usage", start_us=span[0], end_us=span[1],
                model=row.text("model_version"), project=_workspace(row),
                api_key=row.text("api_key") or CONSOLE_KEY,
                tier=tier_of(row.text("usage_type")), meter=meter,
                tokens=None if meter == "other" else amount,
                quantity=f"{amount} web searches" if meter == "other" else None,
                description="web search" if meter == "other" else "",
                tags=_tags(row), line_number=row.line,
            )  # fmt: skip


def _cost_line(row: Fields, span: Span) -> Iterator[Line]:
    pico, rounded = row.pico("cost_usd")
    token_type = row.text("token_type")
    yield Line(
        role="cost", kind="credit" if pico < 0 else "usage", start_us=span[0], end_us=span[1],
        model=row.text("model"), project=_workspace(row), api_key=row.text("api_key"),
        tier=tier_of(row.text("usage_type")), meter=_COST_METERS.get(token_type or "", "other"),
        currency="USD", amount_pico=pico, rounded=rounded, step=CENT,
        list_pico=row.optional_pico("list_price_usd"),
        description=token_type or row.text("cost_type") or "",
        tags=_tags(row), line_number=row.line,
    )  # fmt: skip
