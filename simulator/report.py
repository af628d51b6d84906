"""A run or a sweep as one self-contained HTML file, and as JSON for machines.

`html_report` and `json_report` return text; `write_whole` puts text into a file wholly or not
at all. Every picture has its numbers in a table beside it. The HTML loads nothing and runs no
script. Source: SIM-1.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict
from html import escape
from math import isfinite
from pathlib import Path
from stat import S_IMODE, S_ISREG

from simulator.capacity import Answer, caveats
from simulator.charts import Line, line_chart
from simulator.replay import Replay, Summary
from simulator.summaries import QUANTILES, Curve

SCHEMA = "weighbridge.simulation/1"
TABLE_SHARES = (0.05, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999, 1.0)
SERIES_ROWS = 24

_LIGHT = ("#0b5fa5", "#b3460a", "#1f7a3d", "#8b2fa0", "#8a6d00", "#00757a", "#b0134f", "#4a525c")
_DARK = ("#6db3f2", "#f2a06d", "#6fcf8e", "#d59be6", "#dcc04a", "#4fd0d6", "#f27ea6", "#aab4c0")


def _palette(colours: Sequence[str]) -> str:
    return "".join(f"--line{n}:{colour};" for n, colour in enumerate(colours))


_STYLE = (
    f"""
:root{{color-scheme:light dark;--text:#1b1f24;--page:#fff;--soft:#4a525c;--rule:#d0d5dc;
--grid:#e4e8ed;--note:#fff4d6;--edge:#b07900;{_palette(_LIGHT)}}}
@media(prefers-color-scheme:dark){{:root{{--text:#e6e9ed;--page:#14171b;--soft:#aab4c0;
--rule:#3a424c;--grid:#2a3038;--note:#3a2f10;--edge:#e0a526;{_palette(_DARK)}}}}}
"""
    + """
body{font:15px/1.5 system-ui,sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem;
color:var(--text);background:var(--page)}
h1{font-size:1.5rem}h2{font-size:1.15rem;margin-top:2rem}
.wide{overflow-x:auto}table{border-collapse:collapse;margin:.5rem 0 1rem;font-size:.85rem}
th,td{padding:.2rem .3rem;border-bottom:1px solid var(--rule);text-align:right}
th{vertical-align:bottom}
th:first-child,td:first-child{text-align:left}
.note{background:var(--note);border-left:4px solid var(--edge);padding:.4rem .8rem;margin:.4rem 0}
svg{width:100%;height:auto;max-width:60rem}svg text{font-size:12px;fill:var(--soft)}
.x{text-anchor:middle}.y{text-anchor:end}
.axis{stroke:var(--soft);fill:none}.grid{stroke:var(--grid);fill:none}
polyline{fill:none;stroke-width:2}.bound{stroke-dasharray:6 4;stroke-width:1.5}
.legend{display:flex;flex-wrap:wrap;gap:.2rem 1.2rem;list-style:none;padding:0;margin:.2rem 0}
.legend li::before{content:"";display:inline-block;width:1.2em;height:.25em;margin-right:.4em;
vertical-align:middle;background:currentColor}
"""
    + "".join(
        f".line{n}{{stroke:var(--line{n})}}.legend .key{n}{{color:var(--line{n})}}"
        for n in range(len(_LIGHT))
    )
)

Cell = Callable[[Summary], str]

COLUMNS: tuple[tuple[str, Cell], ...] = (
    ("replicas", lambda run: f"{run.replicas}"),
    ("policy", lambda run: run.policy),
    ("completed", lambda run: f"{run.completed:,}"),
    ("cancelled", lambda run: f"{run.cancelled:,}"),
    ("too large", lambda run: f"{run.refused:,}"),
    ("shed", lambda run: f"{run.shed:,}"),
    (
        "in time %",
        lambda run: "–" if run.goodput_share is None else f"{run.goodput_share:.1%}"[:-1],
    ),
    ("busy %", lambda run: _busy(run.busy_shares)),
    ("TTFT p50 ms", lambda run: _ms(run.ttft.p50_ms)),
    ("TTFT p99 ms", lambda run: _ms(run.ttft.p99_ms)),
    ("ITL p50 ms", lambda run: _ms(run.itl.p50_ms)),
    ("ITL p99 ms", lambda run: _ms(run.itl.p99_ms)),
    ("E2E p50 ms", lambda run: _ms(run.e2e.p50_ms)),
    ("E2E p99 ms", lambda run: _ms(run.e2e.p99_ms)),
    ("output tokens/s", lambda run: f"{run.output_tokens_per_s:,.0f}"),
    ("preemptions", lambda run: f"{run.preemptions:,}"),
    ("cached tokens", lambda run: f"{run.cached_tokens:,}"),
)
"""Headings, and the cell of a run under each."""

ONLY_WHERE_ANY = {"cancelled", "too large", "shed", "in time %", "cached tokens"}
"""Columns left out where no run has any."""


def summary_table(runs: Sequence[Replay]) -> list[tuple[str, ...]]:
    """The headings and a row a run, without the columns that say nothing of these runs."""
    summaries = [run.summary for run in runs]
    table = [(heading, *(cell(summary) for summary in summaries)) for heading, cell in COLUMNS]
    shown = [
        column
        for column in table
        if column[0] not in ONLY_WHERE_ANY or set(column[1:]) - {"0", "–"}
    ]
    return list(zip(*shown, strict=True))


def json_report(runs: Sequence[Replay], answer: Answer | None = None) -> str:
    """The summaries, distributions and series; keys sorted, absent numbers null, one newline."""
    document = {
        "schema": SCHEMA,
        "quantiles": list(QUANTILES),
        "runs": [asdict(run) for run in runs],
        "answer": None if answer is None else asdict(answer),
    }
    text = json.dumps(_finite(document), sort_keys=True, indent=1, allow_nan=False)
    return text + "\n"


def html_report(runs: Sequence[Replay], answer: Answer | None = None) -> str:
    """The whole page: flags first, then the table, then pictures with their tables."""
    first = runs[0].summary
    body = [
        "<h1>Simulation</h1>",
        f"<p>{first.requests:,} requests from {escape(first.source)}<br>"
        f"on {escape(first.profile)}</p>",
        *(f'<p class="note">{escape(note)}</p>' for note in caveats(runs)),
    ]
    if answer is not None:
        body.append(f"<p><strong>{escape(answer.sentence)}</strong></p>")
    headings, *rows = summary_table(runs)
    body.append(_table(headings, rows))
    body += _distribution("Time to first token", [(run.summary, run.ttft) for run in runs])
    body += _distribution("Time between tokens", [(run.summary, run.itl) for run in runs])
    body += _over_time(runs)
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>Simulation of {escape(first.source)}</title><style>{_STYLE}</style></head>"
        f"<body>{''.join(body)}</body></html>\n"
    )


def write_whole(path: Path, text: str) -> None:
    """Writes the text to `path` wholly or not at all, also when interrupted; replaces a file.

    A link stays one: its target is written. The mode of a file that was there is kept, a new one
    gets what the umask leaves. Raises ValueError for what is no regular file, OSError when the
    folder can't be written.
    """
    target = path.resolve()
    known = target.stat() if target.exists() else None
    if known is not None and not S_ISREG(known.st_mode):
        raise ValueError(f"{path} is not a regular file")
    # A folder beside it: a file within is created under the umask, as mkstemp's wouldn't be.
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".writing-") as folder:
        whole = Path(folder) / "whole"
        with whole.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        if known is not None:
            whole.chmod(S_IMODE(known.st_mode))
        whole.replace(target)


def _name(summary: Summary) -> str:
    return f"{summary.replicas} x {summary.policy}"


def _distribution(title: str, curves: Sequence[tuple[Summary, Curve]]) -> list[str]:
    lines = [
        Line(label=_name(summary), x=curve.values_ms, y=[100 * share for share in curve.shares])
        for summary, curve in curves
    ]
    rows = [(_name(summary), *_at_shares(curve)) for summary, curve in curves]
    return [
        f"<h2>{escape(title)}</h2>",
        line_chart(title, "ms (logarithmic)", "% of cases", lines, log_x=True),
        _table(("ms", *(f"{100 * share:g} %" for share in TABLE_SHARES)), rows),
    ]


def _at_shares(curve: Curve) -> list[str]:
    found = dict(zip(curve.shares, curve.values_ms, strict=True))
    return [_ms(found.get(share, float("nan"))) for share in TABLE_SHARES]


def _over_time(runs: Sequence[Replay]) -> list[str]:
    parts: list[str] = []
    for title, unit, field in (
        ("Queue", "requests waiting", "waiting"),
        ("KV", "tokens held by requests in service", "context_tokens"),
    ):
        lines = [
            Line(label=_name(run.summary), x=run.series.at_s, y=getattr(run.series, field))
            for run in runs
        ]
        kv = field == "context_tokens"
        bounds = [run.series.kv_capacity_tokens for run in runs] if kv else []
        parts += [
            f"<h2>{title} over time</h2>",
            line_chart(f"{title} over time", "s", unit, lines, bounds=bounds),
        ]
        if kv:
            capacity = ", ".join(
                f"{_name(run.summary)}: {run.series.kv_capacity_tokens:,}" for run in runs
            )
            parts.append(
                f"<p>Dashed: KV capacity in tokens ({escape(capacity)}). Shared blocks count once,"
                " a preempted request not while it waits.</p>"
            )
        columns = [list(getattr(run.series, field)) for run in runs]
        picks = range(0, len(runs[0].series.at_s), max(1, len(runs[0].series.at_s) // SERIES_ROWS))
        # Runs end at different times, so each has its own clock beside its values.
        headings = [h for run in runs for h in ("s", f"{_name(run.summary)}")]
        rows = [
            tuple(
                cell
                for run, column in zip(runs, columns, strict=True)
                for cell in (f"{run.series.at_s[k]:,.0f}", f"{column[k]:,}")
            )
            for k in picks
        ]
        parts.append(f"<details><summary>{title} as numbers</summary>{_table(headings, rows)}")
        parts.append("</details>")
    return parts


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f'<th scope="col">{escape(heading)}</th>' for heading in headings)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows
    )
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f'<div class="wide" tabindex="0">{table}</div>'


def _busy(shares: Sequence[float]) -> str:
    """The share of the replicas in %, the least and the most busy one's where they differ."""
    low, high = f"{100 * min(shares):.0f}", f"{100 * max(shares):.0f}"
    return low if low == high else f"{low}–{high}"


def _ms(value: float) -> str:
    if not isfinite(value):
        return "–"
    return f"{value:,.1f}" if value < 100 else f"{value:,.0f}"


def _finite(value: object) -> object:
    if isinstance(value, float):
        return value if isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return value
