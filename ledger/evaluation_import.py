"""Evaluation results from a file: JSON, an array or one object a line. Pure.

{"evaluation_id": "core/2026-11-01", "suite": "core", "identity_id": "mid_…",
 "score_milli": 912, "passed": true, "measured_at": "2026-11-01T12:00:00Z",
 "evidence": "runs/4711"}
"""

from dataclasses import dataclass
from datetime import UTC, datetime

import msgspec

from ledger.records import EvaluationResult

SIZE_LIMIT_BYTES = 4_000_000
RESULTS_LIMIT = 10_000
PROBLEMS_LIMIT = 20
TEXT_LIMIT_CHARS = 300
SCORE_LIMIT_MILLI = 1_000
FIRST_YEAR, LAST_YEAR = 1971, 9999  # in any zone, time as microseconds of the epoch


@dataclass(frozen=True, slots=True, kw_only=True)
class Parsed:
    """What a file holds; nothing of it counts where there is a problem."""

    results: tuple[EvaluationResult, ...]
    problems: tuple[str, ...]  # each names its place in the file, from 1


class _Result(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    evaluation_id: str
    suite: str
    identity_id: str
    score_milli: int
    passed: bool
    measured_at: datetime
    evidence: str


def parse(text: bytes) -> Parsed:
    """The results in a file, in its order."""
    if len(text) > SIZE_LIMIT_BYTES:
        return _refused(f"the file has {len(text)} bytes; at most {SIZE_LIMIT_BYTES} are read")
    stripped = text.strip()
    try:
        if stripped.startswith(b"["):
            parts = msgspec.json.decode(stripped, type=list[msgspec.Raw])
        else:
            parts = [msgspec.Raw(line) for line in stripped.splitlines() if line.strip()]
    except msgspec.DecodeError as problem:
        return _refused(f"the file is no JSON: {problem}")
    if not parts or len(parts) > RESULTS_LIMIT:
        return _refused(f"the file has {len(parts)} results; 1 to {RESULTS_LIMIT} are read")
    results: list[EvaluationResult] = []
    problems: list[str] = []
    seen: set[str] = set()
    for place, part in enumerate(parts, start=1):
        try:
            read = msgspec.json.decode(part, type=_Result)
        except msgspec.DecodeError as problem:
            problems.append(f"result {place}: {problem}")
            continue
        fault = _problem(read, seen)
        if fault:
            problems.append(f"result {place}: {fault}")
        else:
            seen.add(read.evaluation_id)
            results.append(_record(read))
    return Parsed(
        results=() if problems else tuple(results), problems=tuple(problems[:PROBLEMS_LIMIT])
    )


def _problem(read: _Result, seen: set[str]) -> str:
    for name in ("evaluation_id", "suite", "identity_id", "evidence"):
        value = getattr(read, name)
        if not value.strip() or len(value) > TEXT_LIMIT_CHARS:
            return f"{name} has 1 to {TEXT_LIMIT_CHARS} characters"
    if not 0 <= read.score_milli <= SCORE_LIMIT_MILLI:
        return f"score_milli is 0 to {SCORE_LIMIT_MILLI}"
    if read.measured_at.tzinfo is None:
        return "measured_at needs its zone, as in 2026-11-01T12:00:00Z"
    if not FIRST_YEAR <= read.measured_at.year < LAST_YEAR:
        return f"measured_at lies between {FIRST_YEAR} and {LAST_YEAR}"
    if read.evaluation_id in seen:
        return "its evaluation_id is in the file twice"
    return ""


def _record(read: _Result) -> EvaluationResult:
    measured = read.measured_at.astimezone(UTC)
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    since = measured - epoch
    return EvaluationResult(
        evaluation_id=read.evaluation_id,
        suite=read.suite,
        identity_id=read.identity_id,
        score_milli=read.score_milli,
        passed=int(read.passed),
        measured_at_us=(since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds,
        evidence=read.evidence,
    )


def _refused(problem: str) -> Parsed:
    return Parsed(results=(), problems=(problem,))
