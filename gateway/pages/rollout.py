"""One rollout: its declared plan and gate, each window with its numbers, what a person may do."""

import sqlite3

import msgspec
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from gateway.auth_roles import require_role
from gateway.pages.rollout_view import (
    DECISIONS,
    STATE_CHIPS,
    condition_words,
    gate_lines,
    plan_facts,
    progress_of,
    steps_of,
)
from gateway.pages.shell import ledger
from ledger import release_gate
from ledger.power_table import EFFECTS, POWER
from ledger.queries import configuration
from ledger.queries import rollouts as stored
from ledger.records import EvaluationResult, ReleaseRecord, RolloutEvaluation, RolloutRecord
from ledger.release_gate import Release
from ledger.rollouts import Plan, plan_hash

SHOWN_STEPS = 200


@require_safe
@require_role("viewer")
def show(request: HttpRequest, rollout_id: str) -> HttpResponse:
    declared = stored.rollout(ledger(), rollout_id)
    if declared is None:
        reason = "The ledger has no rollout of this name. Those that there are stand on Releases."
        return render(request, "404.html", {"reason": reason}, status=404)
    return render(request, "rollout/index.html", _context(ledger(), declared))


def _context(connection: sqlite3.Connection, declared: RolloutRecord) -> dict[str, object]:
    plan = msgspec.json.decode(declared.plan_json, type=Plan)
    rows = stored.steps(connection, declared.rollout_id)
    progress = progress_of(rows[-1]) if rows else None
    steps = steps_of(plan, rows)[-SHOWN_STEPS:]
    return {
        "declared": declared,
        "plan": plan,
        "facts": plan_facts(plan),
        "conditions": [condition_words(one) for one in plan.conditions],
        "hash_holds": plan_hash(declared.plan_json) == declared.plan_hash,
        "progress": progress,
        "state": progress.state if progress else "declared",
        "chip": STATE_CHIPS.get(progress.state, "no_data") if progress else "no_data",
        "permille": plan.steps_permille[progress.step] if progress else 0,
        "steps": steps,
        "strip_width": max(14 * len(steps), 14),
        "decisions": DECISIONS.get(progress.state, ()) if progress else (),
        "release": _gated(connection, declared.release_id),
        "power": POWER,
        "effects": EFFECTS,
    }


def rollouts_of(connection: sqlite3.Connection) -> list[dict[str, object]]:
    """Every rollout as the Releases page lists it, the newest first."""
    return [
        {"declared": one, "last": last, **_standing(last)}
        for one in stored.rollouts(connection)
        for last in [stored.last_step(connection, one.rollout_id)]
    ]


def _standing(last: RolloutEvaluation | None) -> dict[str, object]:
    state = progress_of(last).state if last else "declared"
    return {"state": state, "chip": STATE_CHIPS.get(state, "no_data")}


def releases_of(connection: sqlite3.Connection) -> list[dict[str, object]]:
    """Every release with its gate, the newest first."""
    evidence = configuration.evaluations(connection)[0]
    return [_with_gate(one, evidence) for one in stored.releases(connection)]


def _gated(connection: sqlite3.Connection, release_id: str) -> dict[str, object] | None:
    found = stored.release(connection, release_id)
    if found is None:
        return None
    return _with_gate(found, configuration.evaluations(connection)[0])


def _with_gate(record: ReleaseRecord, evidence: list[EvaluationResult]) -> dict[str, object]:
    bundle = msgspec.json.decode(record.body_json, type=Release)
    lines = release_gate.gate(bundle, evidence)
    return {
        "record": record,
        "bundle": bundle,
        "lines": gate_lines(lines),
        "open": release_gate.is_open(lines),
    }
