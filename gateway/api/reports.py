"""GET /api/v1/costs, its bridge, /api/v1/slo and /api/v1/releases: the pages' numbers as JSON.

A key sees its own tenant's costs; with the scope `reports` it sees every tenant's. SLO burn and
releases are the fleet's, name no tenant, and are the same for every key. Money is given twice: as
whole pico units (`*_pico`), of any size, and as an exact decimal text in units. Fractions are exact
texts ("25/3") beside a rounded number.
"""

import json
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from gateway.api import errors
from gateway.api.auth import SCOPE_REPORTS
from gateway.api.errors import Failure
from gateway.api.problems import invalid
from gateway.release_asks import comparison_of
from gateway.reporting import (
    AskProblem,
    CostsAsk,
    PeriodAsk,
    Query,
    iso,
    read_bridge,
    read_costs,
    read_releases,
    unknown_parameter,
)
from gateway.submission import Caller
from ledger.distributions import Latency
from ledger.money import units_text
from ledger.queries.bridge import bridge_between
from ledger.queries.cost_sums import CostSums
from ledger.queries.costs import CostRow, CostTable, costs
from ledger.queries.releases import Comparison, SideReport
from ledger.queries.slo import SloReport, slo_reports
from ledger.releases import RatioTest, TailTest
from ledger.slo_burn import RuleStatus, WindowBurn

PATHS = ("/api/v1/costs", "/api/v1/costs/bridge", "/api/v1/slo", "/api/v1/releases")
Body = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportAnswer:
    """An HTTP status and a JSON body; of a status from 400 on, a problem (RFC 9457)."""

    status: int
    body: Body

    def encoded(self) -> bytes:
        """The body as JSON. Not by orjson: a sum of pico units may have more than 64 bits."""
        return json.dumps(self.body, ensure_ascii=False).encode()


def answer(
    path: str, query: Query, caller: Caller, connection: sqlite3.Connection, now_us: int
) -> ReportAnswer:
    """The report at one of PATHS, as far as the caller may see it. Reads for some 10 ms."""
    if path == "/api/v1/costs":
        found = costs_report(query, caller, connection, now_us)
    elif path == "/api/v1/costs/bridge":
        found = bridge_report(query, caller, connection, now_us)
    elif path == "/api/v1/slo":
        unknown = unknown_parameter(query, ())
        found = (
            slo_body(slo_reports(connection, now_us))
            if unknown is None
            else _asked_wrongly(unknown)
        )
    else:
        found = releases_report(query, connection, now_us)
    if isinstance(found, Failure):
        return ReportAnswer(status=found.status, body=json.loads(errors.problem_body(found)))
    return ReportAnswer(status=200, body=found)


def costs_report(
    query: Query, caller: Caller, connection: sqlite3.Connection, now_us: int
) -> Body | Failure:
    """The cost table asked for, as far as the caller may see it."""
    ask = read_costs(query, now_us)
    if isinstance(ask, AskProblem):
        return _asked_wrongly(ask)
    filters = _own(caller, ask.filters)
    if isinstance(filters, Failure):
        return filters
    ask = replace(ask, filters=filters)
    return costs_body(ask, cost_table(connection, ask))


def bridge_report(
    query: Query, caller: Caller, connection: sqlite3.Connection, now_us: int
) -> Body | Failure:
    """What made one period cost more than another, as far as the caller may see it (CST-4)."""
    ask = read_bridge(query, now_us)
    if isinstance(ask, AskProblem):
        return _asked_wrongly(ask)
    filters = _own(caller, ask.filters)
    if isinstance(filters, Failure):
        return filters
    found = bridge_between(connection, ask.before, ask.when.period, filters=filters)
    return {
        "period": _period(ask.when),
        "before": _period(replace(ask.when, period=ask.before)),
        "filters": {name: list(values) for name, values in filters.items()},
        **_money("before_cost", found.before_pico),
        "before_unpriced_requests": found.before_unpriced,
        "effects": [{"effect": name, **_money("cost", pico)} for name, pico in found.effects],
        **_money("after_cost", found.after_pico),
        "after_unpriced_requests": found.after_unpriced,
    }


def _own(
    caller: Caller, filters: Mapping[str, tuple[str, ...]]
) -> Mapping[str, tuple[str, ...]] | Failure:
    """The filters with the caller's own tenant, where it may not see others'."""
    if SCOPE_REPORTS in caller.scopes:
        return filters
    own = (caller.tenant_id,)
    if filters.get("tenant", own) != own:
        message = f"A key without the scope {SCOPE_REPORTS!r} sees its own tenant's costs."
        return errors.of_http("SCOPE_MISSING", message)
    return {**filters, "tenant": own}


def releases_report(query: Query, connection: sqlite3.Connection, now_us: int) -> Body | Failure:
    """The comparison asked for; `comparison` is null where the period has nothing to compare."""
    ask = read_releases(query, now_us)
    if isinstance(ask, AskProblem):
        return _asked_wrongly(ask)
    compared = comparison_of(connection, ask)
    if isinstance(compared, AskProblem):
        return _asked_wrongly(compared)
    comparison, _ = compared
    return {
        "period": _period(ask.when),
        "comparison": None if comparison is None else comparison_body(comparison),
    }


def cost_table(connection: sqlite3.Connection, ask: CostsAsk) -> CostTable:
    """The table of an ask: what the page, the API and the CSV all show."""
    return costs(
        connection, ask.when.period, ask.dimensions, zone=ask.when.zone, filters=ask.filters
    )


def costs_body(ask: CostsAsk, table: CostTable) -> Body:
    """The table with its total; `others` sums the rows beyond the limit, where there are any."""
    return {
        "period": _period(ask.when),
        "dimensions": list(table.dimensions),
        "filters": {name: list(values) for name, values in table.filters},
        "rows": [_cost_row(table, row) for row in table.rows],
        "others": None if table.others is None else _sums(table.others),
        "others_count": table.others_count,
        "total": _sums(table.total),
    }


def _cost_row(table: CostTable, row: CostRow) -> Body:
    return {
        "values": dict(zip(table.dimensions, row.values, strict=True)),
        **_sums(row.sums),
    }


def _sums(sums: CostSums) -> Body:
    per_completed = sums.cost_per_completed_pico
    return {
        "requests": {
            "receipts": sums.receipts,
            "completed": sums.completed,
            "rejected": sums.rejected,
            "cancelled": sums.cancelled,
            "failed": sums.failed,
            "unknown": sums.unknown,
            "degraded": sums.degraded,
            "judged": sums.judged,
            "valid": sums.valid,
            "attempts": sums.attempts,
        },
        "outcomes": {
            "reported": sums.outcomes,
            "quality_passed": sums.quality_passed,
            "citations_verified": sums.citations_verified,
            "tasks_completed": sums.tasks_completed,
            "taken_over": sums.taken_over,
        },
        "tokens": {
            "input": sums.input_tokens,
            "cached_input": sums.cached_input_tokens,
            "output": sums.output_tokens,
        },
        "cost": {
            **_money("input", sums.cost_input_pico),
            **_money("cached_input", sums.cost_cached_input_pico),
            **_money("output", sums.cost_output_pico),
            **_money("fixed", sums.cost_fixed_pico),
            **_money("retry_and_hedge", sums.cost_retry_and_hedge_pico),
            **_money("waste", sums.cost_waste_pico),
            **_money("total", sums.cost_total_pico),
            **_money("per_completed", per_completed),
            **_money("other", sums.cost_other_pico),
            "unpriced_requests": sums.unpriced,
        },
        "waste": {
            name.replace(" ", "_").replace("-", "_"): _amount(pico)
            for name, pico in sums.waste.items()
        },
        "unit_costs": {
            name: {"count": sums.denominators[name], **_money("cost", pico)}
            for name, pico in sums.unit_costs.items()
        },
    }


def _money(name: str, pico: int | None) -> Body:
    return {name: None if pico is None else units_text(pico), f"{name}_pico": pico}


def _amount(pico: int) -> Body:
    return _money("cost", pico)


def slo_body(reports: tuple[SloReport, ...]) -> Body:
    """Every objective with its windows' numerators and denominators."""
    return {"objectives": [_objective(report) for report in reports]}


def _objective(report: SloReport) -> Body:
    status = report.status
    definition = status.definition
    since = report.counted_since_us
    return {
        "slo_id": definition.slo_id,
        "revision": definition.revision,
        "title": definition.title,
        "indicator": definition.indicator,
        "target_ppm": definition.target_ppm,
        "threshold_us": definition.threshold_us,
        "state": status.state,
        "at": iso(status.at_us),
        "control_action": definition.control_action,
        "period": _window(status.period),
        "budget_left": _fraction(status.budget_left),
        "exhausted_in_us": status.exhausted_in_us,
        "rules": [_rule(rule) for rule in status.rules],
        "rules_left_out": list(definition.left_out),
        "counted_since": None if since is None else iso(since),
        "history": [
            {
                "from": iso(point.start_us),
                "to": iso(point.end_us),
                "bad": point.tally.bad,
                "valid": point.tally.valid,
                "burn": _fraction(point.burn),
            }
            for point in report.history
        ],
    }


def _rule(status: RuleStatus) -> Body:
    return {
        "name": status.rule.name,
        "severity": status.rule.severity,
        "factor": _fraction(status.rule.factor),
        "state": status.state,
        "guard_passed": status.guard_passed,
        "long": _window(status.long),
        "short": _window(status.short),
    }


def _window(window: WindowBurn) -> Body:
    return {
        "length_us": window.length_us,
        "from": iso(window.start_us),
        "to": iso(window.end_us),
        "good": window.tally.good,
        "bad": window.tally.bad,
        "valid": window.tally.valid,
        "burn": _fraction(window.burn),
    }


def _fraction(value: Fraction | None) -> Body | None:
    """A rational as its exact text and as a number rounded to six decimals."""
    return None if value is None else {"exact": str(value), "value": round(float(value), 6)}


def comparison_body(comparison: Comparison) -> Body:
    """Both sides with their distributions, and what the tests say of the candidate."""
    return {
        "logical_model": comparison.logical_model,
        "priority": comparison.priority or None,
        "baseline": _side(comparison.baseline),
        "candidate": _side(comparison.candidate),
        "completion_test": _ratio(comparison.completion),
        "tail_tests": {metric: _tail(test) for metric, test in comparison.tails},
    }


def _side(report: SideReport) -> Body:
    return {
        "side": report.side.label,
        "completion_rate": _fraction(report.completion_rate),
        **_sums(report.sums),
        "latencies": {latency.metric: _latency(latency) for latency in report.latencies},
    }


def _latency(latency: Latency) -> Body:
    return {
        "count": latency.count,
        "exact": latency.exact,
        "quantiles": {
            f"p{100 * one.numerator // one.denominator}": {
                "us": one.value_us,
                "low_us": one.low_us,
                "high_us": one.high_us,
            }
            for one in latency.quantiles
        },
        "bins": [[one.low_us, one.high_us, one.count] for one in latency.bins],
    }


def _ratio(test: RatioTest) -> Body:
    return {
        "baseline": [test.baseline_good, test.baseline_count],
        "candidate": [test.canary_good, test.canary_count],
        "difference": test.difference,
        "low": test.low,
        "high": test.high,
        "margin": test.margin,
        "verdict": test.verdict,
    }


def _tail(test: TailTest) -> Body:
    return {
        "baseline_count": test.baseline_count,
        "candidate_count": test.canary_count,
        "threshold_us": float(test.threshold_us),
        "exceeding": test.exceeding,
        "p_value": test.p_value,
        "verdict": test.verdict,
    }


def _period(when: PeriodAsk) -> Body:
    return {
        "from": iso(when.period.start_us, when.zone),
        "to": iso(when.period.end_us, when.zone),
        "zone": when.zone_name,
    }


def _asked_wrongly(problem: AskProblem) -> Failure:
    message = f"{problem.parameter}: {problem.detail}."
    return errors.of_problem(invalid(message, problem.parameter))
