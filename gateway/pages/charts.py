"""Charts as geometry: values in, places in per cent of the plot out; templates draw them as SVG.

Pure. Places are text with at most three decimals, so that equal values draw equal pictures. Text in
a plot keeps its size at every width, because only places scale; lines and areas are paths in a
1000 x 1000 box that is stretched over the plot. Colours are classes (`fill-1`, `line-2`), so a
theme restyles a chart without redrawing it.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta, tzinfo

from gateway.pages.formatting import axis_duration, clock_time, duration
from ledger.zones import to_local

COLOURS = 6
TICKS_WANTED = 5
ROW_PX = 30
MARK_ROOM = 1.6  # a deadline further away than this many times the bars is named, not drawn
TICK_ROOM = 0.15  # of the plot, for a label on the narrowest screen
BOX = 1000
MINUTE_US = 60_000_000
DAY_US = 24 * 60 * MINUTE_US
CLOCK_STEPS_US = tuple(each * MINUTE_US for each in (5, 15, 30, 60, 120, 180, 240, 360, 720))


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """A place on an axis, in per cent, with its label."""

    at: str
    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """A span of time to be drawn as one bar: from start_us on, for length_us."""

    label: str
    start_us: int
    length_us: int
    colour: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One bar: x and width in per cent, y and the text's baseline in pixels."""

    label: str
    value: str
    x: str
    width: str
    y: int
    text_y: int
    colour: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Waterfall:
    """Bars below one another on one time axis; `mark`: the deadline, where it is in sight."""

    bars: tuple[Bar, ...]
    ticks: tuple[Tick, ...]
    mark: Tick | None
    mark_beyond: str | None  # the deadline's label where it is off the scale
    height: int


def waterfall(phases: Sequence[Phase], deadline_us: int) -> Waterfall | None:
    """The phases of one request; None where no time was measured."""
    end_us = max((phase.start_us + phase.length_us for phase in phases), default=0)
    if end_us <= 0:
        return None
    near = deadline_us <= end_us * MARK_ROOM
    span = max(end_us, deadline_us if near else 0)
    bars = tuple(
        Bar(
            label=phase.label,
            value=duration(phase.length_us),
            x=percent(phase.start_us / span),
            width=percent(max(phase.length_us, span / 2000) / span),
            y=index * ROW_PX + 5,
            text_y=index * ROW_PX + 19,
            colour=phase.colour,
        )
        for index, phase in enumerate(phases)
    )
    label = f"deadline {duration(deadline_us)}"
    return Waterfall(
        bars=bars,
        ticks=tuple(
            Tick(at=percent(value / span), label=axis_duration(value)) for value in ticks(0, span)
        ),
        mark=Tick(at=percent(deadline_us / span), label=label) if near else None,
        mark_beyond=None if near else label,
        height=len(phases) * ROW_PX,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One series: its legend, its colour, and its path in a 1000 x 1000 box (y grows down)."""

    label: str
    colour: int
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """Lines over two axes; `marks` are lines across the plot, alarming ones unless `quiet`."""

    lines: tuple[Line, ...]
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    marks: tuple[Tick, ...] = ()
    quiet: bool = False
    areas: tuple[Line, ...] = ()  # closed paths behind the lines: how sure these are


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """Points in x order; a y of None is a gap in the line."""

    label: str
    points: tuple[tuple[float, float | None], ...]


def time_series(
    series: Sequence[Series],
    *,
    x_ticks: Callable[[float, float], Sequence[tuple[float, str]]],
    y_label: Callable[[float], str],
    thresholds: Sequence[tuple[float, str]] = (),
) -> Plot | None:
    """Lines over time, y from 0; None where there is no point at all.

    `x_ticks` says which places between the first and the last are named, and how.
    """
    points = [point for each in series for point in each.points]
    values = [y for _, y in points if y is not None]
    if not values:
        return None
    first, last = min(x for x, _ in points), max(x for x, _ in points)
    # A threshold far above everything would press the line flat: then it is only in the table.
    near = [mark for mark in thresholds if mark[0] <= max(values) * 6 or mark[0] <= 1]
    top = max([*values, *(value for value, _ in near), 1e-9]) * 1.08

    def place(x: float, y: float) -> tuple[float, float]:
        return (x - first) / ((last - first) or 1), 1 - y / top

    lines = tuple(
        Line(label=each.label, colour=colour(index), path=path(each.points, place))
        for index, each in enumerate(series)
    )
    return Plot(
        lines=lines,
        x_ticks=tuple(
            Tick(at=percent(place(x, 0)[0]), label=label) for x, label in x_ticks(first, last)
        ),
        y_ticks=tuple(
            Tick(at=percent(1 - value / top), label=y_label(value)) for value in ticks(0, top)
        ),
        marks=tuple(Tick(at=percent(1 - value / top), label=label) for value, label in near),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution:
    """Bins (low_us, high_us, count), ascending and without overlap."""

    label: str
    bins: tuple[tuple[int, int, int], ...]
    band: float = 0.0  # how far each share may be from the true one


def ecdf(distributions: Sequence[Distribution]) -> Plot | None:
    """The share of requests that were at least as fast, over a logarithmic time axis.

    Two distributions lie over one another, so a worse tail is seen where the curves part at the
    top. None where there is nothing to draw.
    """
    edges = [
        edge for each in distributions for low, high, n in each.bins if n for edge in (low, high)
    ]
    if not edges:
        return None
    low, high = math.log10(max(1, min(edges)) / 1.15), math.log10(max(1, *edges) * 1.05)

    def place(x: float, y: float) -> tuple[float, float]:
        return (math.log10(max(x, 10**low)) - low) / (high - low), 1 - y

    lines, areas = [], []
    for index, each in enumerate(distributions):
        total, seen = sum(count for _, _, count in each.bins), 0
        points: list[tuple[float, float | None]] = [(10**low, 0.0)] if total else []
        for first, last, count in each.bins:
            if count:
                points.append((float(first), seen / total))
                seen += count
                points.append((float(last), seen / total))
        points += [(10**high, 1.0)] if total else []
        if points and each.band:
            areas.append(
                Line(label=each.label, colour=colour(index), path=_band(points, each.band, place))
            )
        lines.append(Line(label=each.label, colour=colour(index), path=path(points, place)))
    return Plot(
        lines=tuple(lines),
        x_ticks=_apart(
            [(place(value, 0)[0], axis_duration(value)) for value in log_ticks(10**low, 10**high)]
        ),
        y_ticks=tuple(
            Tick(at=percent(1 - share), label=f"{share:.0%}") for share in (0, 0.25, 0.5, 0.75, 1)
        ),
        marks=tuple(
            Tick(at=percent(1 - share), label=name)
            for share, name in ((0.95, "p95"), (0.99, "p99"))
        ),
        quiet=True,
        areas=tuple(areas),
    )


def _band(
    points: Sequence[tuple[float, float | None]],
    band: float,
    place: Callable[[float, float], tuple[float, float]],
) -> str:
    """The closed path of everything within the band of a curve, clipped to 0..1."""
    known = [(x, y) for x, y in points if y is not None]
    upper = [(x, min(1.0, y + band)) for x, y in known]
    lower = [(x, max(0.0, y - band)) for x, y in reversed(known)]
    return f"{path([*upper, *lower], place)}Z"


def _apart(places: Sequence[tuple[float, str]]) -> tuple[Tick, ...]:
    """The ticks from the right, without those whose label would touch the one before."""
    kept: list[tuple[float, str]] = []
    for at, label in reversed(places):
        if not kept or kept[-1][0] - at >= TICK_ROOM:
            kept.append((at, label))
    return tuple(Tick(at=percent(at), label=label) for at, label in reversed(kept))


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One piece of a stacked bar; x and width in per cent."""

    label: str
    x: str
    width: str
    colour: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """One stacked bar with its total."""

    label: str
    value: str
    parts: tuple[Part, ...]
    end: str
    y: int
    text_y: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StackedBars:
    """Bars below one another, each made of the same parts in the same order."""

    stacks: tuple[Stack, ...]
    legend: tuple[tuple[str, int], ...]
    height: int


def stacked_bars(
    rows: Sequence[tuple[str, str, Sequence[int]]], parts: Sequence[str]
) -> StackedBars | None:
    """Rows of (label, total as text, amount of each part); None where all amounts are 0."""
    longest = max((sum(amounts) for _, _, amounts in rows), default=0)
    if longest <= 0:
        return None
    stacks = []
    for index, (label, value, amounts) in enumerate(rows):
        start, drawn = 0, []
        for number, amount in enumerate(amounts):
            if amount > 0:
                drawn.append(
                    Part(
                        label=parts[number],
                        x=percent(start / longest),
                        width=percent(amount / longest),
                        colour=colour(number),
                    )
                )
                start += amount
        stacks.append(
            Stack(
                label=label,
                value=value,
                parts=tuple(drawn),
                end=percent(start / longest),
                y=index * ROW_PX + 5,
                text_y=index * ROW_PX + 19,
            )
        )
    return StackedBars(
        stacks=tuple(stacks),
        legend=tuple((name, colour(number)) for number, name in enumerate(parts)),
        height=len(rows) * ROW_PX,
    )


def colour(index: int) -> int:
    """The class number of the index-th series: 1 to COLOURS, then from the start again."""
    return index % COLOURS + 1


def percent(share: float) -> str:
    """0.25 -> "25%", with at most three decimals."""
    return f"{share * 100:.3f}".rstrip("0").rstrip(".") + "%"


def path(
    points: Sequence[tuple[float, float | None]],
    place: Callable[[float, float], tuple[float, float]],
) -> str:
    """An SVG path through the points in the 1000 x 1000 box; a gap starts a new piece.

    A point alone between gaps becomes a stroke of no length, which round caps show as a dot.
    """
    pieces, pen_down = [], False
    for x, y in points:
        if y is None:
            pen_down = False
            continue
        across, down = place(x, y)
        spot = f"{across * BOX:.2f} {down * BOX:.2f}"
        pieces.append(f"{'L' if pen_down else 'M'}{spot}" + ("" if pen_down else f"L{spot}"))
        pen_down = True
    return "".join(pieces)


def ticks(low: float, high: float, wanted: int = TICKS_WANTED) -> tuple[float, ...]:
    """Round values (1, 2 or 5 times a power of ten apart) from low to high, about `wanted`."""
    if high <= low:
        return (low,)
    rough = (high - low) / wanted
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * 0.999)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return tuple(round(number * step, 12) for number in range(first, last + 1))


def clock_ticks(first_us: float, last_us: float, zone: tzinfo) -> tuple[tuple[float, str], ...]:
    """Round times of day in the zone from first to last, at most `TICKS_WANTED`: (place, "21:00").

    A change of the zone's clock within the span moves the labels behind it off their round times,
    and says the truth.
    """
    shift = to_local(int(first_us), zone).utcoffset() or timedelta(0)
    shift_us = shift // timedelta(microseconds=1)
    wide = last_us - first_us
    step = next((each for each in CLOCK_STEPS_US if wide / each <= TICKS_WANTED - 1), DAY_US)
    begin = math.ceil((first_us + shift_us) / step) * step - shift_us
    places = [begin + step * number for number in range(TICKS_WANTED)]
    return tuple((at, clock_time(int(at), zone)[:5]) for at in places if at <= last_us)


def log_ticks(low: float, high: float) -> tuple[float, ...]:
    """1, 2 and 5 times powers of ten within low..high; only the powers where that is too many.

    Where it is fewer than three, evenly spaced round values instead.
    """
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    fine = [10.0**power * factor for power in powers for factor in (1, 2, 5)]
    found = [value for value in fine if low <= value <= high]
    if len(found) > 8:
        found = [10.0**power for power in powers if low <= 10.0**power <= high]
    if len(found) < 3:
        return ticks(low, high, 4)
    return tuple(found)
