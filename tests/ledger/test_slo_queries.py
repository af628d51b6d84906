"""SLO-3, SLO-5, SLO-7 over a ledger: what the burn page and the API show."""

from fractions import Fraction

import pytest

from ledger.queries.slo import slo_reports
from ledger.slo import DAY_US, HOUR_US, MINUTE_US, OpenRequest, judge
from tests.ledger.receipts import T0_US, receipt
from tests.ledger.seeded import Plans, fill, seeded_receipts

NOW_US = T0_US + 6 * HOUR_US


def reports_at(reader, now_us, **options):
    reports = slo_reports(reader, now_us, **options)
    return {report.status.definition.slo_id: report for report in reports}


def experiment_one(accepted_at_us):
    """60 interactive requests, of which 5 queued for 4 s, and 40 of batch, in one minute."""
    slow = [True] * 5 + [False] * 55 + [False] * 40
    return [
        receipt(
            request_id=f"req_{accepted_at_us}_{number}",
            priority="interactive" if number < 60 else "batch",
            queue_us=4_000_000 if is_slow else 20_000,
            accepted_at_us=accepted_at_us + number,
        )
        for number, is_slow in enumerate(slow)
    ]


def test_experiment_one_alerts_from_the_interactive_tail_although_the_mean_passes(
    ledger_path, reader
):
    receipts = experiment_one(NOW_US - 2 * MINUTE_US)
    fill(ledger_path, receipts)
    reports = reports_at(reader, NOW_US)

    interactive = reports["interactive-queue"].status
    slow_rule = next(one for one in interactive.rules if one.rule.factor == 6)
    assert slow_rule.state == "ALERT"
    assert slow_rule.long.burn == slow_rule.short.burn == Fraction(25, 3)
    assert (slow_rule.long.tally.bad, slow_rule.long.tally.valid) == (5, 60)
    assert interactive.state == "FREEZE"

    batch = reports["batch-queue"].status
    assert {one.long.burn for one in batch.rules} == {0}
    assert batch.state == "OK"
    assert sum(one.queue_us for one in receipts) / len(receipts) == 219_000


def test_each_window_counts_the_requests_accepted_in_it(ledger_path, reader):
    ages_us = [MINUTE_US, 4 * MINUTE_US, 20 * MINUTE_US, 50 * MINUTE_US, 5 * HOUR_US, 9 * DAY_US]
    fill(
        ledger_path,
        [
            receipt(request_id=f"r{age_us}", accepted_at_us=NOW_US - age_us)
            for age_us in sorted(ages_us, reverse=True)
        ],
    )
    status = reports_at(reader, NOW_US)["valid-completion"].status
    windows = {one.length_us: one for rule in status.rules for one in (rule.long, rule.short)}
    assert {length_us: one.tally.valid for length_us, one in windows.items()} == {
        5 * MINUTE_US: 2,
        30 * MINUTE_US: 3,
        HOUR_US: 4,
        2 * HOUR_US: 4,
        6 * HOUR_US: 5,
        DAY_US: 5,
    }
    assert status.period.tally.valid == 6
    assert (windows[HOUR_US].start_us, windows[HOUR_US].end_us) == (NOW_US - HOUR_US, NOW_US)


def test_the_minute_that_is_not_over_is_not_counted_yet(ledger_path, reader):
    fill(ledger_path, [receipt(accepted_at_us=NOW_US)])
    assert reports_at(reader, NOW_US + MINUTE_US - 1)["capacity"].status.state == "NO_DATA"
    assert reports_at(reader, NOW_US + MINUTE_US)["capacity"].status.state == "OK"


def test_a_ledger_without_requests_is_no_data_and_not_ok(reader):
    for report in slo_reports(reader, NOW_US):
        assert report.status.state == "NO_DATA"
        assert report.status.budget_left is None
        assert report.status.exhausted_in_us is None
        assert {one.state for one in report.status.rules} == {"NO_DATA"}
        assert report.counted_since_us is None


def test_an_open_request_past_its_deadline_is_bad_before_it_ends(ledger_path, reader):
    fill(ledger_path, [receipt(accepted_at_us=NOW_US - 2 * MINUTE_US)])
    late = OpenRequest(
        tenant_id="acme",
        logical_model="chat-large",
        identity_id="mid_a",
        route_id="route_a",
        priority="interactive",
        user_path="interactive",
        arm=None,
        accepted_at_us=NOW_US - 3 * MINUTE_US,
        deadline_us=MINUTE_US,
    )
    reports = reports_at(reader, NOW_US, open_requests=(late,))
    tally = reports["interactive-ttft"].status.period.tally
    assert (tally.good, tally.valid) == (1, 2)
    assert reports["batch-queue"].status.period.tally.valid == 0


def test_counts_equal_a_judgement_of_every_receipt(ledger_path, reader):
    receipts = seeded_receipts()
    fill(ledger_path, receipts)
    now_us = T0_US + 6 * DAY_US
    for report in slo_reports(reader, now_us):
        verdicts = [judge(report.status.definition, one) for one in receipts]
        tally = report.status.period.tally
        assert tally.good == verdicts.count("good")
        assert tally.bad == verdicts.count("bad")


def test_the_history_has_a_point_for_each_step_and_adds_up(ledger_path, reader):
    receipts = seeded_receipts()
    fill(ledger_path, receipts)
    now_us = T0_US + 5 * DAY_US
    report = reports_at(reader, now_us)["valid-completion"]
    assert len(report.history) == 96
    assert report.history[-1].end_us == now_us
    day = next(one.long for one in report.status.rules if one.long.length_us == DAY_US)
    assert sum(point.tally.valid for point in report.history) == day.tally.valid
    assert sum(point.tally.bad for point in report.history) == day.tally.bad
    assert report.counted_since_us == T0_US


@pytest.mark.parametrize(
    "options",
    [{"step_us": 1}, {"step_us": 0}, {"step_us": MINUTE_US, "history_us": 401 * MINUTE_US}],
)
def test_a_history_beyond_its_limits_is_refused(reader, options):
    with pytest.raises(ValueError, match="at most 400 steps"):
        slo_reports(reader, NOW_US, **options)


def test_a_resolved_unknown_is_judged_by_its_resolution(ledger_path, reader):
    unknown = receipt(status="unknown", accepted_at_us=NOW_US - 10 * MINUTE_US)
    resolved = receipt(revision=1, accepted_at_us=NOW_US - 10 * MINUTE_US)
    fill(ledger_path, [unknown], batch=1)
    assert reports_at(reader, NOW_US)["valid-completion"].status.period.tally.bad == 1
    fill(ledger_path, [resolved], batch=1)
    tally = reports_at(reader, NOW_US)["valid-completion"].status.period.tally
    assert (tally.good, tally.valid) == (1, 1)


def test_no_query_of_slo_burn_scans_a_large_table(ledger_path, reader):
    fill(ledger_path, experiment_one(NOW_US))
    with Plans(reader) as plans:
        slo_reports(reader, NOW_US)
    assert any("SEARCH rollup_sli USING PRIMARY KEY" in step for step in plans.steps())
    assert plans.scans_of_large_tables() == []
