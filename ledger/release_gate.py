"""A release as a bundle of revisions, and the offline gate before its first request (REL-1). Pure.

Missing evidence is a closed gate: nothing is assumed of an identity that was never measured.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import msgspec

from ledger.records import EvaluationResult, ModelIdentity

Check = Literal["evaluation", "structured_output", "tool_calls", "safety", "performance"]
CHECKS: tuple[Check, ...] = (
    "evaluation",
    "structured_output",
    "tool_calls",
    "safety",
    "performance",
)
LineState = Literal["passed", "failed", "missing"]


class Requirement(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The suite that answers one check, and the least score that passes."""

    check: Check
    suite: str
    floor_milli: int = 0


class Release(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is released: weights, tokenizer, runtime, quantization, configuration, policies."""

    release_id: str
    identity_id: str
    logical_model: str
    weights_revision: str
    tokenizer_revision: str
    runtime_revision: str
    quantization: str
    serving_config_revision: str
    prompt_policy_revision: str
    route_policy_revision: str
    requirements: tuple[Requirement, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GateLine:
    """One check: what its newest evidence says of this exact identity."""

    check: Check
    suite: str
    state: LineState
    detail: str


def bundle(
    release_id: str,
    identity: ModelIdentity,
    route_policy_revision: str,
    requirements: tuple[Requirement, ...],
) -> Release:
    """The release of an identity under a route policy."""
    return Release(
        release_id=release_id,
        identity_id=identity.identity_id,
        logical_model=identity.logical_model,
        weights_revision=identity.weights_revision,
        tokenizer_revision=identity.tokenizer_revision,
        runtime_revision=f"{identity.runtime_name} {identity.runtime_revision}",
        quantization=identity.quantization,
        serving_config_revision=identity.serving_config_revision,
        prompt_policy_revision=identity.prompt_policy_revision,
        route_policy_revision=route_policy_revision,
        requirements=requirements,
    )


def gate(release: Release, evaluations: Iterable[EvaluationResult]) -> tuple[GateLine, ...]:
    """Each of the five checks with its state, in their order.

    Of a suite the newest measurement counts, by time and then by its place among `evaluations`. A
    check that the release names no suite for is missing.
    """
    newest: dict[str, EvaluationResult] = {}
    for one in evaluations:
        known = newest.get(one.suite)
        if one.identity_id == release.identity_id and (
            known is None or known.measured_at_us <= one.measured_at_us
        ):
            newest[one.suite] = one
    lines = []
    for check in CHECKS:
        asked = [one for one in release.requirements if one.check == check]
        lines += [_line(one, newest.get(one.suite)) for one in asked]
        if not asked:
            lines.append(
                GateLine(check=check, suite="", state="missing", detail="no suite is named for it")
            )
    return tuple(lines)


def is_open(lines: Iterable[GateLine]) -> bool:
    """Whether every check has passed."""
    found = [line.state for line in lines]
    return bool(found) and all(state == "passed" for state in found)


def _of_one(milli: int) -> str:
    """Thousandths as the share that they are: 930 -> "0.930"."""
    return f"{milli // 1000}.{milli % 1000:03d}"


def _line(asked: Requirement, found: EvaluationResult | None) -> GateLine:
    state: LineState
    if found is None:
        state, detail = "missing", "this exact identity was never measured with it"
    elif not found.passed:
        state, detail = "failed", f"{found.evaluation_id} has not passed"
    elif found.score_milli < asked.floor_milli:
        state = "failed"
        scored, floor = _of_one(found.score_milli), _of_one(asked.floor_milli)
        detail = f"{found.evaluation_id} scored {scored}, under {floor}"
    else:
        state, detail = "passed", f"{found.evaluation_id} scored {_of_one(found.score_milli)}"
    return GateLine(check=asked.check, suite=asked.suite, state=state, detail=detail)
