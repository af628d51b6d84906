"""Outcome reports in the rollups: unit costs by every denominator of CST-3, whatever comes when."""

import shutil
import sqlite3
import uuid
from collections import Counter
from datetime import UTC

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ledger.queries.cost_sums import CostSums
from ledger.queries.costs import costs, tag_keys
from ledger.reading import connect_read_only
from ledger.records import OutcomeReport
from ledger.rollups.outcomes import folded
from ledger.rollups.projection import Rollups
from ledger.rollups.rebuild import first_difference
from ledger.rollups.tables import OTHER_TAGS, TAG_SETS_LIMIT
from ledger.store import Store
from ledger.zones import Period
from tests.ledger.receipts import HOUR_US, T0_US, receipt
from tests.ledger_fixtures import migrate_ledger

WHOLE = Period(start_us=T0_US, end_us=T0_US + 100 * HOUR_US)
REQUESTS = tuple(f"req_{number}" for number in range(5))


def report(number, request_id="req_0", **changes):
    values = {
        "outcome_id": f"out_{number}", "request_id": request_id, "tenant_id": "acme",
        "quality_passed": None, "citations_verified": None, "schema_valid": None,
        "task_completed": None, "taken_over": None, "task_id": None, "task_type": None,
        "reported_at_us": T0_US, "reported_by": "key_1",
    }  # fmt: skip
    return OutcomeReport(**(values | changes))


def total(path, dimensions=("tenant",)):
    connection = connect_read_only(path)
    table = costs(connection, WHOLE, dimensions, zone=UTC)
    assert first_difference(connection) is None
    connection.close()
    return table


def appended(path, *commits):
    with Store.open(path, projections=(Rollups(),)) as store:
        for records in commits:
            store.append(records).result()


def costly(request_id, cost_pico=10, **changes):
    fields = {"cost_output_pico": cost_pico, "cost_total_pico": cost_pico, "tenant_id": "acme"}
    return receipt(request_id=request_id, accepted_at_us=T0_US, **(fields | changes))


def test_CST_3_each_unit_cost_divides_the_whole_cost_by_its_own_denominator(ledger_path):
    receipts = [
        costly("req_0", degraded_from="main"), costly("req_1"), costly("req_2"),
        costly("req_3", status="failed"), costly("req_4", schema_valid=0),
    ]  # fmt: skip
    reports = [
        report(0, "req_0", quality_passed=1, citations_verified=1, task_completed=1, task_id="t"),
        report(1, "req_1", quality_passed=1, task_completed=1, task_id="t"),
        report(2, "req_2", quality_passed=0, taken_over=1),
    ]
    appended(ledger_path, receipts, reports)
    sums = total(ledger_path).total
    assert sums.cost_total_pico == 50
    assert sums.denominators == {
        "completed_request": 4, "quality_passed": 2, "verified_citations": 1,
        "completed_task": 1, "degraded_success": 1,
    }  # fmt: skip
    assert sums.unit_costs == {
        "completed_request": 12,  # 12.5, to even
        "quality_passed": 25, "verified_citations": 50, "completed_task": 50,
        "degraded_success": 50,
    }  # fmt: skip
    assert sums.waste == {
        "retries and hedges": 0, "cancelled": 0, "unknown": 0, "failed": 10, "schema-invalid": 10,
    }  # fmt: skip
    assert (sums.outcomes, sums.taken_over) == (3, 1)


def test_CST_3_nothing_useful_has_no_unit_cost():
    assert set(CostSums(cost_total_pico=5).unit_costs.values()) == {None}


def test_a_later_report_replaces_what_an_earlier_one_said_and_leaves_the_rest():
    outcome = folded(
        [report(0, quality_passed=1, task_id="t"), report(1, quality_passed=0, taken_over=1)]
    )
    assert outcome is not None
    assert (outcome.quality_passed, outcome.taken_over, outcome.task_id) == (0, 1, "t")
    assert folded([]) is None


def test_the_outcome_of_an_unknown_moves_with_the_receipt_that_resolves_it(ledger_path):
    unknown = costly("req_0", status="unknown")
    resolved = msgspec.structs.replace(unknown, revision=1, status="completed")
    appended(ledger_path, [unknown], [report(0, quality_passed=1)], [resolved])
    table = total(ledger_path, ("status",))
    (row,) = table.rows
    assert row.values == ("completed",)
    assert row.sums.quality_passed == 1


def test_a_task_counts_once_and_moves_when_its_first_request_turns_out_not_done(ledger_path):
    done = {"task_completed": 1, "task_id": "t"}
    receipts = [costly("req_0", priority="batch"), costly("req_1", priority="normal")]
    appended(ledger_path, receipts, [report(0, "req_1", **done)], [report(1, "req_0", **done)])
    rows = total(ledger_path, ("priority",)).rows
    assert {row.values[0]: row.sums.tasks_completed for row in rows} == {"batch": 1, "normal": 0}
    appended(ledger_path, [report(2, "req_0", task_completed=0)])
    rows = total(ledger_path, ("priority",)).rows
    assert {row.values[0]: row.sums.tasks_completed for row in rows} == {"batch": 0, "normal": 1}


facts = st.sampled_from([None, 0, 1])
said = st.tuples(
    st.sampled_from(REQUESTS),
    st.fixed_dictionaries(
        {"quality_passed": facts, "citations_verified": facts, "task_completed": facts,
         "taken_over": facts, "task_id": st.sampled_from([None, "t1", "t2"])}
    ),
)  # fmt: skip
moved = st.sampled_from(REQUESTS)


def modelled(commits):
    """What the rollups should hold of `commits`, by the definitions, from the end alone."""
    current, reports = {}, {}
    for record in (record for commit in commits for record in commit):
        if isinstance(record, OutcomeReport):
            reports.setdefault(record.request_id, []).append(record)
        else:
            current[record.request_id] = record
    outcomes = {key: folded(said) for key, said in reports.items()}
    holders = {}
    for key in sorted(outcomes):
        if outcomes[key].task_completed == 1 and outcomes[key].task_id is not None:
            holders.setdefault(outcomes[key].task_id, key)
    counts = Counter()
    for key, outcome in outcomes.items():
        status = current[key].status
        counts[status, "outcomes"] += 1
        counts[status, "quality_passed"] += outcome.quality_passed == 1
        counts[status, "citations_verified"] += outcome.citations_verified == 1
        counts[status, "taken_over"] += outcome.taken_over == 1
        if outcome.task_completed == 1:
            counted = outcome.task_id is None or holders[outcome.task_id] == key
            counts[status, "tasks_completed"] += counted
    return +counts


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25)
@given(st.lists(st.lists(said | moved, min_size=1, max_size=4), max_size=8))
def test_any_order_of_reports_and_resolutions_gives_what_the_definitions_say(
    ledger_template, tmp_path, steps
):
    current = {key: costly(key, status="unknown") for key in REQUESTS}
    commits, number = [list(current.values())], 0
    for step in steps:
        commit = []
        for one in step:
            number += 1
            if isinstance(one, str):
                old = current[one]
                status = "completed" if old.revision % 2 == 0 else "failed"
                current[one] = msgspec.structs.replace(
                    old, revision=old.revision + 1, status=status
                )
                commit.append(current[one])
            else:
                commit.append(report(number, one[0], **one[1]))
        commits.append(commit)
    path = tmp_path / f"{uuid.uuid4()}.sqlite3"  # one for each example
    shutil.copyfile(ledger_template, path)
    appended(path, *commits)
    names = ("outcomes", "quality_passed", "citations_verified", "taken_over", "tasks_completed")
    kept = {
        (row.values[0], name): getattr(row.sums, name)
        for row in total(path, ("status",)).rows
        for name in names
    }
    assert +Counter(kept) == modelled(commits)


def test_CST_2_costs_by_a_tag_s_key_sum_to_the_whole(ledger_path):
    receipts = [
        costly("req_0", 1, tags_json='{"cost-centre":"a","team":"x"}'),
        costly("req_1", 2, tags_json='{"cost-centre":"b"}'),
        costly("req_2", 4, tags_json='{"cost-centre":"a"}'),
        costly("req_3", 8),
    ]
    appended(ledger_path, receipts)
    table = total(ledger_path, ("tag:cost-centre", "tenant"))
    assert [(row.values, row.sums.cost_total_pico) for row in table.rows] == [
        (("", "acme"), 8), (("a", "acme"), 5), (("b", "acme"), 2),
    ]  # fmt: skip
    connection = connect_read_only(ledger_path)
    filtered = costs(connection, WHOLE, ["tag:team"], zone=UTC, filters={"tag:cost-centre": ["a"]})
    assert [(row.values, row.sums.cost_total_pico) for row in filtered.rows] == [
        (("",), 4), (("x",), 1),
    ]  # fmt: skip
    assert tag_keys(connection) == ["cost-centre", "team"]
    with pytest.raises(ValueError, match="no dimension"):
        costs(connection, WHOLE, ["tag:No Key"], zone=UTC)
    connection.close()


def test_beyond_the_limit_a_tenant_s_tags_are_kept_together_and_the_sum_stays(ledger_path):
    receipts = [
        costly(f"req_{number}", 1, tags_json=f'{{"id":"{number}"}}')
        for number in range(TAG_SETS_LIMIT + 50)
    ]
    for start in range(0, len(receipts), 400):
        appended(ledger_path, receipts[start : start + 400])
    table = total(ledger_path, ("tag:id",))
    assert table.total.cost_total_pico == TAG_SETS_LIMIT + 50
    connection = connect_read_only(ledger_path)
    (others,) = connection.execute(
        "SELECT count(*) FROM rollup_series WHERE tags = ?", (OTHER_TAGS,)
    ).fetchone()
    assert others == 1
    connection.close()


def test_rollups_of_another_layout_are_made_again_by_migrate(ledger_path):
    appended(ledger_path, [costly("req_0", 7)])
    connection = sqlite3.connect(ledger_path)
    connection.execute("ALTER TABLE rollup_total DROP COLUMN taken_over")
    connection.commit()
    connection.close()
    migrate_ledger(ledger_path)
    assert total(ledger_path).total.cost_total_pico == 7
