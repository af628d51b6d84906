"""RTE-3 end to end: decisions in a ledger file, made again by the command from that file alone."""

import io
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pytest
from django.core.management import CommandError, call_command

from gateway.fleet_file.document import Fleet, write_fleet
from gateway.policy import replay
from gateway.policy.admission import decide
from gateway.replaying import Other, Replayer, tally
from ledger.records import (
    CapacitySnapshotRecord,
    EvaluationResult,
    RateTableRecord,
    RouteDecision,
    RoutePolicyRecord,
)
from ledger.store import Store
from tests import policy_factories as make
from tests.gateway.api.client import Client, SmallGateway
from tests.gateway.policy.corpus import Draw

POLICY = make.course_policy(
    models=(make.model("fast-v2"),), edges=(make.edge("fast-v2", "long-context-v4"),)
)
EVIDENCE = make.evaluation("long-context-v4")
DECISIONS = 60


def configuration_records():
    published: dict[str, Any] = {"published_at_us": 1, "published_by": "test"}
    return [
        RoutePolicyRecord(
            revision=POLICY.revision, body_json=msgspec.json.encode(POLICY).decode(), **published
        ),
        RateTableRecord(
            version=make.COURSE_RATES.version,
            effective_from_us=0,
            currency="unit",
            body_json=msgspec.json.encode(make.COURSE_RATES).decode(),
            **published,
        ),
        EvaluationResult(
            evaluation_id="evaluation-1",
            suite=EVIDENCE.suite,
            identity_id=EVIDENCE.identity_id,
            score_milli=EVIDENCE.score_milli,
            passed=1,
            measured_at_us=1,
            evidence="run-1",
        ),
    ]


def decided(number: int, evaluations_seq: int):
    """The records of one decision: its snapshot, then itself."""
    draw = Draw(number)
    free = draw.of((0, 24_000))
    fast = make.state("fast-v2", revision=number, free_kv_tokens=free, healthy=not draw.one_in(3))
    states = (fast, make.state("long-context-v4", snapshot=None))
    if draw.one_in(2):
        states = (fast, make.state("long-context-v4", revision=number))
    context = make.context(*states, evaluations=(EVIDENCE,), tenant=make.tenant(in_flight=0))
    request = make.request(
        request_id=f"req-{number}", deadline_us=draw.of((300_000, 9_000_000)), max_cost_pico=None
    )
    decision = decide(request, POLICY.routes, context, POLICY)
    inputs_json = replay.encode_inputs(
        request=request,
        tenant=context.tenant,
        route_states=states,
        now_us=context.now_us,
        policy_revision=POLICY.revision,
        rate_table_version=make.COURSE_RATES.version,
        evaluations_seq=evaluations_seq,
    )
    decision_json = replay.encode_decision(decision)
    snapshots = [
        CapacitySnapshotRecord(
            **{name: getattr(state.snapshot, name) for name in state.snapshot.__struct_fields__}
        )
        for state in states
        if state.snapshot is not None
    ]
    return [
        *snapshots,
        RouteDecision(
            request_id=request.request_id,
            decided_at_us=context.now_us,
            status=decision.status,
            reason_code=decision.reason_code,
            route_id=decision.route_id,
            tenant_id=request.tenant_id,
            policy_revision=POLICY.revision,
            rate_table_version=make.COURSE_RATES.version,
            code_revision=replay.CODE_REVISION,
            inputs_json=inputs_json,
            decision_json=decision_json,
            digest=replay.digest(inputs_json, decision_json),
        ),
    ]


@pytest.fixture
def ledger(ledger_path: Path, settings) -> Path:
    """A ledger with sixty decisions of several kinds, and the evidence published before them."""
    settings.WEIGHBRIDGE_DB = ledger_path
    with Store.open(ledger_path) as store:
        store.append(configuration_records()).result()
        for number in range(1, DECISIONS + 1):
            store.append(decided(number, evaluations_seq=3)).result()
    return ledger_path


def append(path: Path, *records) -> None:
    with Store.open(path) as store:
        store.append(records).result()


def run(*arguments: str) -> str:
    out = io.StringIO()
    call_command("replay_decisions", *arguments, stdout=out)
    return out.getvalue().strip()


def test_every_decision_of_a_ledger_comes_out_identical(ledger: Path, reader):
    assert run() == (
        "60 decisions replayed: 60 identical, 0 different, 0 not comparable "
        "(decided by another code revision)."
    )
    rows = reader.execute("SELECT DISTINCT coalesce(reason_code, status) FROM route_decision")
    assert {row[0] for row in rows} >= {"accepted", "CAPACITY_SHED", "DEADLINE_INSUFFICIENT"}


def test_one_request_is_replayed_alone_and_an_unknown_one_is_named(ledger: Path):
    assert run("--request", "req-7").startswith("1 decision replayed: 1 identical")
    with pytest.raises(CommandError, match="no decision of request 'req-none'"):
        run("--request", "req-none")


def test_a_decision_that_differs_is_named_with_its_fields_and_the_command_fails(ledger: Path):
    *snapshots, row = decided(61, evaluations_seq=3)
    altered = make.replaced(replay.decode_decision(row.decision_json), http_status=299)
    row = make.replaced(row, decision_json=replay.encode_decision(altered))
    append(ledger, *snapshots, row)
    with pytest.raises(CommandError) as failure:
        run()
    assert failure.value.returncode == 1
    assert str(failure.value).splitlines() == [
        "1 decision differs:",
        "  req-61",
        "    http_status: recorded 299, again 503",
        "    digest: it is not the hash of the recorded inputs and decision",
    ]


def test_a_decision_of_another_code_revision_is_counted_apart_and_is_no_failure(ledger: Path):
    *_, row = decided(61, evaluations_seq=3)
    append(ledger, make.replaced(row, code_revision="policy-0"))
    assert run().startswith("61 decisions replayed: 60 identical, 0 different, 1 not comparable")


def test_inputs_that_name_what_the_ledger_has_not_are_a_difference_that_says_what(
    ledger: Path, reader
):
    *_, row = decided(61, evaluations_seq=3)  # its snapshots are not filed
    append(ledger, row)
    comparison = Replayer(reader).one("req-61")
    assert comparison is not None
    assert comparison.verdict == "different"
    assert comparison.differences == ("inputs: the ledger has no snapshot 61 of route 'fast-v2'",)


def test_evidence_that_came_later_than_the_decision_is_not_read_into_it(ledger: Path, reader):
    failed, *_ = [
        record for record in configuration_records() if isinstance(record, EvaluationResult)
    ]
    append(ledger, make.replaced(failed, evaluation_id="evaluation-2", passed=0))
    result = tally(Replayer(reader).all(), keep=5)
    assert (result.identical, result.different) == (60, 0)


def publish_slower(ledger: Path) -> None:
    """A second policy, whose first token comes 100 ms later."""
    slower = make.replaced(POLICY, revision="policy-slower", first_decode_us=140_000)
    append(
        ledger,
        RoutePolicyRecord(
            revision=slower.revision,
            body_json=msgspec.json.encode(slower).decode(),
            published_at_us=2,
            published_by="test",
        ),
    )


def test_a_period_under_another_policy_is_summed_up_from_the_ledger_alone(ledger: Path, reader):
    """RTE-4: the same requests; nobody moves, and each TTFT is 100 ms later."""
    publish_slower(ledger)
    replayer = Replayer(reader)
    summary = replayer.counterfactual(Other(policy=replayer.policy("policy-slower")))
    before, after = summary.before, summary.after
    assert (summary.decisions, summary.unreadable, summary.other_code) == (DECISIONS, 0, 0)
    assert (before.accepted, before.rejections) == (after.accepted, after.rejections)
    assert before.ttft_p95_us is not None
    assert after.ttft_p95_us == before.ttft_p95_us + 100_000
    lines = run("--policy", "policy-slower").splitlines()
    assert lines[0] == "60 decisions; predicted latencies are of the accepted ones."
    assert lines[-1] == "No request would have gone elsewhere."
    assert "0 decisions" in run("--policy", "policy-slower", "--to", "2020-01-01")


def test_rates_from_a_fleet_file_are_tried_on_past_requests(ledger: Path, tmp_path: Path):
    """CST-5, RTE-4: ten times the prices, before anyone publishes them."""
    dearer = make.rates(make.rate("fast-v2", 20, 80), make.rate("long-context-v4", 40, 120))
    file = tmp_path / "fleet.toml"
    file.write_text(write_fleet(Fleet(rate_tables=(dearer,))))
    cost = next(each for each in run("--rates", str(file)).splitlines() if "cost" in each).split()
    assert Decimal(cost[-1]) == 10 * Decimal(cost[-2]) > 0


def test_a_policy_that_is_neither_published_nor_a_file_is_named(ledger: Path):
    with pytest.raises(CommandError, match="no route policy 'policy-none'"):
        run("--policy", "policy-none")


@pytest.mark.parametrize(
    ("option", "value", "says"),
    [("--from", "yesterday", "write 2026-11-01"), ("--policy", "nope", "manage.py policy list"),
     ("--rates", "nope", "manage.py rates list")],
)  # fmt: skip
def test_an_option_that_cannot_be_used_says_what_can_be_written(ledger, option, value, says):
    with pytest.raises(CommandError, match=says):
        run(option, value)


def test_the_api_tells_one_request_under_another_policy(ledger: Path):
    publish_slower(ledger)
    client = Client(SmallGateway(ledger))
    shown = client.get("/api/v1/requests/req-1/decision?policy=policy-slower").json
    assert shown["policy_revision"] == "policy-slower"
    assert shown["recorded"]["policy_revision"] == POLICY.revision
    ttft_ms = [shown[side]["estimate"]["ttft_ms"] for side in ("recorded", "decision")]
    if ttft_ms[0] is not None:
        assert ttft_ms[1] == ttft_ms[0] + 100
    assert client.get("/api/v1/requests/req-1/decision?policy=none").status == 404
    other = Client(SmallGateway(ledger), tenant="tenant-b")
    assert other.get("/api/v1/requests/req-1/decision?policy=policy-slower").status == 404
