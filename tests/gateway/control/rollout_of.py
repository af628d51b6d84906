"""A release with its evidence, a plan, and what its arms did in a window."""

import math
import random
from itertools import count
from typing import Any

import msgspec

from gateway.demo.fleet import FAST_V3
from gateway.operations.releases import DeclareRelease, ImportEvaluations
from ledger.release_gate import CHECKS, Requirement
from ledger.rollouts import Condition, Plan
from tests.gateway.control.ledger_of import MINUTE_US, perform
from tests.ledger.receipts import receipt

RELEASE = "fast-v3-rollout"  # the demonstration's policy has a canary of this name
ROLLOUT = "fast-v3/1"
WINDOW_US = 10 * MINUTE_US
_numbers = count(1)


def evaluations(missing: str = "", failed: str = "") -> str:
    """The five suites' results of the canary's identity, as a file."""
    return msgspec.json.encode(
        [
            {
                "evaluation_id": f"{check}/1",
                "suite": f"suite-{check}",
                "identity_id": FAST_V3.identity_id,
                "score_milli": 930,
                "passed": check != failed,
                "measured_at": "2026-07-01T12:00:00Z",
                "evidence": f"runs/{check}",
            }
            for check in CHECKS
            if check != missing
        ]
    ).decode()


def release() -> DeclareRelease:
    return DeclareRelease(
        release_id=RELEASE,
        identity_id=FAST_V3.identity_id,
        requirements=tuple(
            Requirement(check=check, suite=f"suite-{check}", floor_milli=900) for check in CHECKS
        ),
        reason="the quantized build",
    )


def plan(**changes) -> Plan:
    fields: dict[str, Any] = {
        "rollout_id": ROLLOUT,
        "release_id": RELEASE,
        "logical_model": "assist",
        "baseline_routes": ("fast-v2", "fast-us-v2"),
        "canary_routes": ("fast-v3",),
        "conditions": (
            Condition(metric="ttft_p99", limit_permille=100),
            Condition(metric="valid_completion", limit_permille=30),
        ),
        "steps_permille": (300, 500),
        "window_us": WINDOW_US,
    }
    return Plan(**(fields | changes))


def ready(fleet, at_us: int) -> None:
    """The ledger with the release declared and its gate open."""
    perform(fleet, ImportEvaluations(text=evaluations()), at_us)
    perform(fleet, release(), at_us)


def arm_receipts(start_us, baseline=1_400, canary=600, *, slow=0.0, speed=1.0, seed=1):
    """Both arms' receipts of a window: log-normal TTFT of sigma 0.3, so many of them thrice as
    slow in the canary, and all of the canary's faster end to end by `speed`."""
    drawn = random.Random(seed)
    made = []
    for number in range(baseline + canary):
        is_canary = number >= baseline
        ttft_us = int(300_000 * math.exp(drawn.gauss(0, 0.3)))
        if is_canary and drawn.random() < slow:
            ttft_us *= 3
        e2e_us = int(ttft_us + 4_000_000 * (speed if is_canary else 1.0))
        made.append(
            receipt(
                request_id=f"req_{next(_numbers):08}",
                logical_model="assist",
                release_id=RELEASE,
                arm="canary" if is_canary else "baseline",
                route_id="fast-v3" if is_canary else "fast-v2",
                first_token_us=ttft_us,
                queue_us=20_000,
                e2e_us=e2e_us,
                accepted_at_us=start_us + number * WINDOW_US // (baseline + canary),
            )
        )
    return made
