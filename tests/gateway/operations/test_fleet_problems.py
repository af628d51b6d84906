"""Fleet files that can't be used: each problem with its line and column, and nothing written."""

import pytest

from gateway.demo.fleet import FAST_V2
from tests.gateway.operations.publishing import (
    OBJECTIVE,
    SECRETS,
    apply,
    assert_nowhere_in,
    changed,
    exported,
    line_of,
    refused,
)


@pytest.mark.parametrize(
    ("changes", "at", "said"),
    [
        (
            (("in_flight_limit = 96", "in_flight_limit = 0"),),
            "in_flight_limit = 0",
            "tenants.support-desk.in_flight_limit: it is 0. It must be positive, or left out for",
        ),
        (
            (("in_flight_limit = 96", 'in_flight_limit = 96\ntime_zone = "Mars/Base"'),),
            'time_zone = "Mars/Base"',
            "tenants.support-desk.time_zone: it 'Mars/Base' is no IANA time zone. Correct it.",
        ),
        (
            (("queue_limit = 64", "queue_limit = 0"), ("route-policy-v1", "v2")),
            "queue_limit = 0",
            "policy.routes[fast-v2].queue_limit: it is 0. Set it to 1 or more.",
        ),
        (
            (("queue_limit = 64", "queue_limt = 64"),),
            "queue_limt = 64",
            "policy.routes[fast-v2].queue_limt: there is no such field. Did you mean queue_limit.",
        ),
        (
            (("sim:llama-3.1-8b-rtx4090", "sim:none"), ("route-policy-v1", "v2")),
            "sim:none",
            "policy.routes[fast-v2].address: no profile 'none'",
        ),
        (
            (("queue_limit = 64", "queue_limit = 32"),),
            'revision = "route-policy-v1"',
            "policy.revision: the policy route-policy-v1 is published with another content",
        ),
        (
            (("output_micro_per_mtok = 8_000_000", "output_micro_per_mtok = 9"),),
            'version = "rates-1"',
            "rate_tables[rates-1].version: the rate table rates-1 is published with another",
        ),
        (
            (("score_milli = 912", "score_milli = 913"),),
            'evaluation_id = "core-chat-v1/fast-2"',
            "evaluations[core-chat-v1/fast-2].evaluation_id: the evaluation core-chat-v1/fast-2 is",
        ),
        (
            (('identity_id = "assist/fast-2"', 'identity_id = "assist/fast-9"'),
             ("route-policy-v1", "v2")),
            'identity_id = "assist/fast-9"',
            "policy.routes[fast-v2].identity_id: the file has no identity of this name.",
        ),
        (
            (("allowed_reasons = [", "allowed_reasons = [7, "),),
            "allowed_reasons = [7, ",
            "policy.edges[fast-v2 -> long-context-v4].allowed_reasons[0]: it is not one of",
        ),
        ((("[policy]", "[policy"),), "[policy", "Expected ']' at the end of a table declaration"),
        ((("[policy]", "[polcy]"),), "[polcy]", "polcy: there is no such field. Did you mean"),
        (
            (('[identities."assist/fast-2"]', "[identities.mid_0]"),),
            "[identities.mid_0]",
            f"identities.mid_0: the id of these eight fields is {FAST_V2.identity_id}.",
        ),
        (
            (('quantization = "fp8"', 'quantization = " "'),),
            'quantization = " "',
            "identities.assist/fast-3.quantization: it is empty. Say `none` where there is none.",
        ),
        (
            (('"assist/fast-2"', '"fast-v2"'),),
            'route_id = "fast-v2"',
            "policy.routes[fast-v2].route_id: a model identity has this name",
        ),
    ],
)  # fmt: skip
def test_a_file_that_cant_be_used_is_refused_with_line_and_column(fleet, changes, at, said):
    text = exported(fleet)
    policy = text.index("[policy]") if "fast-9" in at else 0  # not the evaluation before it
    text = text[:policy] + changed(text[policy:], *changes)
    answer = refused(fleet, apply(text))
    assert answer.code == "INVALID_FLEET"
    where = f"line {line_of(text, at)}, column "
    assert any(each.startswith(where) and said in each for each in answer.problems), answer.problems


def test_a_fallback_circle_in_a_file_is_refused_with_its_line(fleet):
    """FBK-1"""
    text = (
        changed(exported(fleet), ("route-policy-v1", "v2"))
        + """
[[policy.edges]]
from_route = "long-context-v4"
to_route = "fast-v2"
allowed_reasons = ["overloaded"]
required_evaluation_suite = "core-chat-v1"
quality_floor_milli = 0
"""
    )
    (problem,) = refused(fleet, apply(text)).problems
    closing = text[: text.rindex("[[policy.edges]]")].count("\n") + 1
    assert problem == (
        f"line {closing}, column 1: policy.edges[long-context-v4 -> fast-v2]: they go in a "
        "circle: fast-v2 -> long-context-v4 -> fast-v2. Drop one of them."
    )


def test_everything_that_is_wrong_is_told_in_the_order_of_the_file(fleet):
    text = changed(
        exported(fleet),
        ("in_flight_limit = 96", "in_flight_limit = 0"),
        ("route-policy-v1", "v2"),
        ("queue_limit = 64", "queue_limit = 0"),
        ("queue_limit = 64", "queue_limit = -1"),
    )
    problems = refused(fleet, apply(text)).problems
    lines = [int(each.removeprefix("line ").split(",")[0]) for each in problems]
    assert len(lines) == 3
    assert lines == sorted(lines)


@pytest.mark.parametrize("secret", SECRETS)
def test_a_file_with_a_credential_is_refused_and_it_is_nowhere_afterwards(fleet, secret):
    """SEC-1: credentials are names of environment variables, never values."""
    token = secret.split()[-1]
    text = exported(fleet)
    secret_ones = [
        changed(text, ("sim:llama-3.1-8b-rtx4090", f"openai:https://h/v1?model=m&key={token}")),
        changed(text, ("sim:llama-3.1-8b-rtx4090", f"openai:https://u:{token}@h/v1?model=m")),
        changed(text, ('region = "eu-west"', f'region = "eu-west"\napi_key = "{token}"')),
        changed(text, ('"prompt-1"', f'"{secret}"')),
    ]
    for each in secret_ones:
        said = refused(fleet, apply(each))
        assert said.code == "INVALID_FLEET"
        assert any("credential" in problem for problem in said.problems)
        assert token not in repr(said)
    assert_nowhere_in(fleet.ledger.parent, token)


def test_an_objective_that_could_never_alert_is_refused_with_its_line(fleet):
    """SLO-5"""
    text = changed(OBJECTIVE, ("990_000", "1_000_000"))
    (problem,) = refused(fleet, apply(text)).problems
    assert problem.startswith("line 2, column 1: objectives.fast-first-token: TARGET_IMPOSSIBLE: ")


def test_what_a_file_has_twice_is_told(fleet):
    table = """
[[rate_tables]]
version = "rates-9"
effective_from_us = 2096-01-01T00:00:00Z
currency = "units"
[[rate_tables.rates]]
key = "k"
input_micro_per_mtok = 1
output_micro_per_mtok = 1
cached_input_micro_per_mtok = 1
"""
    evidence = """
[[evaluations]]
evaluation_id = "e"
suite = "s"
identity_id = "mid_x"
score_milli = 1001
passed = true
measured_at_us = 0
evidence = "e"
"""
    problems = refused(fleet, apply(table + table + evidence + evidence)).problems
    twice = (
        "line 13, column 1: rate_tables[rates-9].version: the file has it twice. Keep one of them."
    )
    assert twice in problems
    assert any("evaluations[e].evaluation_id: the file has it twice" in p for p in problems)
    assert any("evaluations[e].score_milli: it is 1001." in p for p in problems)
    assert any("evaluations[e].identity_id: no such model identity" in p for p in problems)


def test_a_budget_for_a_tenant_whose_routes_have_no_price_is_refused(fleet):
    """CST-7: prices and budgets of one file are judged together."""
    text = exported(fleet)
    first = text.index("[[rate_tables.rates]]")
    second = text.index("[[rate_tables.rates]]", first + 1)
    without = changed(
        text[:first] + text[second:],
        ('version = "rates-1"', 'version = "rates-2"'),
        (text[text.index("effective_from_us"):].split("\n")[0],
         "effective_from_us = 2096-01-01T00:00:00Z"),
    )  # fmt: skip
    problems = refused(fleet, apply(without)).problems
    assert any("route fast-v2 has no price in rates-2" in each for each in problems)
