"""A recorded decision next to the one made again from its inputs, byte for byte (RTE-3)."""

from typing import Final, Literal

import msgspec

from gateway.policy.replay import (
    CODE_REVISION,
    DecisionInputs,
    SnapshotOf,
    decode_decision,
    digest,
    encode_decision,
    redecide,
)
from gateway.policy.values import Decision, Evaluation, Route, RoutePolicy
from ledger.rates import RateTable

SHOWN_CHARS: Final = 400
"""Of a value in a difference; the whole of it is in the ledger."""

Verdict = Literal["identical", "different", "not_comparable"]


class Recorded(msgspec.Struct, frozen=True, kw_only=True):
    """A decision as the ledger has it: its texts, and the columns that repeat parts of them."""

    request_id: str
    status: str
    reason_code: str | None
    route_id: str | None
    tenant_id: str
    decided_at_us: int
    policy_revision: str
    rate_table_version: str
    code_revision: str
    inputs_json: str
    decision_json: str
    digest: bytes


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a recorded decision is what comes out again; `differences` has a line for each."""

    request_id: str
    verdict: Verdict
    differences: tuple[str, ...] = ()


def compare(
    recorded: Recorded,
    inputs: DecisionInputs,
    policy: RoutePolicy,
    rates: RateTable,
    snapshots: SnapshotOf,
    evaluations: tuple[Evaluation, ...],
    routes: tuple[Route, ...] | None = None,
) -> Comparison:
    """Return whether decision, digest and columns are, byte for byte, what comes out again.

    `inputs` are the recorded ones, decoded. A decision of another code revision is
    `not_comparable`, never `different`.
    """
    if recorded.code_revision != CODE_REVISION:
        return not_comparable(recorded.request_id, recorded.code_revision)
    decision = redecide(inputs, policy, rates, snapshots, evaluations, routes)
    again = encode_decision(decision)
    differences = []
    if again != recorded.decision_json:
        differences += field_differences(recorded.decision_json, again)
    if digest(recorded.inputs_json, recorded.decision_json) != recorded.digest:
        differences.append("digest: it is not the hash of the recorded inputs and decision")
    differences += _column_differences(recorded, inputs, decision)
    verdict: Verdict = "different" if differences else "identical"
    return Comparison(
        request_id=recorded.request_id, verdict=verdict, differences=tuple(differences)
    )


def not_comparable(request_id: str, decided_by: str, this: str = CODE_REVISION) -> Comparison:
    """Return that another revision of the code decided than this one, and which."""
    line = f"decided by code revision {decided_by}; this is {this}"
    return Comparison(request_id=request_id, verdict="not_comparable", differences=(line,))


def field_differences(recorded_json: str, again_json: str) -> list[str]:
    """Return one line for each field in which two decisions differ; never an empty list."""
    try:
        recorded, again = decode_decision(recorded_json), decode_decision(again_json)
    except msgspec.DecodeError as error:
        return [f"decision: the recorded text is none ({error})"]
    lines = [
        _line(name, getattr(recorded, name), getattr(again, name))
        for name in Decision.__struct_fields__
        if getattr(recorded, name) != getattr(again, name)
    ]
    return lines or ["decision: the values are the same, but the recorded text is not canonical"]


def _column_differences(
    recorded: Recorded, inputs: DecisionInputs, decision: Decision
) -> list[str]:
    """Return where the row's own columns say something else than its texts."""
    said = {
        "request_id": decision.request_id,
        "status": decision.status,
        "reason_code": decision.reason_code,
        "route_id": decision.route_id,
        "tenant_id": inputs.request.tenant_id,
        "decided_at_us": inputs.now_us,
        "policy_revision": inputs.policy_revision,
        "rate_table_version": inputs.rate_table_version,
    }
    return [
        _line(f"column {name}", getattr(recorded, name), value)
        for name, value in said.items()
        if getattr(recorded, name) != value
    ]


def _line(name: str, recorded: object, again: object) -> str:
    return f"{name}: recorded {_shown(recorded)}, again {_shown(again)}"


def _shown(value: object) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]}…"
