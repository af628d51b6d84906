"""What the control plane did in the sample console: windows, actions, a release and its rollout."""

import msgspec

from gateway.control.rolling import Rollout
from ledger import records as r
from ledger import rollouts
from ledger.release_gate import CHECKS, Release, Requirement
from ledger.rollouts import Condition, Plan, Progress

STEP_US = 300_000_000
WINDOW_US = 900_000_000
SLO = "interactive-queue"
WINDOWS = 48
CALM, ALERTING = 40, 44  # windows before the action, and before the last ones
ROLLOUT = "assistant-v3/1"
PROPOSED = (("interactive-ttft", "limit_prefill", "fast-v2"), ("batch-queue", "advise_scaling", ""))


def control_records(end_us: int, release_id: str) -> list[r.Record]:
    """All of it, ending at the last whole five minutes before `end_us`."""
    last_us = end_us - end_us % STEP_US
    return [
        *_evaluations(last_us),
        *_actions(last_us),
        *_release(last_us, release_id),
        *_rollout(last_us, release_id),
    ]


def _evaluations(last_us: int) -> list[r.SloEvaluation]:
    found = []
    for place in range(WINDOWS):
        window_us = last_us - (WINDOWS - 1 - place) * STEP_US
        state = "OK" if place < CALM else ("WATCH" if place < ALERTING else "SHED")
        if place in (7, 8):
            state = "NO_DATA"
        alerts = state == "SHED"
        rules = [
            {
                "rule": "page-fast",
                "state": "ALERT" if alerts else "QUIET",
                "guard": alerts,
                "long": [window_us - 3_600_000_000, 900 - 80 * alerts, 900],
                "short": [window_us - STEP_US, 75 - 8 * alerts, 75],
            }
        ]
        found.append(
            r.SloEvaluation(
                slo_id=SLO,
                end_us=window_us,
                revision=0,
                slo_revision=1,
                start_us=window_us - STEP_US,
                state=state,
                good=21_000 - place * 4,
                valid=0 if state == "NO_DATA" else 21_600,
                rules_json=msgspec.json.encode(rules).decode(),
                calm_windows=0 if alerts else place,
                evaluated_at_us=window_us + 150_000_000,
                episode=f"{SLO}/{last_us - 3 * STEP_US}" if alerts else None,
            )
        )
    return found


def _actions(last_us: int) -> list[r.ControlAction]:
    shared = {"actor": "evaluator", "before_json": "{}", "after_json": "{}"}
    began_us = last_us - 3 * STEP_US
    return [
        r.ControlAction(
            action="slo.shed_priority",
            subject="batch",
            acted_at_us=began_us + 150_000_000,
            reason="ALERT",
            evidence="page-fast 8.33 and 8.33 over 6",
            episode=f"{SLO}/{began_us}",
            phase="applied",
            **shared,
        ),
        r.ControlAction(
            action="slo.cut_route",
            subject="fast-v3",
            acted_at_us=last_us,
            reason="ALERT",
            evidence="page-slow 3.10 and 3.40 over 3",
            episode=f"valid-completion/{last_us}",
            phase="proposed",
            **shared,
        ),
        *(
            r.ControlAction(
                action=f"slo.{kind}",
                subject=target,
                acted_at_us=last_us - STEP_US,
                reason="ALERT",
                evidence="page-slow 6.20 and 6.40 over 6",
                episode=f"{slo_id}/{last_us - STEP_US}",
                phase="proposed",
                **shared,
            )
            for slo_id, kind, target in PROPOSED
        ),
    ]


def _release(last_us: int, release_id: str) -> list[r.Record]:
    suites = [Requirement(check=check, suite=f"suite-{check}", floor_milli=900) for check in CHECKS]
    release = Release(
        release_id=release_id,
        identity_id="mid_b04e",
        logical_model="assistant",
        weights_revision="fast-v3-weights",
        tokenizer_revision="tokenizer-3",
        runtime_revision="simulated engine 1",
        quantization="fp8",
        serving_config_revision="serving-4",
        prompt_policy_revision="prompts-2",
        route_policy_revision="policy-7",
        requirements=tuple(suites),
    )
    results = [
        r.EvaluationResult(
            evaluation_id=f"{check}/1",
            suite=f"suite-{check}",
            identity_id="mid_b04e",
            score_milli=930,
            passed=1,
            measured_at_us=last_us - 10 * WINDOW_US,
            evidence=f"runs/{check}",
        )
        for check in CHECKS[:-1]
    ]
    record = r.ReleaseRecord(
        release_id=release_id,
        identity_id=release.identity_id,
        body_json=msgspec.json.encode(release).decode(),
        declared_at_us=last_us - 9 * WINDOW_US,
        declared_by="console:grace",
    )
    return [*results, record]


def _rollout(last_us: int, release_id: str) -> list[r.Record]:
    plan = Plan(
        rollout_id=ROLLOUT,
        release_id=release_id,
        logical_model="assistant",
        baseline_routes=("fast-v2",),
        canary_routes=("fast-v3",),
        conditions=(
            Condition(metric="ttft_p99", limit_permille=100),
            Condition(metric="valid_completion", limit_permille=30),
        ),
        steps_permille=(300, 500),
    )
    body = rollouts.encode(plan)
    begun_us = last_us - 8 * WINDOW_US
    declared = r.RolloutRecord(
        rollout_id=ROLLOUT,
        release_id=release_id,
        plan_json=body,
        plan_hash=rollouts.plan_hash(body),
        declared_at_us=begun_us,
        declared_by="console:grace",
    )
    verdicts = ("", "PASS", "INCONCLUSIVE", "FAIL", "PASS", "INCONCLUSIVE")
    steps = [
        _step(Rollout(plan=plan, progress=Progress(), number=number + 1), verdict, begun_us)
        for number, verdict in enumerate(verdicts)
    ]
    return [declared, *steps]


def _step(at: Rollout, verdict: str, begun_us: int) -> r.RolloutEvaluation:
    number, start_us = at.number, begun_us + (at.number - 2) * WINDOW_US
    progress = Progress(
        started_us=begun_us,
        windows=number - 1,
        failed=(("ttft_p99", 1),) if verdict == "FAIL" else (),
    )
    statistics = {
        "tested": [
            {
                "metric": "ttft_p99",
                "verdict": verdict,
                "statistics": {
                    "baseline_count": 2_104,
                    "canary_count": 897,
                    "exceeding": 31 if verdict == "FAIL" else 6,
                    "uncompared": 0,
                    "p_value": 0.0021 if verdict == "FAIL" else 0.41,
                },
            },
            {
                "metric": "valid_completion",
                "verdict": "PASS" if verdict == "FAIL" else verdict,
                "statistics": {
                    "baseline_count": 2_104,
                    "canary_count": 897,
                    "baseline_share": 0.981,
                    "canary_share": 0.978,
                    "low": -0.014,
                    "high": 0.008,
                    "margin": 0.03,
                },
            },
        ],
        "share": {
            "canary_count": 897,
            "total_count": 3_001,
            "planned": "3/10",
            "chi_square": 0.017,
            "p_value": 0.896,
            "blocked": False,
        },
        "baseline_requests": 2_104,
        "canary_requests": 897,
    }
    windowed = number > 1
    return r.RolloutEvaluation(
        rollout_id=ROLLOUT,
        number=number,
        kind="window" if windowed else "start",
        start_us=start_us if windowed else begun_us,
        end_us=start_us + WINDOW_US if windowed else begun_us,
        verdict=verdict,
        decision="continue" if windowed else "start",
        reason=("FAILED_ONCE" if verdict == "FAIL" else "PASSED") if windowed else "first share",
        statistics_json=msgspec.json.encode(statistics).decode() if windowed else "{}",
        progress_json=msgspec.json.encode(progress).decode(),
        policy_revision="policy-7",
        evaluated_at_us=start_us + WINDOW_US + 150_000_000 if windowed else begun_us,
        actor="evaluator" if windowed else "console:grace",
    )
