"""The fleet file: planned, applied whole or not at all, exported so that a plan is empty."""

import contextlib
import re
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given, settings

from gateway.demo.fleet import IDENTITIES
from gateway.fleet_file.document import Fleet as FleetValue
from gateway.fleet_file.document import read_fleet, write_fleet
from gateway.fleet_file.identities import Identity, identity_id, identity_of
from gateway.fleet_file.in_force import fleet_in_force, plan_id
from gateway.operations import anywhere
from gateway.operations.base import Done, Refused
from gateway.operations.fleet import RegisterIdentity
from ledger.queries import configuration as stored
from ledger.queries.objectives import objectives
from ledger.reading import connect_read_only
from ledger.store import Store
from tests.factories import NOW_US
from tests.gateway.fleet_file.fleets import fleets
from tests.gateway.operations.publishing import (
    ADMIN,
    OBJECTIVE,
    OPERATOR,
    actions,
    apply,
    changed,
    done,
    exported,
    in_force,
    refused,
    size,
)


def test_what_is_exported_changes_nothing_when_it_is_applied(fleet):
    said = refused(fleet, apply(exported(fleet)))
    assert said.code == "NO_CHANGE"


def test_a_file_is_applied_in_one_commit_with_one_audit_row_and_twice_is_once(fleet):
    text = changed(
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
    tighter = changed(OBJECTIVE, ("2_000_000", "1_500_000"))
    assert done(fleet, apply(tighter)).after["changes"] == [
        "objectives[fast-first-token].threshold_us: 2000000 -> 1500000"
    ]
    assert refused(fleet, apply(exported(fleet))).code == "NO_CHANGE"


def test_what_was_planned_is_what_is_applied_or_the_asker_is_told(fleet):
    text = changed(exported(fleet), ("in_flight_limit = 96", "in_flight_limit = 12"))
    with contextlib.closing(fleet.reader()) as connection:
        seen = plan_id(connection, text)
    assert refused(fleet, apply(text + "\n# more", plan_id=seen)).code == "MOVED"
    other = changed(text, ("in_flight_limit = 24", "in_flight_limit = 25"))
    done(fleet, apply(other))
    assert refused(fleet, apply(text, plan_id=seen)).code == "MOVED"


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
    text = changed(
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
