"""Prometheus metrics of objectives and actions: what an alerting rule can be written on."""

import sqlite3
from collections.abc import Sequence

from prometheus_client import Counter, Gauge

from gateway.metrics import REGISTRY, BoundedLabel
from gateway.operations.base import Done, Refused
from ledger.queries import objectives as stored
from ledger.records import ControlAction, Record, SloEvaluation

STATES = ("OK", "WATCH", "FREEZE", "SHED", "ROLLBACK", "NO_DATA")

_state = Gauge(
    "weighbridge_slo_state",
    "1 for the state that an objective was in at its newest closed window, 0 for the others.",
    ["slo", "state"],
    registry=REGISTRY,
)
_window_end = Gauge(
    "weighbridge_slo_window_end_timestamp_seconds",
    "The end of an objective's newest evaluated window, in seconds since the Unix epoch.",
    ["slo"],
    registry=REGISTRY,
)
_actions = Gauge(
    "weighbridge_control_actions_open",
    "Actions of objectives by kind and phase: applied are in force, proposed wait for a person.",
    ["action", "phase"],
    registry=REGISTRY,
)
_passes = Counter(
    "weighbridge_evaluator_passes",
    "Passes of the evaluator in this server, by what came of them.",
    ["result"],
    registry=REGISTRY,
)
_slo, _action = BoundedLabel(), BoundedLabel()


def passed(result: Done | Refused) -> None:
    """Count a pass of the evaluator."""
    quiet = isinstance(result, Refused) and result.code == "NOTHING_DUE"
    name = "evaluated" if isinstance(result, Done) else ("nothing_due" if quiet else "refused")
    _passes.labels(name).inc()


def followed(records: Sequence[Record], connection: sqlite3.Connection) -> None:
    """Set the gauges of what was just appended."""
    for record in records:
        if isinstance(record, SloEvaluation) and record.revision == 0:
            slo = _slo(record.slo_id)
            for state in STATES:
                _state.labels(slo, state).set(int(state == record.state))
            _window_end.labels(slo).set(record.end_us / 1e6)
    if any(isinstance(record, ControlAction) and record.episode for record in records):
        _actions.clear()
        for one in stored.open_episodes(connection):
            _actions.labels(_action(one.record.action), one.record.phase).inc()
