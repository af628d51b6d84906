"""The fleet file: planned, applied whole or not at all, exported; each problem with its place."""

import contextlib
import re
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings

from gateway.demo.fleet import FAST_V2, IDENTITIES
from gateway.fleet_file.document import Fleet as FleetValue
from gateway.fleet_file.document import read_fleet, write_fleet
from gateway.fleet_file.identities import Identity, identity_id, identity_of
from gateway.fleet_file.in_force import fleet_in_force, plan_id
from gateway.operations import anywhere
from gateway.operations.base import Done, Refused
from gateway.operations.fleet import ApplyFleet, RegisterIdentity
from ledger.queries import configuration as stored
from ledger.queries.objectives import objectives
from ledger.reading import connect_read_only
from ledger.store import Store
from tests.factories import NOW_US
from tests.gateway.fleet_file.fleets import fleets
from tests.gateway.operations.publishing import (
    ADMIN,
    OPERATOR,
    SECRETS,
    actions,
    assert_nowhere_in,
    done,
    in_force,
    refused,
    size,
)
from tests.server_fixtures import Fleet


def exported(fleet: Fleet) -> str:
    with contextlib.closing(fleet.reader()) as connection:
        return write_fleet(fleet_in_force(connection, 2 * NOW_US))


def apply(text: str, **fields) -> ApplyFleet:
    return ApplyFleet(text=text, **({"reason": "a test"} | fields))


def replaced(text: str, *changes: tuple[str, str]) -> str:
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new, 1)
    return text


def line_of(text: str, part: str) -> int:
    return next(i for i, line in enumerate(text.splitlines(), 1) if part in line)


def test_what_is_exported_changes_nothing_when_it_is_applied(fleet):
    said = refused(fleet, apply(exported(fleet)))
    assert said.code == "NO_CHANGE"


def test_a_file_is_applied_in_one_commit_with_one_audit_row_and_twice_is_once(fleet):
    text = replaced(
        exported(fleet),
        ("in_flight_limit = 96", "in_flight_limit = 12"),
        ('revision = "route-policy-v1"', 'revision = "v2"'),
        ("queue_limit = 64", "queue_limit = 32"),
    )
    text += """
[tenants.newcomers]
in_flight_limit = 3

[identities.new]
logical_model = "assist"
weights_revision = "w-9"
tokenizer_revision = "o200k_base/chat-1"
runtime_name = "weighbridge-simulator"
runtime_revision = "sim-9"
quantization = "fp8"
serving_config_revision = "fast-9"
prompt_policy_revision = "prompt-1"

[[evaluations]]
evaluation_id = "new-1"
suite = "core-chat-v1"
identity_id = "new"
score_milli = 905
passed = true
measured_at_us = 2026-11-01T08:00:00Z
evidence = "run 9"
"""
    before = size(fleet)
    applied = done(fleet, apply(text))
    assert applied.summary == "Applied the fleet file: 6 changes, 5 rows."
    assert applied.after["changes"] == [
        "identities[new]: added",
        "tenants[newcomers]: added",
        "tenants[support-desk].in_flight_limit: 96 -> 12",
        "evaluations[new-1]: added",
        "policy.revision: route-policy-v1 -> v2",
        "policy.routes[fast-v2].queue_limit: 64 -> 32",
    ]
    assert size(fleet) == before + 6  # with the one audit row
    assert in_force(fleet) == "v2"
    with contextlib.closing(fleet.reader()) as connection:
        (action,) = actions(connection)
        tenant = stored.tenant(connection, "newcomers")
    assert (action.action, action.subject) == ("apply_fleet", "fleet")
    assert re.fullmatch("sha256:[0-9a-f]{64}", action.evidence)
    assert tenant is not None
    assert refused(fleet, apply(text)).code == "NO_CHANGE"
    assert refused(fleet, apply(exported(fleet))).code == "NO_CHANGE"


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
    text = text[:policy] + replaced(text[policy:], *changes)
    answer = refused(fleet, apply(text))
    assert answer.code == "INVALID_FLEET"
    where = f"line {line_of(text, at)}, column "
    assert any(each.startswith(where) and said in each for each in answer.problems), answer.problems


def test_a_fallback_circle_in_a_file_is_refused_with_its_line(fleet):
    """FBK-1"""
    text = (
        replaced(exported(fleet), ("route-policy-v1", "v2"))
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
    text = replaced(
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
    changed = [
        replaced(text, ("sim:llama-3.1-8b-rtx4090", f"openai:https://h/v1?model=m&key={token}")),
        replaced(text, ("sim:llama-3.1-8b-rtx4090", f"openai:https://u:{token}@h/v1?model=m")),
        replaced(text, ('region = "eu-west"', f'region = "eu-west"\napi_key = "{token}"')),
        replaced(text, ('"prompt-1"', f'"{secret}"')),
    ]
    for each in changed:
        said = refused(fleet, apply(each))
        assert said.code == "INVALID_FLEET"
        assert any("credential" in problem for problem in said.problems)
        assert token not in repr(said)
    assert_nowhere_in(fleet.ledger.parent, token)


OBJECTIVE = """
[objectives.fast-first-token]
title = "The first token of the long model within 2 s"
indicator = "ttft"
target_ppm = 990_000
threshold_us = 2_000_000
period_us = 2_592_000_000_000
selector = { logical_models = ["assist-long"], input_tokens = [0, 4096] }
action = { kind = "open_incident" }
"""


def test_objectives_are_declared_with_their_default_rules_and_counted_anew_when_they_change(fleet):
    """SLO-5, SLO-9: an objective is part of the fleet file."""
    text = exported(fleet)
    assert "[objectives.interactive-ttft]" in text
    applied = done(fleet, apply(OBJECTIVE))
    assert applied.after["changes"] == ["objectives[fast-first-token]: added"]
    assert refused(fleet, apply(OBJECTIVE)).code == "NO_CHANGE"
    with contextlib.closing(fleet.reader()) as connection:
        (declared,) = [each for each in objectives(connection) if each.slo_id == "fast-first-token"]
    assert [str(rule.factor) for rule in declared.rules] == ["72/5", "6", "3"]
    tighter = replaced(OBJECTIVE, ("2_000_000", "1_500_000"))
    assert done(fleet, apply(tighter)).after["changes"] == [
        "objectives[fast-first-token].threshold_us: 2000000 -> 1500000"
    ]
    assert refused(fleet, apply(exported(fleet))).code == "NO_CHANGE"


def test_an_objective_that_could_never_alert_is_refused_with_its_line(fleet):
    """SLO-5"""
    text = replaced(OBJECTIVE, ("990_000", "1_000_000"))
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


def test_what_was_planned_is_what_is_applied_or_the_asker_is_told(fleet):
    text = replaced(exported(fleet), ("in_flight_limit = 96", "in_flight_limit = 12"))
    with contextlib.closing(fleet.reader()) as connection:
        seen = plan_id(connection, text)
    assert refused(fleet, apply(text + "\n# more", plan_id=seen)).code == "MOVED"
    other = replaced(text, ("in_flight_limit = 24", "in_flight_limit = 25"))
    done(fleet, apply(other))
    assert refused(fleet, apply(text, plan_id=seen)).code == "MOVED"


def test_a_budget_for_a_tenant_whose_routes_have_no_price_is_refused(fleet):
    """CST-7: prices and budgets of one file are judged together."""
    text = exported(fleet)
    first = text.index("[[rate_tables.rates]]")
    second = text.index("[[rate_tables.rates]]", first + 1)
    without = replaced(
        text[:first] + text[second:],
        ('version = "rates-1"', 'version = "rates-2"'),
        (text[text.index("effective_from_us"):].split("\n")[0],
         "effective_from_us = 2096-01-01T00:00:00Z"),
    )  # fmt: skip
    problems = refused(fleet, apply(without)).problems
    assert any("route fast-v2 has no price in rates-2" in each for each in problems)


def test_an_identity_is_registered_once_by_its_eight_fields(fleet):
    assert [identity_id(identity_of(each)) for each in IDENTITIES] == [
        each.identity_id for each in IDENTITIES
    ]
    new = Identity(
        logical_model="m", weights_revision="w", tokenizer_revision="t", runtime_name="r",
        runtime_revision="1", quantization="none", serving_config_revision="s",
        prompt_policy_revision="p",
    )  # fmt: skip
    said = done(fleet, RegisterIdentity(identity=new, reason="r"), actor=OPERATOR)
    assert said.subject == identity_id(new)
    assert refused(fleet, RegisterIdentity(identity=new, reason="r")).code == "NO_CHANGE"


@settings(max_examples=20)
@given(fleets())
def test_any_fleet_is_exported_so_that_a_plan_of_it_is_empty(ledger_template: Path, fleet):
    """export -> plan of the export = no change, on an empty ledger and over again."""
    text = write_fleet(fleet)
    assert read_fleet(text).problems == ()
    assert read_fleet(text).fleet == fleet
    with TemporaryDirectory() as folder:
        ledger = Path(folder) / "ledger.sqlite3"
        shutil.copyfile(ledger_template, ledger)
        applied = anywhere.perform(ledger, apply(text), ADMIN)
        assert isinstance(applied, Done), applied
        with contextlib.closing(connect_read_only(ledger)) as connection:
            out = fleet_in_force(connection, 2 * NOW_US)
        assert _by_id(out) == _by_id(fleet)
        for each in (text, write_fleet(out)):
            again = anywhere.perform(ledger, apply(each), ADMIN)
            assert isinstance(again, Refused)
            assert again.code == "NO_CHANGE"


def _by_id(fleet: FleetValue) -> tuple:
    """A fleet without the names that a file gives identities, which no ledger keeps."""
    return (
        fleet.tenants,
        {identity_id(each) for each in fleet.identities.values()},
        fleet.rate_tables,
        sorted(fleet.evaluations, key=lambda each: each.evaluation_id),
        fleet.policy,
    )


def test_nothing_is_half_written_where_the_ledger_refuses_one_row(fleet):
    """All or nothing: what is published meanwhile under the same name refuses the whole."""
    text = replaced(
        exported(fleet),
        ("in_flight_limit = 96", "in_flight_limit = 12"),
        ("route-policy-v1", "v2"),
        ("queue_limit = 64", "queue_limit = 0"),
    )
    assert refused(fleet, apply(text)).code == "INVALID_FLEET"
    with Store.open(fleet.ledger), contextlib.closing(fleet.reader()) as connection:
        tenant = stored.tenant(connection, "support-desk")
        assert tenant is not None
        assert '"in_flight_limit":96' in tenant.body_json
