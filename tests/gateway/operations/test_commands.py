"""`manage.py fleet`, `policy` and `operate`: what they print, where, and how they exit."""

import io
import json
import re
import subprocess
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from gateway.demo.fleet import policy
from gateway.fleet_file.document import read_fleet
from gateway.fleet_file.named import named
from gateway.fleet_file.toml_text import written
from gateway.operations.registry import described
from tests import forked
from tests.gateway.operations.publishing import in_force, size
from tests.ledger.commands import run
from tests.policy_factories import edge, replaced
from tests.server import ROOT, environment_of
from tests.server_fixtures import Fleet

DOCS = ROOT / "docs"


@pytest.fixture
def commanded(fleet: Fleet, settings) -> Fleet:
    """The demonstration's fleet, as the ledger that commands find."""
    settings.WEIGHBRIDGE_DB = fleet.ledger
    return fleet


def told(command: str, *arguments: str) -> str:
    """Its standard output; that it exits 0 with nothing on stderr is asserted here."""
    status, out, err = run(command, *arguments)
    assert (status, err) == (0, "")
    return out


def refused(command: str, *arguments: str) -> tuple[str, str]:
    """(the error, what is on stderr before it) of a command that a shell would see exit with 1."""
    errors = io.StringIO()
    with pytest.raises(CommandError) as error:
        call_command(command, *arguments, stdout=io.StringIO(), stderr=errors)
    assert error.value.returncode == 1
    return str(error.value), errors.getvalue()


def saved(folder: Path, text: str, name: str = "fleet.toml") -> str:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_plan_shows_the_difference_and_exits_2_apply_makes_it_so_and_then_nothing_is_left(
    commanded, tmp_path
):
    text = told("fleet", "export")
    same = saved(tmp_path, text)
    assert told("fleet", "plan", same) == "No change: the fleet is as the file says.\n"
    changed = saved(tmp_path, text.replace("in_flight_limit = 96", "in_flight_limit = 12"))
    before = size(commanded)
    status, out, err = run("fleet", "plan", changed)
    assert (status, err) == (2, "")
    shown, plan = out.splitlines()
    assert shown == "tenants[support-desk].in_flight_limit: 96 -> 12"
    assert re.fullmatch("plan [0-9a-f]{16}", plan)
    assert size(commanded) == before
    arguments = ["fleet", "apply", changed, "--reason", "quieter", "--plan", plan.split()[1]]
    assert told(*arguments).splitlines() == [
        shown,
        "Applied the fleet file: 1 change, 1 rows.",
    ]
    assert told("fleet", "plan", changed) == "No change: the fleet is as the file says.\n"
    assert told("fleet", "apply", changed, "--reason", "again").startswith("No change")


def test_a_plan_that_is_no_longer_true_is_not_applied(commanded, tmp_path):
    text = told("fleet", "export").replace("in_flight_limit = 96", "in_flight_limit = 12")
    path = saved(tmp_path, text)
    plan = run("fleet", "plan", path)[1].split()[-1]
    other = saved(tmp_path, text.replace("in_flight_limit = 24", "in_flight_limit = 23"), "b.toml")
    told("fleet", "apply", other, "--reason", "first")
    Path(path).write_text(text.replace("in_flight_limit = 24", "in_flight_limit = 22"))
    error, _ = refused("fleet", "apply", path, "--reason", "second", "--plan", plan)
    assert error.startswith("MOVED: ")


def test_problems_come_with_line_and_column_on_stderr_and_nothing_is_written(commanded, tmp_path):
    text = told("fleet", "export").replace("in_flight_limit = 96", "in_flight_limit = 0")
    before = size(commanded)
    for arguments in (("plan",), ("apply", "--reason", "r")):
        path = saved(tmp_path, text)
        error, problems = refused("fleet", arguments[0], path, *arguments[1:])
        assert error == "The fleet file can't be used; nothing was written."
        line = text.split("in_flight_limit = 0")[0].count("\n") + 1
        assert problems == (
            f"line {line}, column 1: tenants.support-desk.in_flight_limit: it is 0. It must be "
            "positive, or left out for no limit.\n"
        )
    assert size(commanded) == before
    broken = saved(tmp_path, "[policy\n")
    assert "line 1, column 8: Expected ']'" in refused("fleet", "plan", broken)[1]
    missing = str(tmp_path / "none.toml")
    assert refused("fleet", "plan", missing)[0].endswith(
        "can't be read: No such file or directory."
    )


def test_the_example_of_the_document_is_a_fleet_that_a_new_ledger_takes(
    ledger_path, settings, tmp_path
):
    settings.WEIGHBRIDGE_DB = ledger_path
    (example,) = re.findall(r"```toml\n(.*?)```", (DOCS / "fleet.md").read_text(), re.DOTALL)
    path = saved(tmp_path, example)
    status, out, err = run("fleet", "plan", path)
    assert (status, err) == (2, "")
    assert out.splitlines()[:-1] == [
        "identities[fast]: added",
        "identities[spare]: added",
        "tenants[support]: added",
        "rate_tables[rates-1]: added",
        "evaluations[core-chat/spare-1]: added",
        "objectives[first-token]: added",
        "policy: added",
    ]
    told("fleet", "apply", path, "--reason", "a start")
    assert told("fleet", "plan", path).startswith("No change")
    assert read_fleet(told("fleet", "export")).problems == ()


def test_a_policy_is_checked_drafted_compared_published_and_returned_to(commanded, tmp_path):
    file = saved(tmp_path, written(named(replaced(policy(), revision="v2", retry_after_ms=7))))
    assert told("policy", "check", file) == "v2 can be published.\n"
    assert told("policy", "draft", file, "--note", "slower") == (
        "Kept revision 1 of the draft v2.\n"
    )
    assert told("policy", "diff", "route-policy-v1", "v2").splitlines() == [
        "retry_after_ms: 1000 -> 7",
        "revision: route-policy-v1 -> v2",
    ]
    assert told("policy", "publish", "v2", "--reason", "calmer").startswith("Published v2: ")
    assert in_force(commanded) == "v2"
    assert told("policy", "show", "v2").startswith('revision = "v2"\nretry_after_ms = 7\n')
    told("policy", "return", "route-policy-v1", "--as", "v3", "--reason", "not calmer")
    names = [line.split()[0] for line in told("policy", "list").splitlines()]
    assert names == ["route-policy-v1", "v2", "v3", "v2"]  # the last is the draft


def test_a_checked_policy_says_what_is_worth_a_look_and_can_be_published(commanded, tmp_path):
    unproven = replaced(policy().edges[0], required_evaluation_suite="core-chat-v9")
    text = written(named(replaced(policy(), revision="v2", edges=(unproven,))))
    warning, last = told("policy", "check", saved(tmp_path, text)).splitlines()
    assert warning.startswith("worth a look: edges[fast-v2 -> long-context-v4]: long-context")
    assert last == "v2 can be published."


def test_a_policy_file_with_a_fallback_circle_is_refused_with_its_line(commanded, tmp_path):
    """FBK-1"""
    circle = (edge("fast-v2", "long-context-v4"), edge("long-context-v4", "fast-v2"))
    text = written(named(replaced(policy(), revision="v2", edges=circle)))
    error, problems = refused("policy", "check", saved(tmp_path, text))
    assert error.endswith("can't be used; nothing was written.")
    line = text[: text.rindex("[[edges]]")].count("\n") + 1
    told_at = f"line {line}, column 1: edges[long-context-v4 -> fast-v2]: they go in a circle: "
    assert told_at in problems
    file = saved(tmp_path, text)
    error, problems = refused("policy", "publish", "v2", "--file", file, "--reason", "r")
    assert told_at in problems
    assert in_force(commanded) == "route-policy-v1"
    assert refused("policy", "show", "v9")[0] == (
        "There is no policy or draft 'v9'; see `policy list`."
    )


def test_any_operation_runs_from_the_command_and_its_refusal_is_on_stderr(commanded):
    fields = json.dumps({"tenant_id": "newcomers", "quota": {"in_flight_limit": 2}})
    assert told("operate", "set_tenant", "--json", fields, "--reason", "they start") == (
        "Set the quota of newcomers, revision 1.\n"
    )
    made = told("operate", "create_key", "--json", '{"tenant_id": "newcomers"}', "--reason", "r")
    assert made.splitlines()[1].startswith("wb_")
    assert refused("operate", "set_tenant", "--json", fields)[0].startswith("REASON_MISSING: ")
    assert refused("operate", "no_such")[0].startswith("NO_SUCH_OPERATION: ")
    assert refused("operate", "set_tenant", "--json", "{")[0].startswith("--json is no JSON")
    assert refused("operate", "set_tenant", "--json", "[]")[0].startswith("--json has to be an")
    assert refused("operate", "set_tenant", "--json", '{"x": 1}')[0].startswith("INVALID_REQUEST: ")
    bad = json.dumps({"revision": "v2", "policy": {"models": [], "routes": [{}]}, "based_on": ""})
    error, problems = refused("operate", "publish_policy", "--json", bad, "--reason", "r")
    assert error.startswith("INVALID_POLICY: ")
    assert "routes[0]: route_id is missing. Add it." in problems.splitlines()


def test_a_shell_sees_0_for_done_and_1_for_refused(fleet):
    def shell(*arguments: str, given: str = "") -> "subprocess.CompletedProcess[str]":
        command = ("manage.py", "operate", *arguments)
        return forked.run(command, env=environment_of(fleet.ledger), given=given)

    fields = '{"tenant_id": "newcomers", "quota": {"in_flight_limit": 2}}'
    made = shell("set_tenant", "--json", "-", "--reason", "r", given=fields)
    assert (made.returncode, made.stdout) == (0, "Set the quota of newcomers, revision 1.\n")
    again = shell("set_tenant", "--json", fields, "--reason", "r")
    assert (again.returncode, again.stdout) == (1, "")
    assert again.stderr == (
        "CommandError: NO_CHANGE: newcomers has this quota already; nothing was changed.\n"
    )
    listed = shell("--list")
    assert listed.returncode == 0
    assert set(re.findall(r"^(\w+) \(", listed.stdout, re.MULTILINE)) == set(described())


def test_the_list_of_operations_says_what_a_field_can_be_where_only_certain_texts_are():
    out = io.StringIO()
    call_command("operate", "--list", stdout=out)
    lines = out.getvalue().splitlines()
    assert "    scopes: inference, receipts, reports, operate, administer" in lines
    assert "    became (required): cancelled, completed, failed, not_run, written_off" in lines
    assert "    tenant_id (required)" in lines


def test_every_operation_is_in_the_documents_table_with_its_role():
    table = (DOCS / "operations.md").read_text()
    documented = {
        name: role
        for names, role in re.findall(r"^\| (`[^|]+) \| (\w+) \|", table, re.MULTILINE)
        for name in re.findall(r"`(\w+)`", names)
    }
    assert documented == {name: told["role"] for name, told in described().items()}
