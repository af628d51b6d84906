"""The results as one SVG picture that reads on light and on dark pages. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from benchmarks.peers.judging import MANY, ONE, PACED_32, figure, summary_of
from benchmarks.peers.paging import number
from benchmarks.peers.values import OURS, SIMULATED, UPSTREAM, Results

WIDTH = 760
LABEL, BAR, ROW, HEAD = 214, 420, 22, 44
STYLE = (
    "text{font:13px system-ui,sans-serif;fill:#1b1f24}.t{font-weight:600}.m{fill:#57606a}"
    ".b{fill:#8c959f}.o{fill:#0b5fa5}.l{stroke:#d0d7de}"
    "@media(prefers-color-scheme:dark){text{fill:#e6edf3}.m{fill:#9198a1}.b{fill:#6e7681}"
    ".o{fill:#58a6ff}.l{stroke:#3d444d}}"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One figure of all gateways as bars."""

    title: str
    load: str
    figure: str  # of a summary, by its name
    unit: str
    leaves_out: tuple[str, ...] = (UPSTREAM, SIMULATED)


PANELS = (
    Panel(
        title="Requests a second at 32 connections (more is better)", load=MANY,
        figure="requests_per_s", unit="/s", leaves_out=(UPSTREAM,),
    ),
    Panel(
        title="CPU of the gateway for each of them (less is better)", load=MANY,
        figure="cpu_us", unit=" µs", leaves_out=(UPSTREAM,),
    ),
    Panel(
        title="Median latency added at 1 connection (less is better)", load=ONE,
        figure="added_p50_ms", unit=" ms",
    ),
    Panel(
        title="Median time to first token added, 32 paced streams (less is better)",
        load=PACED_32, figure="added_first_p50_ms", unit=" ms",
    ),
)  # fmt: skip


def picture(results: Results) -> str:
    """Return the picture; gateways without a figure are named as not measured."""
    parts, top = [], 16
    for panel in PANELS:
        bars = [
            (gateway.title, gateway.key == OURS or gateway.key == SIMULATED, value)
            for gateway in results.gateways
            if gateway.key not in panel.leaves_out
            for value in [figure(summary_of(results, gateway.key, panel.load), panel.figure)]
        ]
        parts += _panel(f"{panel.title}", panel.unit, bars, top)
        top += HEAD + ROW * len(bars)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {top}" role="img" '
        f'aria-label="{escape(_label(results))}"><style>{STYLE}</style>{"".join(parts)}</svg>\n'
    )


def _label(results: Results) -> str:
    return f"Weighbridge beside other gateways, {results.at[:10]}, {results.machine.cores} cores"


def _panel(
    title: str, unit: str, bars: Sequence[tuple[str, bool, float | None]], top: int
) -> list[str]:
    most = max((value for _, _, value in bars if value is not None), default=0.0)
    parts = [f'<text class="t" x="8" y="{top + 8}">{escape(title)}</text>']
    for place, (label, is_ours, value) in enumerate(bars):
        y = top + 18 + ROW * place
        parts.append(f'<text class="m" x="8" y="{y + 14}">{escape(label)}</text>')
        if value is None:
            parts.append(f'<text class="m" x="{LABEL + 6}" y="{y + 14}">not measured</text>')
            continue
        width = max(1.0, BAR * max(0.0, value) / most) if most > 0 else 1.0
        kind = "o" if is_ours else "b"
        parts.append(
            f'<rect class="{kind}" x="{LABEL}" y="{y + 3}" width="{width:.1f}" height="14"/>'
            f'<text x="{LABEL + width + 6:.1f}" y="{y + 14}">{number(value)}{unit}</text>'
        )
    return parts
