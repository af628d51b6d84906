"""SLO-1: each indicator, exact, in each slice."""

import shutil

import pytest

from ledger.queries import slis
from ledger.queries.slis import SLICES, indicators
from ledger.reading import connect_read_only
from tests.ledger.receipts import T0_US, receipt
from tests.ledger.seeded import SPAN_US, Plans, fill, seeded_receipts
from tests.ledger_fixtures import without_log

EVERYTHING = (T0_US, T0_US + 2 * SPAN_US)
RECEIPTS = seeded_receipts()


@pytest.fixture(scope="module")
def seeded_once(ledger_template, tmp_path_factory):
    path = tmp_path_factory.mktemp("seeded") / "ledger.sqlite3"
    shutil.copyfile(ledger_template, path)
    fill(path, RECEIPTS)
    without_log(path)
    return path


@pytest.fixture
def connection(seeded_once, ledger_path):
    opened = connect_read_only(shutil.copyfile(seeded_once, ledger_path))
    yield opened
    opened.close()


@pytest.mark.parametrize("by", SLICES)
def test_every_slice_has_each_receipt_once(connection, by):
    found = indicators(connection, *EVERYTHING, by).slices
    assert sum(one.received for one in found) == len(RECEIPTS)
    total = sum(one.cost_total_pico for one in RECEIPTS)
    assert sum(one.cost_pico for one in found) == total
    for one in found:
        assert one.received == one.accepted + sum(one.rejected.values())
        assert one.valid <= one.judged <= one.accepted


def test_quantiles_are_nearest_rank_of_the_slice(ledger_path, reader):
    """SLO-7: p99 of 1..100 is 99, and the batch's times are none of the interactive's."""
    made = [
        receipt(request_id=f"i{ms}", first_token_us=ms * 1_000, accepted_at_us=T0_US + ms)
        for ms in range(1, 101)
    ]
    made += [
        receipt(request_id=f"b{ms}", priority="batch", first_token_us=9_000_000,
                accepted_at_us=T0_US + ms)
        for ms in range(1, 11)
    ]  # fmt: skip
    fill(ledger_path, made)
    interactive, batch = indicators(reader, *EVERYTHING, "priority").slices
    assert interactive.ttft_us == {50: 50_000, 95: 95_000, 99: 99_000}
    assert batch.ttft_us[99] == 9_000_000


def test_policy_rejections_are_no_capacity_failures(ledger_path, reader):
    codes = ["CAPACITY_SHED", "POLICY_DENIED", "TENANT_RATE_LIMIT", "CAPACITY_SHED"]
    fill(
        ledger_path,
        [
            receipt(request_id=f"r{n}", status="rejected", terminal_error_code=code)
            for n, code in enumerate(codes)
        ],
    )
    (one,) = indicators(reader, *EVERYTHING, "tenant").slices
    assert one.rejected == {"CAPACITY_SHED": 2, "POLICY_DENIED": 1, "TENANT_RATE_LIMIT": 1}
    assert one.rejected_for_capacity == 2
    assert (one.ttft_us, one.itl_p95_us, one.cost_per_valid_pico) == ({}, None, None)


def test_cost_by_valid_result_counts_what_was_spent_in_vain(ledger_path, reader):
    """The course's tenth acceptance line: not the price of a token, the cost of a valid answer."""
    fill(
        ledger_path,
        [receipt(request_id="good"), receipt(request_id="broken", schema_valid=0)],
    )
    (one,) = indicators(reader, *EVERYTHING, "tenant").slices
    assert (one.valid, one.cost_pico) == (1, 7_200_000_000)
    assert one.cost_per_valid_pico == 7_200_000_000


def test_slices_by_tokens_and_degradation_are_told_apart(ledger_path, reader):
    """The course's third acceptance line: model version, request class, token length."""
    fill(
        ledger_path,
        [
            receipt(request_id="short", input_tokens=100),
            receipt(request_id="long", input_tokens=20_000, degraded_from="elsewhere"),
        ],
    )
    names = {one.name for one in indicators(reader, *EVERYTHING, "input_tokens").slices}
    assert names == {"under 256", "16384 and more"}
    degraded, normal = sorted(
        indicators(reader, *EVERYTHING, "degraded").slices, key=lambda one: one.name
    )
    assert (degraded.degraded, degraded.valid, normal.valid) == (1, 0, 1)


def test_of_a_larger_window_the_newest_are_read_and_the_answer_says_since_when(
    connection, monkeypatch
):
    monkeypatch.setattr(slis, "ROWS_LIMIT", 10)
    found = indicators(connection, *EVERYTHING, "tenant")
    newest = sorted((one.accepted_at_us for one in RECEIPTS), reverse=True)[:10]
    assert sum(one.received for one in found.slices) == 10
    assert (found.whole, found.start_us) == (False, newest[-1])
    monkeypatch.setattr(slis, "ROWS_LIMIT", len(RECEIPTS))
    assert indicators(connection, *EVERYTHING, "tenant").whole


def test_the_query_scans_no_table(connection):
    with Plans(connection) as plans:
        indicators(connection, *EVERYTHING, "route")
    assert plans.scans_of_large_tables() == []
