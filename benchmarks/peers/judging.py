"""What the measured is held against: each target with what was wanted and what was found. Pure."""

from collections.abc import Iterator
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
    return list(_verdicts(results))


def _verdicts(results: Results) -> Iterator[Verdict]:
    def found(load: str, key: str = OURS) -> Summary | None:
        return summary_of(results, key, load)

    one, many, burst = found(ONE), found(MANY), found(BURST)
    slow, wide = found(PACED_32), found(PACED_128)
    their_one, their_many = found(ONE, LITELLM), found(MANY, LITELLM)
    yield _least(
        "requests/s at 32 connections, times LiteLLM's",
        ratio(many and many.requests_per_s, their_many and their_many.requests_per_s),
        RATE_TIMES,
        "×",
    )
    yield _most(
        "added p50 at 1 connection, as a share of LiteLLM's",
        ratio(one and one.added_p50_ms, their_one and their_one.added_p50_ms),
        ADDED_SHARE,
        "",
        places=3,
    )
    yield _least("requests/s in front of an HTTP upstream", many and many.requests_per_s, 3_500, "")
    simulated = found(MANY, SIMULATED)
    yield _least("requests/s on the simulator", simulated and simulated.requests_per_s, 5_000, "")
    yield _most("added p50 at 1 connection", one and one.added_p50_ms, 1, " ms")
    yield _most("added p99 at 1 connection", one and one.added_p99_ms, 4, " ms")
    yield _least(
        "whole streams of 51 chunks a second at 16 connections",
        burst and burst.requests_per_s,
        1_000,
        "",
    )
    yield _most(
        "first token added, 32 paced streams, p50", slow and slow.added_first_p50_ms, 0.7, " ms"
    )
    yield _most(
        "first token added, 32 paced streams, p99", slow and slow.added_first_p99_ms, 5, " ms"
    )
    yield _most(
        "first token added, 128 paced streams, p50", wide and wide.added_first_p50_ms, 7, " ms"
    )
    ours = results.gateway(OURS)
    yield _most("resident memory before vocabularies", results.rss_before_mb, RSS_BEFORE_MB, " MB")
    yield _most("resident memory with two vocabularies", ours and ours.rss_mb, RSS_MB, " MB")
    yield _most("from its command to its first answer", ours and ours.start_s, READY_S, " s")


def _least(what: str, value: float | None, limit: float, unit: str) -> Verdict:
    return _verdict(what, value, f"at least {limit:,.0f}{unit}", unit, value and value >= limit)


def _most(what: str, value: float | None, limit: float, unit: str, *, places: int = 2) -> Verdict:
    wanted = f"at most {limit:,.{places}f}".rstrip("0").rstrip(".") + unit
    met = None if value is None else value <= limit
    return _verdict(what, value, wanted, unit, met, places=places)


def _verdict(
    what: str,
    value: float | None,
    wanted: str,
    unit: str,
    met: bool | float | None,
    places: int = 2,
) -> Verdict:
    text = "not measured"
    if value is not None:
        text = f"{value:,.0f}{unit}" if abs(value) >= 100 else f"{value:,.{places}f}{unit}"
    return Verdict(what=what, wanted=wanted, found=text, met=None if value is None else bool(met))
