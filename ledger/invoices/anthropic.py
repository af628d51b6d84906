"""Anthropic: the usage and the cost report of its Admin API (REC-1). Pure.

`uncached_input_tokens` excludes the cache; an `amount` is a decimal text of cents. A cost report
never holds the priority tier. No workspace is the default one, no API key is the Console.
"""

from collections.abc import Callable, Iterable, Iterator

from ledger.invoices.fields import Fields, Number, Span
from ledger.invoices.files import Tree
from ledger.invoices.values import Bucket, Line, Page, Role

PROVIDER = "anthropic"
CENT_PLACES = 10  # a cent is 10^10 pico units
DEFAULT_WORKSPACE = "default"
CONSOLE_KEY = "console"

_TOKEN_METERS = {
    "uncached_input_tokens": "input",
    "cache_read_input_tokens": "cached_input",
    "cache_creation.ephemeral_5m_input_tokens": "cache_write_5m",
    "cache_creation.ephemeral_1h_input_tokens": "cache_write_1h",
    "output_tokens": "output",
}


def read_usage(tree: Tree) -> Page:
    """The page of a usage report of messages."""

    def lines(fields: Fields, span: Span) -> Iterator[Line]:
        written = tree.fields(fields.raw("cache_creation"), "cache_creation")
        tools = fields.raw("server_tool_use") if "server_tool_use" in fields else None
        called = None if tools is None else tree.fields(tools, "server_tool_use")
        return _usage_lines(fields, written, called, span)

    return _page(tree, "usage", lines)


def read_costs(tree: Tree) -> Page:
    """The page of a cost report."""
    return _page(tree, "cost", _cost_line)


def _page(tree: Tree, role: Role, lines_of: Callable[[Fields, Span], Iterable[Line]]) -> Page:
    root = tree.fields(tree.root, "the document")
    lines: list[Line] = []
    buckets: list[Bucket] = []
    for number, item in enumerate(root.items("data")):
        bucket = tree.fields(item, f"data[{number}]")
        span = bucket.span(bucket.time("starting_at"), bucket.time("ending_at"))
        results = bucket.items("results")
        buckets.append(Bucket(start_us=span[0], end_us=span[1], empty=not results))
        for place, result in enumerate(results):
            lines.extend(lines_of(tree.fields(result, f"data[{number}].results[{place}]"), span))
    more = root.flag("has_more")
    return Page(provider=PROVIDER, role=role, lines=tuple(lines), buckets=tuple(buckets), more=more)


def tier_of(text: str | None) -> str | None:
    """A service tier; None for the standard one."""
    return None if text in {None, "standard", "message"} else text


def _tags(fields: Fields) -> tuple[tuple[str, str], ...]:
    named = ((name, fields.text(name)) for name in ("context_window", "inference_geo"))
    return tuple((name, value) for name, value in named if value is not None)


def _usage_lines(
    fields: Fields, written: Fields, called: Fields | None, span: Span
) -> Iterator[Line]:
    searches = 0
    if called is not None and called.number("web_search_requests") is not None:
        searches = called.tokens("web_search_requests")
    meters = (
        ("input", fields.tokens("uncached_input_tokens"), True),
        ("cached_input", fields.tokens("cache_read_input_tokens"), False),
        ("cache_write_5m", written.tokens("ephemeral_5m_input_tokens"), False),
        ("cache_write_1h", written.tokens("ephemeral_1h_input_tokens"), False),
        ("output", fields.tokens("output_tokens"), True),
        ("other", searches, False),
    )
    for meter, amount, always in meters:
        if amount or always:
            yield Line(
                role="usage", kind="usage", start_us=span[0], end_us=span[1],
                model=fields.text("model"),
                project=fields.text("workspace_id") or DEFAULT_WORKSPACE,
                api_key=fields.text("api_key_id") or CONSOLE_KEY,
                tier=tier_of(fields.text("service_tier")), meter=meter,
                tokens=None if meter == "other" else amount,
                quantity=f"{amount} web searches" if meter == "other" else None,
                description="web search" if meter == "other" else "",
                tags=_tags(fields), line_number=fields.line,
            )  # fmt: skip


def _cost_line(fields: Fields, span: Span) -> Iterator[Line]:
    if isinstance(fields.raw("amount"), Number):
        raise fields.bad("amount", "WRONG_TYPE", "it must be a text of cents, as 450.0369")
    pico, rounded = fields.pico("amount", places=CENT_PLACES)
    meter = "other"
    if fields.text("cost_type") == "tokens":
        meter = _TOKEN_METERS.get(fields.text("token_type") or "", "other")
        if fields.text("token_type") is None:
            meter = "total"
    yield Line(
        role="cost", kind="credit" if pico < 0 else "usage", start_us=span[0], end_us=span[1],
        model=fields.text("model"), project=fields.text("workspace_id") or DEFAULT_WORKSPACE,
        tier=tier_of(fields.text("service_tier")), meter=meter,
        currency=fields.currency("currency"), amount_pico=pico, rounded=rounded,
        description=fields.text("description") or fields.text("cost_type") or "",
        tags=_tags(fields), line_number=fields.line,
    )  # fmt: skip
