"""REL-2: two sides of the same traffic, exact from receipts and bounded from histograms."""

import math
import shutil
from fractions import Fraction

import msgspec
import pytest

from ledger.queries import releases as module
from ledger.queries.releases import Side, compare, sides
from ledger.reading import connect_read_only
from ledger.slo import user_cancelled_unserved, valid_completion
from ledger.zones import Period
from tests.ledger.receipts import HOUR_US, T0_US, receipt
from tests.ledger.seeded import Plans, fill, seeded_receipts

RECEIPTS = seeded_receipts(1_500)
WHOLE = Period(start_us=T0_US, end_us=T0_US + 6 * 24 * HOUR_US)
A = Side(identity_id="mid-chat-large-a")
B = Side(identity_id="mid-chat-large-b")
FIELD = {"ttft": "first_token_us", "itl": "itl_mean_us", "e2e": "e2e_us", "queue": "queue_us"}


@pytest.fixture(scope="module")
def filled(ledger_template, tmp_path_factory):
    path = tmp_path_factory.mktemp("releases") / "ledger.sqlite3"
    shutil.copyfile(ledger_template, path)
    fill(path, RECEIPTS, batch=250)
    return path


@pytest.fixture
def connection(filled):
    opened = connect_read_only(filled)
    yield opened
    opened.close()


def of_side(side, priority=""):
    return [
        one
        for one in RECEIPTS
        if one.logical_model == "chat-large"
        and (
            one.identity_id == side.identity_id
            if side.identity_id
            else (one.release_id, one.arm) == (side.release_id, side.arm)
        )
        and priority in ("", one.priority)
    ]


def measured(receipts, metric):
    return sorted(
        getattr(one, FIELD[metric])
        for one in receipts
        if getattr(one, FIELD[metric]) is not None
        and (metric != "e2e" or one.status == "completed")
    )


def compared(connection, **options):
    fields = {"logical_model": "chat-large", "baseline": A, "candidate": B}
    return compare(connection, WHOLE, **{**fields, **options})


def check_quantiles(latency, values_us):
    for quantile in latency.quantiles:
        rank = math.ceil(Fraction(quantile.numerator, quantile.denominator) * len(values_us))
        exact_us = values_us[rank - 1]
        assert quantile.low_us <= exact_us <= quantile.high_us
        if latency.exact:
            assert quantile.value_us == exact_us


@pytest.mark.parametrize("priority", ["", "interactive"])
@pytest.mark.parametrize("limit", [20_000, 0], ids=["from receipts", "from histograms"])
def test_quantiles_are_exact_or_bounded(connection, monkeypatch, limit, priority):
    monkeypatch.setattr(module, "EXACT_LIMIT", limit)
    comparison = compared(connection, priority=priority)
    for side, report in ((A, comparison.baseline), (B, comparison.candidate)):
        for latency in report.latencies:
            values_us = measured(of_side(side, priority), latency.metric)
            assert latency.exact is (limit > 0)
            assert latency.count == len(values_us)
            assert len(latency.quantiles) == 3
            check_quantiles(latency, values_us)
            assert sum(one.count for one in latency.bins) == len(values_us)
            assert latency.bins[0].low_us <= values_us[0]
            assert latency.bins[-1].high_us >= values_us[-1]


@pytest.mark.parametrize("side", [A, Side(release_id="release-1", arm="canary")])
def test_counts_and_costs_are_those_of_the_receipts(connection, side):
    report = compared(connection, candidate=side).candidate
    mine = of_side(side)
    completed = [one for one in mine if one.status == "completed"]
    judged = [one for one in mine if one.status != "rejected" and not user_cancelled_unserved(one)]
    assert report.sums.receipts == len(mine) > 0
    assert report.sums.completed == len(completed)
    assert report.sums.unknown == sum(one.status == "unknown" for one in mine)
    assert report.sums.degraded == sum(one.degraded_from is not None for one in mine)
    assert report.sums.cost_total_pico == sum(one.cost_total_pico for one in mine)
    assert report.sums.cost_per_completed_pico == round(
        Fraction(report.sums.cost_total_pico, len(completed))
    )
    assert report.completion_rate == Fraction(sum(map(valid_completion, mine)), len(judged))


def test_a_side_without_traffic_has_no_quantiles_and_decides_nothing(connection):
    comparison = compared(connection, candidate=Side(identity_id="nowhere"))
    assert comparison.candidate.sums.receipts == 0
    assert comparison.candidate.completion_rate is None
    assert all(latency.quantiles == () for latency in comparison.candidate.latencies)
    assert comparison.completion.verdict == "INCONCLUSIVE"
    assert comparison.tails == ()


def test_too_few_samples_leave_every_tail_inconclusive(connection):
    comparison = compared(connection)
    assert [metric for metric, _ in comparison.tails] == ["ttft", "itl", "e2e"]
    assert {test.verdict for _, test in comparison.tails} == {"INCONCLUSIVE"}


def test_histograms_decide_no_tail(connection, monkeypatch):
    monkeypatch.setattr(module, "EXACT_LIMIT", 0)
    assert compared(connection).tails == ()


def test_sides_with_traffic_are_offered_the_busiest_first(connection):
    offered = [one for one in sides(connection, WHOLE) if one.logical_model == "chat-large"]
    assert {one.side for one in offered} == {
        A,
        B,
        Side(release_id="release-1", arm="stable"),
        Side(release_id="release-1", arm="canary"),
    }
    assert offered[0].receipts == len(of_side(offered[0].side))
    counts = [one.receipts for one in offered]
    assert counts == sorted(counts, reverse=True)


def test_a_resolved_unknown_is_compared_by_its_resolution_alone(ledger_path, reader):
    unknown = receipt(status="unknown", first_token_us=9_000_000)
    fill(ledger_path, [unknown, receipt(revision=1, first_token_us=1_000)], batch=1)
    side = Side(identity_id="mid_a")
    report = compare(
        reader, WHOLE, logical_model="chat-large", baseline=side, candidate=side
    ).baseline
    assert (report.sums.receipts, report.sums.unknown) == (1, 0)
    assert report.latencies[0].count == 1
    assert report.latencies[0].quantiles[-1].value_us == 1_000


@pytest.mark.parametrize(
    "fields", [{}, {"release_id": "r"}, {"identity_id": "m", "release_id": "r", "arm": "a"}]
)
def test_a_side_is_an_identity_or_an_arm_and_not_both(fields):
    with pytest.raises(ValueError, match="a side is"):
        Side(**fields)


@pytest.mark.parametrize("limit", [20_000, 0], ids=["from receipts", "from histograms"])
def test_no_query_of_releases_scans_a_large_table(connection, monkeypatch, limit):
    monkeypatch.setattr(module, "EXACT_LIMIT", limit)
    with Plans(connection) as plans:
        compared(connection)
        sides(connection, WHOLE)
    searched = "SEARCH r USING INDEX receipt_route" if limit else "SEARCH t USING INDEX"
    assert any(searched in step for step in plans.steps())
    assert plans.scans_of_large_tables() == []


def test_a_request_whose_cost_was_known_later_is_measured_once(ledger_template, tmp_path):
    """REL-2: its first attempt's unknown was resolved beside its answer; the status stayed."""
    path = tmp_path / "ledger.sqlite3"
    shutil.copyfile(ledger_template, path)
    one = receipt(request_id="req_1", identity_id="a", logical_model="m", first_token_us=500)
    fill(path, [one, msgspec.structs.replace(one, revision=1, cost_total_pico=9)], batch=1)
    opened = connect_read_only(path)
    side = Side(identity_id="a")
    found = compare(opened, WHOLE, logical_model="m", baseline=side, candidate=side)
    opened.close()
    ttft = next(each for each in found.baseline.latencies if each.metric == "ttft")
    assert (ttft.count, ttft.exact) == (1, True)
