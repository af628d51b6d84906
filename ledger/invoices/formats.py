"""Which format a report has, and its lines or why it is refused (REC-1). Pure.

The format is found by content, never by a file's name. A report of several pages is whole when
its last page says that there are no more: an unfinished one is refused, not imported in part.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Literal

import msgspec

from ledger.invoices import anthropic, anthropic_console, aws_cur, focus, gcp_billing, openai
from ledger.invoices.fields import Fields, refused_character
from ledger.invoices.files import Tree, csv_rows, text_of
from ledger.invoices.values import Bucket, Line, Page, Refusal, Report, Unreadable

FILES_LIMIT = 64
LINES_LIMIT = 50_000  # one report is one commit, all of it or nothing
PROVIDER_LIMIT_CHARS = 60

Shape = Literal["json", "jsonl", "csv"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """A format: how its file looks, and how it is read."""

    name: str
    shape: Shape
    read_tree: Callable[[Tree], Page] | None = None
    read_text: Callable[[str], Page] | None = None
    has_header: Callable[[tuple[str, ...]], bool] | None = None


def _csv(
    name: str, has_header: Callable[[tuple[str, ...]], bool], read: Callable[[str], Page]
) -> Format:
    return Format(name=name, shape="csv", has_header=has_header, read_text=read)


FORMATS: dict[str, Format] = {
    one.name: one
    for one in (
        Format(name="openai_usage", shape="json", read_tree=openai.read_usage),
        Format(name="openai_costs", shape="json", read_tree=openai.read_costs),
        _csv("openai_dashboard", openai.is_dashboard, openai.read_dashboard),
        Format(name="anthropic_usage", shape="json", read_tree=anthropic.read_usage),
        Format(name="anthropic_cost", shape="json", read_tree=anthropic.read_costs),
        _csv("anthropic_console_usage", anthropic_console.is_usage, anthropic_console.read_usage),
        _csv("anthropic_console_cost", anthropic_console.is_cost, anthropic_console.read_costs),
        _csv("aws_cur", aws_cur.is_cur, aws_cur.read),
        Format(name="gcp_billing", shape="jsonl", read_text=gcp_billing.read),
        _csv("focus", focus.is_focus, focus.read),
    )
}


def read(
    files: Sequence[bytes], *, provider: str | None = None, format_name: str | None = None
) -> Report | Refusal:
    """The report that the files hold, as pages in this order or one alone; or why not.

    `provider` overrides the format's own (a cloud that resells another's models, or FOCUS).
    """
    refused = _refused_ask(files, provider, format_name)
    if refused is not None:
        return refused
    hashes = tuple(sha256(content).hexdigest() for content in files)
    pages: list[Page] = []
    names: list[str] = []
    for number, content in enumerate(files):
        try:
            name, page = _page(text_of(content), format_name, names[0] if names else None)
            pages.append(page)
            names.append(name)
            _check_follows(hashes, names, pages)
        except Unreadable as error:
            return Refusal(
                code=error.code, message=str(error), file=number, line=error.line,
                column=None if error.line is None else error.column,
            )  # fmt: skip
    if pages[-1].more:
        return Refusal(
            code="INCOMPLETE_PAGES", file=len(files) - 1,
            message="the provider has further pages (has_more): fetch them and give all the files "
            "in order; nothing was imported",
        )  # fmt: skip
    return _whole(names[0], provider or pages[0].provider, hashes, pages)


def _refused_ask(
    files: Sequence[bytes], provider: str | None, format_name: str | None
) -> Refusal | None:
    if format_name is not None and format_name not in FORMATS:
        known = ", ".join(FORMATS)
        return Refusal(code="UNKNOWN_FORMAT", message=f"there is no {format_name!r}; use {known}")
    if provider is not None and not 0 < len(provider) <= PROVIDER_LIMIT_CHARS:
        message = f"a provider's name has 1 to {PROVIDER_LIMIT_CHARS} characters"
        return Refusal(code="PROVIDER", message=message)
    if provider is not None and refused_character(provider):
        message = f"a provider's name can't have {refused_character(provider)}"
        return Refusal(code="PROVIDER", message=message)
    if not 1 <= len(files) <= FILES_LIMIT:
        message = f"{len(files)} files; a report has 1 to {FILES_LIMIT} pages"
        return Refusal(code="FILES", message=message)
    return None


def _page(text: str, format_name: str | None, before: str | None) -> tuple[str, Page]:
    if not text.strip():
        raise Unreadable("EMPTY_FILE", "there is nothing in it", 1)
    if format_name is None:
        format_name, tree = _detected(text, before)
    else:
        tree = Tree(text) if FORMATS[format_name].shape == "json" else None
    found = FORMATS[format_name]
    if found.read_tree is not None:
        page = found.read_tree(tree if tree is not None else Tree(text))
    elif found.read_text is not None:
        if found.has_header is not None and not found.has_header(csv_rows(text)[0]):
            raise Unreadable("WRONG_FORMAT", f"its heading is not that of {format_name}", 1)
        page = found.read_text(text)
    else:
        raise TypeError(f"the format {format_name} has no reader")
    if len(page.lines) > LINES_LIMIT:
        message = f"it has {len(page.lines):,} lines; {LINES_LIMIT:,} are the limit: split it"
        raise Unreadable("TOO_MANY_LINES", message)
    for line in page.lines:
        _check_sense(line)
    return format_name, page


def _check_sense(line: Line) -> None:
    """Unreadable where use that costs money is counted below zero: one of both is wrong."""
    if line.kind == "usage" and (line.amount_pico or 0) > 0:
        counted = str(line.tokens) if line.tokens is not None else line.quantity or ""
        if counted.startswith("-"):
            message = f"a quantity of {counted[:40]} costs money: a negative one is a credit"
            raise Unreadable("NEGATIVE", message, line.line_number)


def _detected(text: str, before: str | None) -> tuple[str, Tree | None]:
    """The format by content, with the document where it was parsed to know.

    A page of empty buckets is of the report `before` it.
    """
    start = text.lstrip()
    if not start.startswith(("{", "[")):
        header = csv_rows(text)[0]
        for found in FORMATS.values():
            if found.has_header is not None and found.has_header(header):
                return found.name, None
        raise Unreadable("UNKNOWN_FORMAT", f"no format has these columns; {_named()}", 1)
    first = start.split("\n", 1)[0].rstrip()
    if first.endswith("}") and '"sku"' in first and '"cost_type"' in first:
        return "gcp_billing", None
    tree = Tree(text)
    root = tree.fields(tree.root, "the document")
    if "data" not in root:
        raise Unreadable("UNKNOWN_FORMAT", f"it has no `data`; {_named()}", root.line)
    for item in root.items("data"):
        for result in tree.fields(item, "a bucket").items("results"):
            fields = tree.fields(result, "a result")
            return _named_by(fields), tree
    if before is not None and FORMATS[before].shape == "json":
        return before, tree
    raise Unreadable(
        "AMBIGUOUS_FORMAT", f"all its buckets are empty, so it could be any report; {_named()}", 1
    )


def _named_by(result: Fields) -> str:
    """The format of a page by one of its results."""
    stated = result.text("object") if "object" in result else None
    by_object = {openai.USAGE_RESULT: "openai_usage", openai.COSTS_RESULT: "openai_costs"}
    if stated in by_object:
        return by_object[stated]
    if "uncached_input_tokens" in result:
        return "anthropic_usage"
    if "cost_type" in result and "amount" in result:
        return "anthropic_cost"
    raise Unreadable(
        "UNKNOWN_FORMAT", f"its results are of no known report; {_named()}", result.line
    )


def _named() -> str:
    return f"name it with --format: {', '.join(FORMATS)}"


def _check_follows(hashes: Sequence[str], names: Sequence[str], pages: Sequence[Page]) -> None:
    """Whether the last page goes with those before it."""
    last = len(pages) - 1
    if hashes[last] in hashes[:last]:
        raise Unreadable("REPEATED_FILE", "it is the same file as one before")
    if names[last] != names[0]:
        raise Unreadable("MIXED_FORMATS", f"it is {names[last]}, the first file is {names[0]}")
    if pages[last].provider != pages[0].provider:
        raise Unreadable("SEVERAL_PROVIDERS", f"the first file is of {pages[0].provider}")
    if last and FORMATS[names[0]].shape == "json":
        if not pages[last - 1].more:
            raise Unreadable("AFTER_LAST_PAGE", "the file before it says that it is the last page")
        before = {(b.start_us, b.end_us) for page in pages[:last] for b in page.buckets}
        if any((b.start_us, b.end_us) in before for b in pages[last].buckets):
            raise Unreadable("REPEATED_BUCKET", "it has a bucket that a page before it has")
    if sum(len(page.lines) for page in pages) > LINES_LIMIT:
        raise Unreadable("TOO_MANY_LINES", f"together more than {LINES_LIMIT:,} lines: split them")


def _whole(name: str, provider: str, hashes: tuple[str, ...], pages: Sequence[Page]) -> Report:
    lines: list[Line] = []
    buckets: list[Bucket] = []
    for number, page in enumerate(pages):
        lines.extend(msgspec.structs.replace(line, file=number) for line in page.lines)
        buckets.extend(page.buckets)
    buckets.sort(key=lambda bucket: (bucket.start_us, bucket.end_us))
    return Report(
        provider=provider, format=name, role=pages[0].role, files_sha256=hashes,
        lines=tuple(lines), buckets=tuple(buckets),
    )  # fmt: skip
