"""The demonstration's outcome reports: seeded, marked as drawn, later than their answers."""

import contextlib

from gateway.demo.fleet import TENANTS
from gateway.demo.outcomes import EVIDENCE, REPORTED_EVERY, Reporter
from ledger.rollups.projection import Rollups
from ledger.store import Store
from tests.gateway.demo.test_replay import START_US, replayed
from tests.server_fixtures import Fleet
from tests.system.watching import one

NOW_US = START_US + 3_600_000_000


def reports(receipts, seed=7):
    reporter = Reporter(seed, NOW_US)
    for receipt in receipts:
        reporter.add(receipt)
    return reporter.reports


def test_every_fifth_completed_answer_is_reported_on_after_it_ended(fleet: Fleet):
    receipts, _, _ = replayed(fleet, 1)
    completed = {one.request_id: one for one in receipts if one.status == "completed"}
    found = reports(receipts)
    assert len(found) == len(completed) // REPORTED_EVERY > 20
    assert {one.evidence for one in found} == {EVIDENCE}
    for report in found:
        about = completed[report.request_id]
        assert report.tenant_id == about.tenant_id
        assert (about.ended_at_us or 0) <= report.reported_at_us <= NOW_US
    assert found == reports(receipts)
    assert found != reports(receipts, seed=8)


def test_a_task_is_judged_at_its_last_request_alone_and_the_costs_know_it(fleet: Fleet):
    receipts, _, _ = replayed(fleet, 1)
    found = reports(receipts)
    judged = [report for report in found if report.task_completed is not None]
    tasks = {report.task_id for report in found}
    assert len(tasks) - len(TENANTS) <= len(judged) <= len(tasks) < len(found)
    assert len({report.task_id for report in judged}) == len(judged)
    with Store.open(fleet.ledger, projections=(Rollups(),)) as store:
        store.append(found).result()
    with contextlib.closing(fleet.reader()) as reader:
        counted = one(reader, "SELECT count(*) FROM outcome_report WHERE quality_passed = 1")
        assert counted == sum(report.quality_passed or 0 for report in found) > 0
