"""The results as markdown: ratios, targets, tables. Pure."""

from collections.abc import Iterable, Iterator, Sequence

from benchmarks.peers.judging import BURST, MANY, ONE, PACED_32, figure, summary_of, verdicts
from benchmarks.peers.summing import ratio
from benchmarks.peers.values import OURS, SIMULATED, UPSTREAM, Load, Results

BEGINS = "<!-- figures: written by `make bench` -->"
ENDS = "<!-- /figures -->"
NO_PEER = (OURS, SIMULATED, UPSTREAM)


def figures(results: Results) -> str:
    """Return the whole block that stands between the marks."""
    parts = [
        "\n".join(_setting(results)),
        "## Ratios",
        table(("beside", *(title for title, _, _ in RATIOS)), _ratio_rows(results)),
        "## Targets",
        table(
            ("", "what", "wanted", "found"),
            ((_mark(each.met), each.what, each.wanted, each.found) for each in verdicts(results)),
        ),
        _missed(results),
        "## Figures",
        *(
            part
            for load in results.loads
            for part in (f"### {load.title}", table(_headings(load), _rows(results, load)))
        ),
        "### Start and memory",
        table(
            ("", "version", "first answer after s", "RSS then MB", "RSS at most MB"),
            _starts(results),
        ),
        *_absences(results),
        "### Accounts",
        "\n".join(_books(results)),
    ]
    return "\n\n".join(part for part in parts if part)


def replaced(page: str, block: str, begins: str = BEGINS, ends: str = ENDS) -> str:
    """Return a page with what stands between two marks replaced.

    Raises ValueError where the page lacks one of them.
    """
    head, has_begin, rest = page.partition(begins)
    _, has_end, tail = rest.partition(ends)
    if not has_begin or not has_end:
        raise ValueError(f"the page has no lines {begins} and {ends}")
    return f"{head}{begins}\n\n{block}\n\n{ends}{tail}"


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a markdown table."""
    lines = [f"| {' | '.join(headings)} |", f"|{' --- |' * len(headings)}"]
    lines += [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join(lines)


def number(value: float | None, places: int = 2) -> str:
    """Return a figure to be read: no decimals from 100 on, a dash for none."""
    if value is None:
        return "–"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:,.{places}f}"


def _times(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{number(value, 1 if value >= 10 else 2 if value >= 0.1 else 3)} ×"


RATIOS = (
    ("requests/s at 32", MANY, "requests_per_s"),
    ("CPU a request at 32", MANY, "cpu_us"),
    ("streams/s at 16", BURST, "requests_per_s"),
    ("added p50 at 1", ONE, "added_p50_ms"),
    ("added p99 at 1", ONE, "added_p99_ms"),
    ("first token added, 32 paced, p50", PACED_32, "added_first_p50_ms"),
)
"""Heading, load and figure of each ratio that is told."""


def ratio_of(results: Results, key: str, load: str, name: str) -> float | None:
    """Return ours divided by theirs of one figure under one load."""
    ours, theirs = (figure(summary_of(results, each, load), name) for each in (OURS, key))
    return ratio(ours, theirs)


def _ratio_rows(results: Results) -> Iterator[Sequence[str]]:
    for gateway in results.gateways:
        if gateway.key not in NO_PEER and gateway.cells:
            yield (
                gateway.title,
                *(_times(ratio_of(results, gateway.key, load, name)) for _, load, name in RATIOS),
            )


def _setting(results: Results) -> Iterator[str]:
    machine = results.machine
    others = [
        each.others_share
        for gateway in results.gateways
        for load in gateway.cells
        if (each := summary_of(results, gateway.key, load)) is not None
    ]
    yield (
        f"{results.at}, {machine.cores} cores ({machine.cpu}), {machine.memory_gb:.0f} GB, Linux "
        f"{machine.kernel}, Python {machine.python}. {results.rounds} round(s) each, interleaved, "
        f"in {results.seconds / 60:.0f} minutes; every figure is the median of its rounds."
    )
    yield (
        f"Load of the machine before and after: {machine.load_before:.1f} and "
        f"{machine.load_after:.1f} programs that want a core. While it was measured, programs "
        f"outside of the benchmark took {min(others, default=0):.0%} to "
        f"{max(others, default=0):.0%} of the cores."
        f" A turn of a plain Python loop took {machine.loop_ns[0]:.0f} to "
        f"{machine.loop_ns[1]:.0f} ns of CPU; 8 KB were durable after "
        f"{machine.sync_ms:.2f} ms."
        + (f" All that was measured ran at priority {machine.nice}." if machine.nice else "")
    )
    upstream = summary_of(results, UPSTREAM, MANY)
    if upstream is not None:
        yield (
            f"Load generator and upstream alone: {number(upstream.requests_per_s)} requests/s at "
            f"32 connections, {number(upstream.cpu_us)} µs of CPU each for the upstream."
        )


def _mark(met: bool | None) -> str:
    return {True: "met", False: "**missed**", None: "–"}[met]


def _missed(results: Results) -> str:
    missed = [each.what for each in verdicts(results) if each.met is False]
    if not missed:
        return "None of those measured is missed."
    return f"Missed in this run: {'; '.join(missed)}."


def _headings(load: Load) -> tuple[str, ...]:
    unit = "streams/s" if load.stream else "requests/s"
    common = ("", unit, "lowest – highest", "CPU µs each")
    if load.pace_us:
        return (*common, "first token added p50 ms", "p99 ms", "failed")
    return (*common, "p50 ms", "p99 ms", "added p50 ms", "added p99 ms", "failed")


def _rows(results: Results, load: Load) -> Iterator[Sequence[str]]:
    for gateway in results.gateways:
        found = summary_of(results, gateway.key, load.name)
        if found is None:
            failed = sum(each.failed for each in gateway.cells.get(load.name, ()) if each)
            if failed:
                blanks = ("–",) * (len(_headings(load)) - 2)
                yield (gateway.title, *blanks, f"all {failed:,}")
            continue
        low, high = found.spread
        times: tuple[float | None, ...] = (found.added_first_p50_ms, found.added_first_p99_ms)
        if not load.pace_us:
            times = (found.p50_ms, found.p99_ms, found.added_p50_ms, found.added_p99_ms)
        if gateway.key == UPSTREAM or gateway.key == SIMULATED:  # these add nothing to anything
            times = (None, None) if load.pace_us else (*times[:2], None, None)
        yield (
            gateway.title,
            number(found.requests_per_s, 1),
            f"{number(low, 1)} – {number(high, 1)}",
            number(found.cpu_us, 0),
            *(number(each) for each in times),
            f"{found.failed:,}",
        )


def _starts(results: Results) -> Iterator[Sequence[str]]:
    if results.rss_before_mb is not None:
        yield (
            "Weighbridge, no vocabulary", "", number(results.start_before_s),
            number(results.rss_before_mb, 0), "",
        )  # fmt: skip
    for each in results.gateways:
        if each.key != UPSTREAM and each.start_s is not None:
            peaks = [c.rss_mb for cells in each.cells.values() for c in cells if c and c.rss_mb]
            yield (
                each.title, each.version, number(each.start_s), number(each.rss_mb, 0),
                number(max(peaks, default=None), 0),
            )  # fmt: skip


def _absences(results: Results) -> Iterator[str]:
    for each in results.gateways:
        if each.absent:
            yield f"{each.title} {each.version}: {each.absent}"


def _books(results: Results) -> Iterator[str]:
    for each in results.books:
        gateway = results.gateway(each.key)
        title = gateway.title if gateway else each.key
        verdict = f"**not sound: {each.problem}**" if each.problem else "sound"
        yield (
            f"- {title}: {each.sent:,} requests sent, {each.receipts:,} receipts "
            f"({each.completed:,} completed), {each.bytes_each:,} bytes of ledger a request: "
            f"{verdict}. Verified at rest: {each.verified}"
        )
