"""What the measured is held against: each target with what was wanted and what was found. Pure."""

from dataclasses import dataclass

from benchmarks.peers.summing import ratio, summary
from benchmarks.peers.values import OURS, SIMULATED, UPSTREAM, Results, Summary

LITELLM = "litellm"
ONE, MANY, BURST, PACED_32, PACED_128 = "one", "many", "burst", "paced-32", "paced-128"
RATE_TIMES = 30.0
ADDED_SHARE = 1 / 8
RSS_BEFORE_MB, RSS_MB, READY_S = 130.0, 350.0, 2.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """One target. `met` None: it could not be measured."""

    what: str
    wanted: str
    found: str
    met: bool | None


def summary_of(results: Results, key: str, load: str) -> Summary | None:
    """Return a gateway's summary under a load; None where it has none."""
    gateway, upstream = results.gateway(key), results.gateway(UPSTREAM)
    if gateway is None or load not in gateway.cells:
        return None
    straight = upstream.cells.get(load) if upstream else None
    return summary(gateway.cells[load], straight or (None,) * len(gateway.cells[load]))


def verdicts(results: Results) -> list[Verdict]:
    """Return every target with its verdict, ratios first."""

    def of(load: str, name: str, key: str = OURS) -> float | None:
        return figure(summary_of(results, key, load), name)

    ours = results.gateway(OURS)
    rate, added, first = "requests_per_s", "added_p50_ms", "added_first_p50_ms"
    return [
        _least(
            "requests/s at 32 connections, times LiteLLM's",
            ratio(of(MANY, rate), of(MANY, rate, LITELLM)),
            RATE_TIMES,
            "×",
        ),
        _most(
            "added p50 at 1 connection, as a share of LiteLLM's",
            ratio(of(ONE, added), of(ONE, added, LITELLM)),
            ADDED_SHARE,
            "",
            places=3,
        ),
        _least("requests/s in front of an HTTP upstream", of(MANY, rate), 3_500, ""),
        _least("requests/s on the simulator", of(MANY, rate, SIMULATED), 5_000, ""),
        _most("added p50 at 1 connection", of(ONE, added), 1, " ms"),
        _most("added p99 at 1 connection", of(ONE, "added_p99_ms"), 4, " ms"),
        _least("whole streams of 51 chunks a second at 16 connections", of(BURST, rate), 1_000, ""),
        _most("first token added, 32 paced streams, p50", of(PACED_32, first), 0.7, " ms"),
        _most(
            "first token added, 32 paced streams, p99",
            of(PACED_32, "added_first_p99_ms"),
            5,
            " ms",
        ),
        _most("first token added, 128 paced streams, p50", of(PACED_128, first), 7, " ms"),
        _most("resident memory before vocabularies", results.rss_before_mb, RSS_BEFORE_MB, " MB"),
        _most(
            "resident memory with two vocabularies", ours.rss_mb if ours else None, RSS_MB, " MB"
        ),
        _most(
            "from its command to its first answer", ours.start_s if ours else None, READY_S, " s"
        ),
    ]


def figure(summary: Summary | None, name: str) -> float | None:
    """Return one of a summary's figures by its name; None of none."""
    found: float | None = None if summary is None else getattr(summary, name)
    return found


def _least(what: str, value: float | None, limit: float, unit: str) -> Verdict:
    met = None if value is None else value >= limit
    return _verdict(what, value, f"at least {limit:,.0f}{unit}", unit, met)


def _most(what: str, value: float | None, limit: float, unit: str, *, places: int = 2) -> Verdict:
    wanted = f"at most {limit:,.{places}f}".rstrip("0").rstrip(".") + unit
    met = None if value is None else value <= limit
    return _verdict(what, value, wanted, unit, met, places=places)


def _verdict(
    what: str, value: float | None, wanted: str, unit: str, met: bool | None, places: int = 2
) -> Verdict:
    text = "not measured"
    if value is not None:
        text = f"{value:,.0f}{unit}" if abs(value) >= 100 else f"{value:,.{places}f}{unit}"
    return Verdict(what=what, wanted=wanted, found=text, met=met)
