"""What the ledger keeps of a question after the first attempt, and its answer made again (RTE-3).

The request itself is in the record of its admission; everything else that `next_step` was given is
here, by value or by the revision that holds it.
"""

from typing import Final

import msgspec

from gateway.policy import replay
from gateway.policy.attempting import Step, Story, next_step
from gateway.policy.comparing import Comparison
from gateway.policy.replay import RouteInput, SnapshotOf, canonical, digest, states_of
from gateway.policy.values import (
    AdmissionContext,
    Evaluation,
    InferenceRequest,
    RoutePolicy,
    TenantState,
    Value,
)
from ledger.rates import RateTable

CODE_REVISION: Final = f"{replay.CODE_REVISION}/attempts-2"
"""Of the deciding code: filters and estimates are those of admission. Whoever changes what
`next_step` returns for any input raises the second part."""


class StepInputs(Value, frozen=True, kw_only=True):
    """What `next_step` was given besides the request."""

    tenant: TenantState
    now_us: int
    policy_revision: str
    rate_table_version: str
    evaluations_seq: int
    routes: tuple[RouteInput, ...]
    story: Story


class RecordedStep(msgspec.Struct, frozen=True, kw_only=True):
    """A question and its answer as the ledger has them."""

    request_id: str
    action: str
    reason: str
    ordinal: int | None
    route_id: str | None
    decided_at_us: int
    policy_revision: str
    rate_table_version: str
    code_revision: str
    inputs_json: str
    decision_json: str
    digest: bytes


def step_again(
    request: InferenceRequest,
    inputs: StepInputs,
    policy: RoutePolicy,
    rates: RateTable,
    snapshots: SnapshotOf,
    evaluations: tuple[Evaluation, ...],
) -> Step:
    """Return the step that recorded inputs lead to (RTE-3, RTE-4)."""
    context = AdmissionContext(
        now_us=inputs.now_us,
        tenant=inputs.tenant,
        route_states=states_of(inputs.routes, snapshots),
        rates=rates,
        evaluations=evaluations,
    )
    return next_step(request, context, policy, inputs.story)


def decode_step_inputs(inputs_json: str) -> StepInputs:
    """Return recorded inputs; msgspec.ValidationError where the text is not one's."""
    return msgspec.json.decode(inputs_json, type=StepInputs)


def compare_step(recorded: RecordedStep, inputs: StepInputs, again: Step) -> Comparison:
    """Return whether step, digest and columns are, byte for byte, what comes out again."""
    text = canonical(again)
    differences = []
    if text != recorded.decision_json:
        differences.append(f"step: recorded {recorded.decision_json}, again {text}")
    if digest(recorded.inputs_json, recorded.decision_json) != recorded.digest:
        differences.append("digest: it is not the hash of the recorded inputs and step")
    said = {
        "request_id": again.request_id,
        "action": again.action,
        "reason": again.reason,
        "ordinal": again.ordinal,
        "route_id": again.route_id,
        "decided_at_us": inputs.now_us,
        "policy_revision": inputs.policy_revision,
        "rate_table_version": inputs.rate_table_version,
    }
    differences += [
        f"column {name}: recorded {getattr(recorded, name)}, again {value}"
        for name, value in said.items()
        if getattr(recorded, name) != value
    ]
    return Comparison(
        request_id=recorded.request_id,
        verdict="different" if differences else "identical",
        differences=tuple(differences),
    )
