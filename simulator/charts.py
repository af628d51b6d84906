"""Line charts as SVG text, without scripts or inline styles; colours come from the page's CSS.

`line_chart` returns one `<svg>` element that a screen reader can name. Source: SIM-1 (pictures).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from math import floor, isfinite, log10

WIDTH, HEIGHT = 720, 300
LEFT, RIGHT, TOP, BOTTOM = 72, 40, 28, 44


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line: its label and points (x, y); points that aren't finite are left out."""

    label: str
    x: Sequence[float]
    y: Sequence[float]


def line_chart(
    title: str,
    x_label: str,
    y_label: str,
    lines: Sequence[Line],
    *,
    log_x: bool = False,
    bounds: Sequence[float] = (),
) -> str:
    """The SVG of the lines in one frame; with `log_x`, points at x <= 0 are left out.

    At most eight lines get a colour of their own (classes line0..line7). `bounds` are drawn across
    the frame, the n-th in the n-th line's colour.
    """
    points = [_points(line, log_x) for line in lines]
    every = [point for of_line in points for point in of_line]
    if not every:
        return f'<p class="empty">{escape(title)}: no data</p>'
    x_low, x_high = min(p[0] for p in every), max(p[0] for p in every)
    x_high = x_high if x_high > x_low else x_low + 1
    y_high = max(*(p[1] for p in every), *bounds, 1e-9)

    def place(point: tuple[float, float]) -> tuple[float, float]:
        x = LEFT + (point[0] - x_low) / (x_high - x_low) * (WIDTH - LEFT - RIGHT)
        y = HEIGHT - BOTTOM - point[1] / y_high * (HEIGHT - TOP - BOTTOM)
        return round(x, 1), round(y, 1)

    parts = [
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}">',
        f"<title>{escape(title)}</title>",
        f'<path class="axis" d="M{LEFT} {TOP}V{HEIGHT - BOTTOM}H{WIDTH - RIGHT}"/>',
    ]
    for tick in _ticks(0.0, y_high):
        y = place((x_low, tick))[1]
        parts.append(f'<path class="grid" d="M{LEFT} {y}H{WIDTH - RIGHT}"/>')
        parts.append(f'<text class="y" x="{LEFT - 6}" y="{y + 4}">{_number(tick)}</text>')
    for tick in _ticks(x_low, x_high):
        x = place((tick, 0.0))[0]
        shown = _number(10**tick if log_x else tick)
        parts.append(f'<text class="x" x="{x}" y="{HEIGHT - BOTTOM + 16}">{shown}</text>')
    parts.append(f'<text class="x" x="{WIDTH / 2}" y="{HEIGHT - 6}">{escape(x_label)}</text>')
    parts.append(f'<text class="label" x="{LEFT}" y="{TOP - 12}">{escape(y_label)}</text>')
    for number, of_line in enumerate(points):
        drawn = " ".join("{},{}".format(*place(point)) for point in of_line)
        parts.append(f'<polyline class="line{number % 8}" points="{drawn}"/>')
    for number, bound in enumerate(bounds):
        y = place((x_low, bound))[1]
        parts.append(f'<path class="bound line{number % 8}" d="M{LEFT} {y}H{WIDTH - RIGHT}"/>')
    parts.append("</svg>")
    parts.append(_legend(lines))
    return "".join(parts)


def _legend(lines: Sequence[Line]) -> str:
    items = "".join(
        f'<li class="key{number % 8}">{escape(line.label)}</li>'
        for number, line in enumerate(lines)
    )
    return f'<ul class="legend">{items}</ul>'


def _points(line: Line, log_x: bool) -> list[tuple[float, float]]:
    found = []
    for x, y in zip(line.x, line.y, strict=True):
        if isfinite(x) and isfinite(y) and (x > 0 or not log_x):
            found.append((log10(x) if log_x else x, y))
    # Only what can be seen: of a run of equal heights the two ends draw the same line.
    kept = [
        point
        for index, point in enumerate(found)
        if not 0 < index < len(found) - 1
        or not found[index - 1][1] == point[1] == found[index + 1][1]
    ]
    return kept if any(a != b for a, b in pairwise(kept)) else kept[:1]


def _ticks(low: float, high: float) -> list[float]:
    """Four to ten round numbers within [low, high]."""
    span = high - low
    step = 10.0 ** floor(log10(span))
    for finer in (1.0, 0.5, 0.2, 0.1):
        if span / (step * finer) >= 4:
            step *= finer
            break
    first = -floor(-low / step)
    count = floor(high / step + 1e-9) - first
    return [round((first + k) * step, 12) for k in range(max(0, count) + 1)]


def _number(value: float) -> str:
    if value and abs(value) < 10:
        return f"{value:.3g}"
    return f"{value:,.0f}"
