"""ADM-1, ADM-3: of all that is wrong with a request, the first in the order is its code."""

from typing import Any

import pytest

from gateway.policy.admission import decide
from gateway.policy.reasons import REASONS
from gateway.policy.values import TenantState
from tests.policy_factories import (
    NOW_US,
    context,
    course_policy,
    long_route,
    policy,
    rates,
    replaced,
    request,
    route,
    state,
    tenant,
)

FAULTS: tuple[tuple[str, str], ...] = (
    ("nobody", "MODEL_NOT_FOUND"),
    ("no_output", "INVALID_TOKEN_BUDGET"),
    ("over_cap", "TOKEN_BUDGET_EXCEEDED"),
    ("no_slot", "TENANT_CONCURRENCY_LIMIT"),
    ("no_minute", "TENANT_RATE_LIMIT"),
    ("no_capability", "CAPABILITY_UNAVAILABLE"),
    ("other_region", "POLICY_DENIED"),
    ("high_floor", "QUALITY_FLOOR_UNMET"),
    ("ill", "NO_CAPABLE_ROUTE"),
    ("full", "CAPACITY_SHED"),
    ("hurried", "DEADLINE_INSUFFICIENT"),
    ("unpriced", "UNPRICED_MODEL"),
)


def decided(faults: set[str]):
    """A request with these faults, and no other, is decided on."""
    asked: dict[str, Any] = {"max_cost_pico": 10**12}
    if "nobody" in faults:
        asked["logical_model"] = "nobody"
    if "no_output" in faults:
        asked["max_output_tokens"] = 0
    if "over_cap" in faults:
        asked["max_input_tokens"] = 999
    if "no_capability" in faults:
        asked["required_capabilities"] = ("vision",)
    if "other_region" in faults:
        asked["allowed_regions"] = ("us",)
    if "high_floor" in faults:
        asked["quality_floor_milli"] = 990
    if "hurried" in faults:
        asked["deadline_us"] = 300_000
    rules = policy(route(quality_milli=900), long_route(quality_milli=900))
    who: TenantState = tenant(
        in_flight=4 if "no_slot" in faults else 0,
        requests_per_minute=1,
        requests_in_minute=int("no_minute" in faults),
    )
    states = [
        state(name, healthy="ill" not in faults, free_kv_tokens=0 if "full" in faults else 99_999)
        for name in ("fast-v2", "long-context-v4")
    ]
    about = context(*states, tenant=who)
    if "unpriced" in faults:
        about = replaced(about, rates=rates())
    return decide(request(**asked), rules.routes, about, rules)


@pytest.mark.parametrize("first", range(len(FAULTS)))
def test_the_first_fault_in_the_order_of_admission_is_the_code(first: int):
    faults = {name for name, _ in FAULTS[first:]}
    assert decided(faults).reason_code == FAULTS[first][1]


def test_without_any_fault_it_is_accepted():
    assert decided(set()).status == "accepted"


def test_adm_2_the_same_values_give_the_same_bytes():
    """ADM-2: also as equal copies, which share nothing with what is remembered."""
    rules = course_policy()
    copy = replaced(rules, routes=tuple(replaced(each) for each in rules.routes))
    ages = [replaced(context(), now_us=NOW_US), replaced(context(), now_us=NOW_US)]
    assert decide(request(), rules.routes, ages[0], rules) == decide(
        request(), copy.routes, ages[1], copy
    )


@pytest.mark.parametrize("code", sorted(REASONS))
def test_adm_3_each_code_says_what_the_caller_does_and_what_it_means(code: str):
    reason = REASONS[code]
    assert reason.caller_action.endswith(".")
    assert reason.description.endswith(".")
    assert 400 <= reason.http_status < 600
    assert not (reason.retryable and reason.conditional_on)
    assert (reason.http_status in {429, 503}) is reason.retryable
