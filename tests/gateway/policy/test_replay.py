"""RTE-3 and RTE-4: what is recorded of a decision, and the decision made again from it."""

from hashlib import sha256

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.policy import comparing, replay
from gateway.policy.admission import decide
from tests.gateway.policy.corpus import Case, case
from tests.policy_factories import (
    NOW_US,
    context,
    course_policy,
    rate,
    rates,
    replaced,
    request,
    snapshot,
    state,
)

CORPUS_CASES = 3_000
CORPUS_DIGEST = "360d08e69c2bab1d805c168b563acb4e84cf61249fdccd6b94a4588a18670ece"
DECISIONS_DIGEST = {"policy-2": "bc40d51dad15e6e53e6963e93c9e34fe5cec11bc13b44af604f194abaac94f49"}
"""Of the revision of the deciding code, what it decides on the corpus."""


def encoded(each: Case) -> str:
    return replay.encode_inputs(
        request=each.request,
        tenant=each.context.tenant,
        route_states=each.context.route_states,
        now_us=each.context.now_us,
        policy_revision=each.policy.revision,
        rate_table_version=each.context.rates.version,
        evaluations_seq=7,
    )


def snapshots_of(each: Case):
    kept = {
        (s.route_id, s.snapshot.revision): s.snapshot
        for s in each.context.route_states
        if s.snapshot is not None
    }
    return lambda route_id, revision: kept[route_id, revision]


def again(each: Case, inputs_json: str):
    return replay.redecide(
        replay.decode_inputs(inputs_json),
        each.policy,
        each.context.rates,
        snapshots_of(each),
        each.context.evaluations,
    )


def recorded(each: Case, **changed) -> comparing.Recorded:
    inputs_json, decision_json = encoded(each), replay.encode_decision(decide(*each))
    decision = decide(*each)
    fields = {
        "request_id": each.request.request_id,
        "status": decision.status,
        "reason_code": decision.reason_code,
        "route_id": decision.route_id,
        "tenant_id": each.request.tenant_id,
        "decided_at_us": each.context.now_us,
        "policy_revision": each.policy.revision,
        "rate_table_version": each.context.rates.version,
        "code_revision": replay.CODE_REVISION,
        "inputs_json": inputs_json,
        "decision_json": decision_json,
        "digest": replay.digest(inputs_json, decision_json),
    }
    return comparing.Recorded(**fields | changed)


def compared(each: Case, row: comparing.Recorded) -> comparing.Comparison:
    return comparing.compare(
        row,
        replay.decode_inputs(row.inputs_json),
        each.policy,
        each.context.rates,
        snapshots_of(each),
        each.context.evaluations,
    )


def test_this_code_revision_decides_the_corpus_as_it_always_did():
    inputs, decisions = sha256(), sha256()
    for seed in range(CORPUS_CASES):
        each = case(seed)
        inputs.update(encoded(each).encode() + msgspec.json.encode(each.policy))
        decisions.update(replay.encode_decision(decide(*each)).encode() + b"\n")
    assert inputs.hexdigest() == CORPUS_DIGEST, (
        "The corpus itself has changed (or how inputs are encoded): pin both digests anew, and "
        "leave CODE_REVISION alone if `decide` is as it was."
    )
    assert decisions.hexdigest() == DECISIONS_DIGEST.get(replay.CODE_REVISION), (
        f"`decide` returns something else for the same inputs than {replay.CODE_REVISION} did. If "
        "that is meant, raise CODE_REVISION in gateway/policy/replay.py and add the new digest to "
        "DECISIONS_DIGEST beside the old one: recorded decisions would otherwise be reported as "
        f"different. New digest: {decisions.hexdigest()}"
    )


@given(st.integers(0, 10**9).map(case))
def test_a_decision_is_made_again_byte_for_byte_from_what_is_recorded(each: Case):
    row = recorded(each)
    assert replay.encode_decision(again(each, row.inputs_json)) == row.decision_json
    assert compared(each, row).verdict == "identical"


@given(st.integers(0, 10**9).map(case))
def test_recorded_inputs_are_ascii_and_hold_no_snapshot_by_value(each: Case):
    text = encoded(each)
    assert text.isascii()
    inputs = replay.decode_inputs(text)
    assert inputs.request == each.request
    assert replay.canonical(inputs) == text
    revisions = [s.snapshot.revision if s.snapshot else None for s in each.context.route_states]
    assert [route.snapshot_revision for route in inputs.routes] == revisions


def test_the_digest_is_sha256_of_inputs_a_zero_byte_and_the_decision():
    assert replay.digest("[1]", "[2]") == sha256(b"[1]\x00[2]").digest()


@pytest.fixture
def accepted() -> Case:
    rules = course_policy()
    return Case(request(), rules.routes, context(), rules)


def test_an_altered_decision_is_different_and_the_field_is_named(accepted: Case):
    decision = decide(*accepted)
    altered = replay.encode_decision(replaced(decision, cost_pico=1))
    row = recorded(accepted, decision_json=altered)
    result = compared(accepted, row)
    assert result.verdict == "different"
    assert result.differences[0] == "cost_pico: recorded 1, again 3600000000"
    assert result.differences[1].startswith("digest: ")


def test_a_digest_that_does_not_match_is_different_though_the_decision_is_the_same(accepted: Case):
    result = compared(accepted, recorded(accepted, digest=bytes(32)))
    assert result.verdict == "different"
    assert [line.split(":")[0] for line in result.differences] == ["digest"]


def test_altered_inputs_are_different(accepted: Case):
    row = recorded(accepted)
    text = row.inputs_json.replace(str(NOW_US), str(NOW_US + 1))
    altered = compared(accepted, replaced(row, inputs_json=text))
    assert altered.differences == (
        "digest: it is not the hash of the recorded inputs and decision",
        f"column decided_at_us: recorded {NOW_US}, again {NOW_US + 1}",
    )


def test_a_column_that_contradicts_the_recorded_texts_is_different(accepted: Case):
    result = compared(accepted, recorded(accepted, route_id="long-context-v4"))
    assert result.differences == ('column route_id: recorded "long-context-v4", again "fast-v2"',)


def test_a_decision_of_another_code_revision_is_not_comparable_and_never_different(accepted: Case):
    row = recorded(accepted, code_revision="policy-0", decision_json="[]")
    assert compared(accepted, row) == comparing.Comparison(
        request_id="req-normal",
        verdict="not_comparable",
        differences=("decided by code revision policy-0; this is policy-2",),
    )


def test_a_recorded_text_that_is_no_decision_is_different_and_says_so(accepted: Case):
    result = compared(accepted, recorded(accepted, decision_json="{"))
    assert result.verdict == "different"
    assert result.differences[0].startswith("decision: the recorded text is none")


def test_the_same_inputs_under_dearer_rates_another_policy_and_a_full_backend(accepted: Case):
    inputs = replay.decode_inputs(encoded(accepted))
    usual = (accepted.policy, accepted.context.rates, snapshots_of(accepted), ())

    dearer = rates(rate("fast-v2", 20, 80), rate("long-context-v4", 40, 120))
    assert replay.redecide(inputs, usual[0], dearer, *usual[2:]).reason_code == (
        "COST_BUDGET_EXCEEDED"
    )

    slower = course_policy(first_decode_us=9_000_000)
    assert replay.redecide(inputs, slower, *usual[1:]).reason_code == "DEADLINE_INSUFFICIENT"

    def full(route_id, revision):
        return snapshot(route_id, revision=revision, free_kv_tokens=0)

    assert replay.redecide(inputs, usual[0], usual[1], full, ()).reason_code == "CAPACITY_SHED"


def test_text_beyond_ascii_is_escaped_and_comes_back():
    rules = course_policy()
    each = Case(request(session_id="sitzung-ä-𝄞"), rules.routes, context(state()), rules)
    text = encoded(each)
    assert text.isascii()
    assert replay.decode_inputs(text).request.session_id == "sitzung-ä-𝄞"
