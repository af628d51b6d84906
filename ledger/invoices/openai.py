"""OpenAI: the usage and the cost report of its API, and the CSV of its dashboard (REC-1). Pure.

`input_tokens` includes what was cached; an `amount` is a JSON number of dollars. A cost report has
lines that usage has not (web search), usage has calls without a token (failed ones).
"""

import re
from collections.abc import Callable, Iterable, Iterator

from ledger.invoices.fields import Fields, Number, Span
from ledger.invoices.files import Tree, csv_rows
from ledger.invoices.values import Bucket, Line, Page, Role

PROVIDER = "openai"
USAGE_RESULT = "organization.usage.completions.result"
COSTS_RESULT = "organization.costs.result"

_STANDARD = frozenset({"default", "standard", "auto"})
_ITEM = re.compile(r"(?P<model>[^,|]+?)(?: (?P<tier>batch|priority|flex))?, (?P<meter>[^,|]+)")
_ITEM_METERS = {
    "input": "input",
    "cached input": "cached_input",
    "cache write": "cache_write",
    "output": "output",
}
_SCALES = {"tokens": 0, "1000_tokens": 3}


def read_usage(tree: Tree) -> Page:
    """The page of a usage/completions report."""
    return _page(tree, "usage", _usage_lines)


def read_costs(tree: Tree) -> Page:
    """The page of a costs report."""

    def lines(fields: Fields, span: Span) -> Iterator[Line]:
        return _cost_lines(fields, tree.fields(fields.raw("amount"), "amount"), span)

    return _page(tree, "cost", lines)


def _page(tree: Tree, role: Role, lines_of: Callable[[Fields, Span], Iterable[Line]]) -> Page:
    root = tree.fields(tree.root, "the document")
    lines: list[Line] = []
    buckets: list[Bucket] = []
    for number, item in enumerate(root.items("data")):
        bucket = tree.fields(item, f"data[{number}]")
        span = bucket.span(bucket.seconds("start_time"), bucket.seconds("end_time"))
        results = bucket.items("results")
        buckets.append(Bucket(start_us=span[0], end_us=span[1], empty=not results))
        for place, result in enumerate(results):
            fields = tree.fields(result, f"data[{number}].results[{place}]")
            lines.extend(lines_of(fields, span))
    more = root.flag("has_more")
    return Page(provider=PROVIDER, role=role, lines=tuple(lines), buckets=tuple(buckets), more=more)


def _usage_lines(fields: Fields, span: Span) -> Iterator[Line]:
    tier = "batch" if fields.flag("batch") else fields.text("service_tier")
    cached, written = fields.tokens("input_cached_tokens"), 0
    if fields.number("input_cache_write_tokens") is not None:
        written = fields.tokens("input_cache_write_tokens")
    whole = fields.tokens("input_tokens")
    uncached = whole - cached - written
    if fields.number("input_uncached_tokens") is not None:
        stated = fields.tokens("input_uncached_tokens")
        if stated != uncached:
            message = f"input {whole} - cached {cached} - written {written} is not {stated}"
            raise fields.bad("input_uncached_tokens", "INCONSISTENT_TOKENS", message)
    if uncached < 0:
        message = f"more cached ({cached}) and written ({written}) than there were ({whole})"
        raise fields.bad("input_tokens", "INCONSISTENT_TOKENS", message)
    calls = fields.count("num_model_requests")
    user = fields.text("user_id")
    meters = (
        ("input", uncached, True),
        ("cached_input", cached, False),
        ("cache_write", written, False),
        ("output", fields.tokens("output_tokens"), True),
    )
    for meter, tokens, always in meters:
        if tokens or always:
            yield Line(
                role="usage", kind="usage", start_us=span[0], end_us=span[1],
                model=fields.text("model"), project=fields.text("project_id"),
                api_key=fields.text("api_key_id"), tier=None if tier in _STANDARD else tier,
                meter=meter, tokens=tokens, variant=f"user {user}" if user else "",
                description="" if calls is None else f"{calls} model requests",
                line_number=fields.line,
            )  # fmt: skip


def _cost_lines(fields: Fields, amount: Fields, span: Span) -> Iterator[Line]:
    value = amount.raw("value")
    if not isinstance(value, Number):
        raise amount.bad("value", "WRONG_TYPE", "it must be a JSON number of whole units")
    pico, rounded = amount.pico("value")
    item = fields.text("line_item")
    named = _ITEM.fullmatch(item) if item else None
    meter = "total" if item is None else "other"
    if named is not None:
        meter = _ITEM_METERS.get(named["meter"], "other")
    known = named is not None and meter != "other"
    tokens, quantity = _quantity(fields)
    yield Line(
        role="cost", kind="credit" if pico < 0 else "usage", start_us=span[0], end_us=span[1],
        model=named["model"] if named is not None and known else None,
        project=fields.text("project_id"), api_key=fields.text("api_key_id"),
        tier=named["tier"] if named is not None and known else None,
        meter=meter, tokens=tokens, quantity=quantity, currency=amount.currency("currency"),
        amount_pico=pico, rounded=rounded, description=item or "", line_number=fields.line,
    )  # fmt: skip


def _quantity(fields: Fields) -> tuple[int | None, str | None]:
    text, unit = fields.quantity("quantity"), fields.text("quantity_unit")
    if text is None:
        return None, None
    scale = _SCALES.get(unit or "")
    if scale is None:
        return None, f"{text} {unit}" if unit else text
    return fields.whole("quantity", text, scale), None


DASHBOARD_EMPTY = ("start_time", "end_time", "start_time_iso", "end_time_iso")


def read_dashboard(text: str) -> Page:
    """The dashboard's CSV of usage; counts may read "3.0", an empty day has no model."""
    _, rows = csv_rows(text)
    lines: list[Line] = []
    spans: dict[Span, bool] = {}
    for row in rows:
        span = row.span(row.seconds("start_time"), row.seconds("end_time"))
        empty = row.number("num_model_requests") is None
        spans[span] = spans.get(span, True) and empty
        if not empty:
            lines.extend(_usage_lines(row, span))
    buckets = (Bucket(start_us=s, end_us=e, empty=empty) for (s, e), empty in spans.items())
    return Page(provider=PROVIDER, role="usage", lines=tuple(lines), buckets=tuple(buckets))


def is_dashboard(header: tuple[str, ...]) -> bool:
    """Whether these columns are the dashboard's: by name, in any order."""
    return set(header) >= set(DASHBOARD_EMPTY) and (
        len(header) == len(DASHBOARD_EMPTY) or "num_model_requests" in header
    )
