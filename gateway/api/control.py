"""GET /api/v1/slo/evaluations, /actions, /rollouts and /diagnosis: what was decided, and why.

They name tenants and people, so a key needs the scope reports, operate or administer.
"""

import asyncio
import json
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from gateway.api import errors
from gateway.api.errors import Failure
from gateway.api.http import Request, Response
from gateway.api.ports import Ports
from gateway.api.problems import invalid
from gateway.api.receipts import iso_time
from gateway.api.replies import failed_natively
from gateway.diagnosing import read_moment
from gateway.reporting import AskProblem, unknown_parameter
from gateway.submission import Caller
from ledger.diagnosis import Finding, Picture
from ledger.queries import objectives, rollouts
from ledger.queries.actions import actions_page
from ledger.queries.diagnosis import diagnosis
from ledger.queries.proving import MARKS, proving
from ledger.records import (
    ActionOverride,
    ControlAction,
    RolloutEvaluation,
    RolloutRecord,
    SloEvaluation,
)
from ledger.rows import Stored

EVALUATIONS: Final = "/api/v1/slo/evaluations"
ACTIONS: Final = "/api/v1/actions"
ROLLOUTS: Final = "/api/v1/rollouts"
DIAGNOSIS: Final = "/api/v1/diagnosis"
PATHS: Final = (EVALUATIONS, ACTIONS, ROLLOUTS, DIAGNOSIS)
EVALUATIONS_PARAMETERS: Final = ("slo", "limit")
ACTIONS_PARAMETERS: Final = ("action", "subject", "actor", "before", "limit", "open")
ROLLOUTS_PARAMETERS: Final = ("rollout",)
LIMIT, LIMITS = 100, range(1, 1_001)
WRONG_LIMIT: Final = AskProblem(parameter="limit", detail=f"write 1 to {LIMITS[-1]}")

Query = Mapping[str, Sequence[str]]
Body = dict[str, Any]
Report = Callable[[sqlite3.Connection, Query, int], Body | Failure]


class Control:
    """Answers from the ledger, off the event loop."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports

    async def evaluations(self, request: Request, caller: Caller) -> Response:
        return await self._answered(request, evaluations_body)

    async def actions(self, request: Request, caller: Caller) -> Response:
        return await self._answered(request, actions_body)

    async def rollouts(self, request: Request, caller: Caller) -> Response:
        return await self._answered(request, rollouts_body)

    async def diagnosis(self, request: Request, caller: Caller) -> Response:
        return await self._answered(request, diagnosis_body)

    async def _answered(self, request: Request, report: Report) -> Response:
        query, now_us = request.query(), self._ports.clock.now_us()
        found = await asyncio.to_thread(lambda: report(self._ports.reader(), query, now_us))
        if isinstance(found, Failure):
            return failed_natively(found)
        return Response(body=json.dumps(found, ensure_ascii=False).encode())


def evaluations_body(connection: sqlite3.Connection, query: Query, now_us: int) -> Body | Failure:
    """The newest evaluated windows of one objective, the newest first, corrections among them."""
    problem = unknown_parameter(query, EVALUATIONS_PARAMETERS)
    limit, slo_id = _number(query, "limit", LIMIT), _last(query, "slo")
    known = {one.slo_id for one in objectives.revisions(connection)}
    if problem is not None:
        return _wrong(problem)
    if limit is None or limit not in LIMITS:
        return _wrong(WRONG_LIMIT)
    if slo_id not in known:
        return _wrong(AskProblem(parameter="slo", detail=f"there are {', '.join(sorted(known))}"))
    found = objectives.evaluations(connection, slo_id, limit=limit)
    return {"slo_id": slo_id, "evaluations": [_evaluation(one) for one in found]}


def _evaluation(one: SloEvaluation) -> Body:
    return {
        "from": iso_time(one.start_us),
        "to": iso_time(one.end_us),
        "revision": one.revision,
        "slo_revision": one.slo_revision,
        "state": one.state,
        "good": one.good,
        "valid": one.valid,
        "rules": msgspec.json.decode(one.rules_json),
        "calm_windows": one.calm_windows,
        "episode": one.episode,
        "evaluated_at": iso_time(one.evaluated_at_us),
    }


def actions_body(connection: sqlite3.Connection, query: Query, now_us: int) -> Body | Failure:
    """Control actions, the newest first; `open=1`: the episodes in force or proposed alone."""
    problem = unknown_parameter(query, ACTIONS_PARAMETERS)
    limit, before = _number(query, "limit", LIMIT), _number(query, "before", 2**63 - 1)
    if problem is not None:
        return _wrong(problem)
    if limit is None or limit not in LIMITS:
        return _wrong(WRONG_LIMIT)
    if before is None:
        detail = "write older_before of the page before"
        return _wrong(AskProblem(parameter="before", detail=detail))
    if _last(query, "open") == "1":
        named = [one.slo_id for one in objectives.objectives(connection)]
        held = [objectives.override_of(connection, name, now_us) for name in named]
        return {
            "actions": [_action(one) for one in objectives.open_episodes(connection)],
            "overrides": [_override(one) for one in held if one is not None],
            "older_before": None,
        }
    found = actions_page(
        connection,
        before_seq=before,
        action=_last(query, "action"),
        subject=_last(query, "subject"),
        actor=_last(query, "actor"),
        rows=limit,
    )
    return {
        "actions": [_action(one) for one in found.actions],
        "older_before": found.older_seq,
    }


def _action(stored: Stored[ControlAction]) -> Body:
    one = stored.record
    return {
        "seq": stored.seq,
        "entry_hash": stored.entry_hash.hex(),
        "action": one.action,
        "subject": one.subject,
        "actor": one.actor,
        "acted_at": iso_time(one.acted_at_us),
        "reason": one.reason,
        "evidence": one.evidence,
        "episode": one.episode,
        "phase": one.phase,
        "before": _read(one.before_json),
        "after": _read(one.after_json),
    }


def _override(one: ActionOverride) -> Body:
    return {
        "slo_id": one.slo_id,
        "reason": one.reason,
        "begins_at": iso_time(one.begins_at_us),
        "expires_at": iso_time(one.expires_at_us),
        "set_by": one.set_by,
    }


def _read(text: str) -> Any:
    """The JSON of a recorded text; the text itself where it is none."""
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text


def rollouts_body(connection: sqlite3.Connection, query: Query, now_us: int) -> Body | Failure:
    """Every rollout with where it stands, the newest first; `rollout=ID`: that one, each step."""
    problem = unknown_parameter(query, ROLLOUTS_PARAMETERS)
    if problem is not None:
        return _wrong(problem)
    name = _last(query, "rollout")
    if not name:
        found = rollouts.rollouts(connection)
        return {"rollouts": [_rollout(connection, one) for one in found]}
    declared = rollouts.rollout(connection, name)
    if declared is None:
        return errors.of_http("NOT_FOUND", "There is no rollout of that name.")
    steps = rollouts.steps(connection, name)
    return _rollout(connection, declared) | {"steps": [_step(one) for one in steps]}


def _rollout(connection: sqlite3.Connection, one: RolloutRecord) -> Body:
    last = rollouts.last_step(connection, one.rollout_id)
    return {
        "rollout_id": one.rollout_id,
        "release_id": one.release_id,
        "plan": _read(one.plan_json),
        "plan_hash": one.plan_hash,
        "declared_at": iso_time(one.declared_at_us),
        "declared_by": one.declared_by,
        "progress": None if last is None else _read(last.progress_json),
    }


def _step(one: RolloutEvaluation) -> Body:
    return {
        "number": one.number,
        "kind": one.kind,
        "from": iso_time(one.start_us),
        "to": iso_time(one.end_us),
        "verdict": one.verdict or None,
        "decision": one.decision,
        "reason": one.reason,
        "statistics": _read(one.statistics_json),
        "policy_revision": one.policy_revision,
        "evaluated_at": iso_time(one.evaluated_at_us),
        "actor": one.actor,
    }


def diagnosis_body(connection: sqlite3.Connection, query: Query, now_us: int) -> Body | Failure:
    """What is wrong in the window of `within` that ends at `at`, with receipts that show it."""
    moment = read_moment(query, now_us)
    if isinstance(moment, AskProblem):
        return _wrong(moment)
    before, now, findings = diagnosis(connection, moment.start_us, moment.end_us)
    return {
        "before": _picture(before),
        "now": _picture(now),
        "findings": [_finding(connection, one, moment.start_us, moment.end_us) for one in findings],
    }


def _picture(one: Picture) -> Body:
    return {
        "from": iso_time(one.start_us),
        "to": iso_time(one.end_us),
        "requests": one.requests,
    }


def _finding(connection: sqlite3.Connection, one: Finding, start_us: int, end_us: int) -> Body:
    return {
        "row": one.row,
        "symptom": one.symptom,
        "evidence": [
            {"what": what, "before": before, "now": now} for what, before, now in one.evidence
        ],
        "causes": list(one.causes),
        "not_yet": one.not_yet,
        "drill": one.drill,
        "receipts": [
            {"request_id": proof.request_id, "tenant_id": proof.tenant_id, "value": proof.value}
            for proof in proving(connection, one, start_us, end_us)
        ],
        "receipts_are": MARKS[one.row].means,
    }


def _last(query: Query, name: str) -> str:
    return (query.get(name) or ("",))[-1].strip()


def _number(query: Query, name: str, otherwise: int) -> int | None:
    """A whole number of at most 18 digits; None for what is none."""
    text = _last(query, name)
    if not text:
        return otherwise
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 18 else None


def _wrong(problem: AskProblem) -> Failure:
    return errors.of_problem(invalid(f"{problem.parameter}: {problem.detail}.", problem.parameter))
