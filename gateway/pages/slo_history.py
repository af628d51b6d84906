"""An objective's windows, revisions and actions, and slices, made ready to be read. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

import msgspec

from gateway.diagnosing import Moment
from gateway.pages.formatting import NONE, duration, percent, thousands, units
from gateway.pages.now_view import window_query
from gateway.pages.slo_view import STATE_CHIPS, ppm
from ledger.queries.slis import Indicators
from ledger.records import ControlAction, SloDefinitionRecord, SloEvaluation
from ledger.releases import wilson_interval
from ledger.rows import Stored
from ledger.slo import SloDefinition

STEP_PX = 12  # from one window of the strip to the next

_FILTER = {  # a slice's filter on the receipts page
    "identity": "identity",
    "route": "route",
    "tenant": "tenant",
    "priority": "priority",
    "user_path": "path",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One evaluated window in the strip and in its table."""

    x: int
    end_us: int
    state: str
    chip: str
    counts: str
    alerts: str  # the rules that alerted
    corrected: bool
    episode: str


def strip(evaluations: Sequence[SloEvaluation]) -> tuple[Cell, ...]:
    """Each window by its newest revision, the oldest first; `evaluations` newest first."""
    newest: dict[int, SloEvaluation] = {}
    for one in evaluations:
        newest.setdefault(one.end_us, one)
    return tuple(
        Cell(
            x=place * STEP_PX,
            end_us=one.end_us,
            state=one.state,
            chip=STATE_CHIPS.get(one.state, "no_data"),
            counts=f"{one.valid - one.good:,} of {one.valid:,}",
            alerts=", ".join(_alerting(one)),
            corrected=one.revision > 0,
            episode=one.episode or "",
        )
        for place, one in enumerate(reversed(newest.values()))
    )


def _alerting(one: SloEvaluation) -> list[str]:
    """The names of the rules that alerted; none where the row can't be read."""
    try:
        rules = msgspec.json.decode(one.rules_json, type=list[dict[str, object]])
    except msgspec.MsgspecError:
        return []
    return [str(rule.get("rule", "")) for rule in rules if rule.get("state") == "ALERT"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Revision:
    """One revision of an objective: what it asks, since when, by whom."""

    revision: int
    asks: str
    from_us: int
    until_us: int | None
    by: str
    retired: bool


def revisions_of(
    every: Sequence[SloDefinition], declared: Sequence[SloDefinitionRecord], slo_id: str
) -> tuple[Revision, ...]:
    """The newest first; one that was shipped has nobody who declared it."""
    by = {one.revision: one.declared_by for one in declared}
    mine = sorted((one for one in every if one.slo_id == slo_id), key=lambda one: -one.revision)
    return tuple(
        Revision(
            revision=one.revision,
            asks=f"{ppm(one.target_ppm)}"
            + (f" within {duration(one.threshold_us)}" if one.threshold_us else ""),
            from_us=one.counted_from_us,
            until_us=one.counted_until_us,
            by=by.get(one.revision, "shipped"),
            retired=one.retired,
        )
        for one in mine
    )


def evidence_links(
    phases: Sequence[Stored[ControlAction]],
) -> tuple[tuple[Stored[ControlAction], str, str], ...]:
    """(the phase, its action in words, its chip) of each."""
    chips = {"proposed": "watch", "applied": "alert"}
    return tuple(
        (
            one,
            one.record.action.removeprefix("slo.").replace("_", " "),
            chips.get(one.record.phase or "", "no_data"),
        )
        for one in phases
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceRow:
    """One value of a slice, every indicator as text; a dash: nothing was measured."""

    name: str
    received: str
    p50: str
    p95: str
    p99: str
    p99_interval: str  # where that of all such requests lies at 95 %
    itl: str
    queue: str
    cancel: str
    valid: str
    valid_interval: str
    degraded: str
    rejected: str
    cost: str
    drill: str


def slice_rows(found: Sequence[Indicators], by: str, moment: Moment) -> tuple[SliceRow, ...]:
    return tuple(_row(one, by, moment) for one in found)


def _row(one: Indicators, by: str, moment: Moment) -> SliceRow:
    named = _FILTER.get(by)
    drill = urlencode({named: one.name or "-"}) if named else ""
    if by == "degraded":
        drill = urlencode({"degraded": "yes" if one.name == "degraded" else "no"})
    reasons = ", ".join(f"{count:,} {code}" for code, count in one.rejected.items())
    return SliceRow(
        name=one.name or "none",
        received=thousands(one.received),
        p50=duration(one.ttft_us.get(50)),
        p95=duration(one.ttft_us.get(95)),
        p99=duration(one.ttft_us.get(99)),
        p99_interval=_interval(one.ttft_p99_interval_us),
        itl=duration(one.itl_p95_us),
        queue=duration(one.queue_p95_us),
        cancel=duration(one.cancel_ack_p95_us),
        valid=percent(one.valid, one.judged),
        valid_interval=_share_interval(one.valid, one.judged),
        degraded=percent(one.degraded, one.completed),
        rejected=reasons or NONE,
        cost=units(one.cost_per_valid_pico),
        drill=window_query(drill, moment),
    )


def _interval(bounds: tuple[int | None, int | None]) -> str:
    low, high = bounds
    if low is None and high is None:
        return NONE
    if high is None:
        return f"{duration(low)} or more"
    if low is None:
        return f"{duration(high)} or less"
    first, last = duration(low), duration(high)
    unit = last.rpartition(" ")[2]
    return f"{first.removesuffix(f' {unit}')} to {last}"  # the unit once, where it is one


def _share_interval(part: int, whole: int) -> str:
    """Wilson's interval of a share at 95 %, in per cent."""
    if not whole:
        return NONE
    low, high = wilson_interval(part, whole)
    return f"{low * 100:.1f} to {high * 100:.1f} %"
