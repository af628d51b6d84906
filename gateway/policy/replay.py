"""What the ledger keeps of a decision, and the same decision made again from it (RTE-3, RTE-4)."""

import json
from collections.abc import Callable, Iterable
from hashlib import sha256
from typing import Final

import msgspec

from gateway.policy.admission import decide
from gateway.policy.values import (
    AdmissionContext,
    CapacitySnapshot,
    Decision,
    Evaluation,
    InferenceRequest,
    Route,
    RoutePolicy,
    RouteState,
    TenantState,
    Value,
)
from ledger.rates import RateTable

CODE_REVISION: Final = "policy-2"
"""Of the deciding code. Whoever changes what `decide` returns for any input raises it; a golden
test over a fixed corpus of inputs tells when. A decision of another revision isn't comparable."""

SnapshotOf = Callable[[str, int], CapacitySnapshot]


class RouteInput(Value, frozen=True, kw_only=True):
    """A route's state by reference: its snapshot is a row of the ledger, found by revision."""

    route_id: str
    healthy: bool
    snapshot_revision: int | None
    reserved_since_kv_tokens: int = 0
    accepted_since: int = 0
    probes_in_flight: int = 0
    cooling: bool = False


class DecisionInputs(Value, frozen=True, kw_only=True):
    """What `decide` was given: by value, or by the revision under which the ledger has it."""

    request: InferenceRequest
    tenant: TenantState
    now_us: int
    policy_revision: str
    rate_table_version: str
    evaluations_seq: int  # the evaluations known then: those up to this place in the chain
    routes: tuple[RouteInput, ...]
    predictions_seq: int = 0  # what was learned by then: predictions up to this place in the chain


def _route_input(state: RouteState) -> RouteInput:
    return RouteInput(
        route_id=state.route_id,
        healthy=state.healthy,
        snapshot_revision=state.snapshot.revision if state.snapshot else None,
        reserved_since_kv_tokens=state.reserved_since_kv_tokens,
        accepted_since=state.accepted_since,
        probes_in_flight=state.probes_in_flight,
        cooling=state.cooling,
    )


def route_inputs(states: Iterable[RouteState]) -> tuple[RouteInput, ...]:
    """Return the states with every snapshot replaced by its revision."""
    return tuple([_route_input(state) for state in states])


def states_of(inputs: Iterable[RouteInput], snapshots: SnapshotOf) -> tuple[RouteState, ...]:
    """Return the states that recorded inputs stand for: `route_inputs` the other way."""
    return tuple(
        [
            RouteState(
                route_id=each.route_id,
                healthy=each.healthy,
                snapshot=None
                if each.snapshot_revision is None
                else snapshots(each.route_id, each.snapshot_revision),
                reserved_since_kv_tokens=each.reserved_since_kv_tokens,
                accepted_since=each.accepted_since,
                probes_in_flight=each.probes_in_flight,
                cooling=each.cooling,
            )
            for each in inputs
        ]
    )


class RouteTexts:
    """The routes' part of recorded inputs as text, made anew only for states that are new.

    States are frozen, so that one which is the same object as last time reads the same.
    """

    __slots__ = ("_states", "_texts")

    def __init__(self) -> None:
        self._states: tuple[RouteState, ...] = ()
        self._texts: list[bytes] = []

    def of(self, states: tuple[RouteState, ...]) -> msgspec.Raw:
        """Return the array of the states' inputs."""
        last, texts = self._states, self._texts
        if len(last) != len(states):
            texts = self._texts = [_ENCODER.encode(_route_input(state)) for state in states]
        elif last is not states:
            for place, (was, state) in enumerate(zip(last, states, strict=True)):
                if was is not state:
                    texts[place] = _ENCODER.encode(_route_input(state))
        self._states = states
        return msgspec.Raw(b"[%b]" % b",".join(texts))


def encode_inputs(
    *,
    request: InferenceRequest,
    tenant: TenantState,
    route_states: tuple[RouteState, ...],
    now_us: int,
    policy_revision: str,
    rate_table_version: str,
    evaluations_seq: int,
    predictions_seq: int = 0,
    texts: RouteTexts | None = None,
) -> str:
    """Return the canonical text of `DecisionInputs`, for the ledger: snapshots by revision.

    `texts` remembers those of the routes from one decision to the next.
    """
    routes = (texts or RouteTexts()).of(route_states)
    fields = (
        request, tenant, now_us, policy_revision, rate_table_version, evaluations_seq, routes,
        predictions_seq,
    )  # fmt: skip
    text = _ENCODER.encode(fields).decode()
    return text if text.isascii() else canonical(_INPUTS.decode(text))


def encode_decision(decision: Decision) -> str:
    """Return the canonical text of a decision."""
    return canonical(decision)


_ENCODER = msgspec.json.Encoder()
_INPUTS = msgspec.json.Decoder(DecisionInputs)
_DECISION = msgspec.json.Decoder(Decision)


def canonical(value: Value) -> str:
    """Return a value as JSON text in ASCII: arrays in field order, no space, no choice left."""
    text = _ENCODER.encode(value).decode()
    if text.isascii():
        return text
    return json.dumps(msgspec.to_builtins(value), ensure_ascii=True, separators=(",", ":"))


def decode_inputs(inputs_json: str) -> DecisionInputs:
    """Return recorded inputs; msgspec.ValidationError where the text is not one's."""
    return _INPUTS.decode(inputs_json)


def decode_decision(decision_json: str) -> Decision:
    """Return a recorded decision; msgspec.ValidationError where the text is not one's."""
    return _DECISION.decode(decision_json)


def digest(inputs_json: str, decision_json: str) -> bytes:
    """Return sha256(inputs, 0x00, decision)."""
    return sha256(f"{inputs_json}\0{decision_json}".encode()).digest()


def redecide(
    inputs: DecisionInputs,
    policy: RoutePolicy,
    rates: RateTable,
    snapshots: SnapshotOf,
    evaluations: tuple[Evaluation, ...],
    routes: tuple[Route, ...] | None = None,
) -> Decision:
    """Return the decision that recorded inputs lead to under a policy, rates and snapshots.

    `routes`: the policy's with what had been learned of them; None: as they were declared.

    With those that the inputs name it is the recorded one (RTE-3), with others what would have
    been decided (RTE-4). `snapshots` returns a route's snapshot of a revision.
    """
    context = AdmissionContext(
        now_us=inputs.now_us,
        tenant=inputs.tenant,
        route_states=states_of(inputs.routes, snapshots),
        rates=rates,
        evaluations=evaluations,
    )
    return decide(inputs.request, routes or policy.routes, context, policy)
