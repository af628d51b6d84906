"""A run or a sweep as one self-contained HTML file, and as JSON for machines.

`html_report` and `json_report` return text; `write_whole` puts text into a file wholly or not
at all. Every picture has its numbers in a table beside it. The HTML loads nothing and runs no
script. Source: SIM-1.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Sequence
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

_STYLE = """
body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;
color:#1b1f24;background:#fff}
h1{font-size:1.5rem}h2{font-size:1.15rem;margin-top:2rem}
.wide{overflow-x:auto}table{border-collapse:collapse;margin:.5rem 0 1rem}
th,td{padding:.2rem .7rem;border-bottom:1px solid #d0d5dc;text-align:right}
th:first-child,td:first-child{text-align:left}
.note{background:#fff4d6;border-left:4px solid #b07900;padding:.4rem .8rem;margin:.4rem 0}
svg{width:100%;height:auto}svg text{font-size:12px;fill:#4a525c}
.x{text-anchor:middle}.y{text-anchor:end}
.axis{stroke:#4a525c;fill:none}.grid{stroke:#e4e8ed;fill:none}
polyline{fill:none;stroke-width:2}
.legend{display:flex;flex-wrap:wrap;gap:.2rem 1.2rem;list-style:none;padding:0;margin:.2rem 0}
.legend li::before{content:"";display:inline-block;width:1.2em;height:.25em;margin-right:.4em;
vertical-align:middle;background:currentColor}
""" + "".join(
    f".line{n}{{stroke:{colour}}}.legend .key{n}{{color:{colour}}}"
    for n, colour in enumerate(
        ("#0b5fa5", "#b3460a", "#1f7a3d", "#8b2fa0", "#8a6d00", "#00757a", "#b0134f", "#4a525c")
    )
)

HEADINGS = (
    "replicas",
    "policy",
    "completed",
    "cancelled",
    "refused",
    "TTFT p50 ms",
    "TTFT p99 ms",
    "ITL p50 ms",
    "ITL p99 ms",
    "E2E p50 ms",
    "E2E p99 ms",
    "output tokens/s",
    "preemptions",
)


def summary_row(summary: Summary) -> tuple[str, ...]:
    """The cells under `HEADINGS`."""
    return (
        f"{summary.replicas}",
        summary.policy,
        f"{summary.completed:,}",
        f"{summary.cancelled:,}",
        f"{summary.refused + summary.shed:,}",
        *(
            _ms(value)
            for spread in (summary.ttft, summary.itl, summary.e2e)
            for value in (spread.p50_ms, spread.p99_ms)
        ),
        f"{summary.output_tokens_per_s:,.0f}",
        f"{summary.preemptions:,}",
    )


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
    body.append(_table(HEADINGS, [summary_row(run.summary) for run in runs]))
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
        ("KV", "context tokens in service", "context_tokens"),
    ):
        lines = [
            Line(label=_name(run.summary), x=run.series.at_s, y=getattr(run.series, field))
            for run in runs
        ]
        parts += [
            f"<h2>{title} over time</h2>",
            line_chart(f"{title} over time", "s", unit, lines),
        ]
        if field == "context_tokens":
            capacity = ", ".join(
                f"{_name(run.summary)}: {run.series.kv_capacity_tokens:,}" for run in runs
            )
            parts.append(f"<p>KV capacity in tokens: {escape(capacity)}</p>")
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
