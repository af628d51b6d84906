"""CST-7: what ran without a rate is counted as such beside every sum, and is never free."""

import shutil
import sqlite3
from collections import Counter
from contextlib import closing
from datetime import UTC

import pytest

from ledger.errors import LedgerNotReady
from ledger.queries.bridge import bridge_between
from ledger.queries.costs import DIMENSIONS, TIME_DIMENSIONS, costs
from ledger.queries.diagnosis import picture
from ledger.queries.receipts import ReceiptFilter, receipt_list
from ledger.queries.releases import Side, compare
from ledger.queries.slis import indicators
from ledger.reading import connect_read_only
from ledger.receipt_cost import unpriced
from ledger.rollout_window import ArmRow, statistics
from ledger.rollouts import Condition, Plan
from ledger.rollups.projection import Rollups
from ledger.rollups.rebuild import first_difference, is_current, rebuild
from ledger.store import Store
from ledger.zones import Period
from tests.ledger.receipts import HOUR_US, T0_US, receipt
from tests.ledger.seeded import Plans, fill, seeded_receipts
from tests.ledger.test_costs import FIELD

NOTHING = {
    "rate_key": None, "cost_input_pico": 0, "cost_output_pico": 0, "cost_total_pico": 0,
}  # fmt: skip


def without_rates(made, every=3):
    """Every third receipt of what was served has no rate, and every ninth never ran."""
    found = []
    for number, one in enumerate(made):
        changed = {}
        if one.status == "rejected" or (number % (3 * every) == 0 and one.status == "failed"):
            changed = NOTHING | {"usage_source": None, "output_tokens": 0}
        elif number % every == 0:
            beside = one.cost_retry_and_hedge_pico
            changed = NOTHING | {"cost_total_pico": beside}
        fields = {name: getattr(one, name) for name in one.__struct_fields__}
        found.append(receipt(**fields | changed))
    return found


RECEIPTS = without_rates(seeded_receipts())
LACKING = [one for one in RECEIPTS if one.rate_key is None and one.usage_source is not None]
WHOLE = Period(start_us=T0_US, end_us=T0_US + 6 * 24 * HOUR_US)


@pytest.fixture(scope="module")
def filled(ledger_template, tmp_path_factory):
    path = tmp_path_factory.mktemp("unpriced") / "ledger.sqlite3"
    shutil.copyfile(ledger_template, path)
    fill(path, RECEIPTS)
    return path


@pytest.fixture
def connection(filled):
    with closing(connect_read_only(filled)) as opened:
        yield opened


@pytest.mark.parametrize(
    ("changes", "lacks"),
    [
        ({}, False),
        (NOTHING, True),
        (NOTHING | {"cost_total_pico": 5, "cost_retry_and_hedge_pico": 5}, True),
        (NOTHING | {"input_tokens": 0, "output_tokens": 0}, True),  # an answer, by any count
        (NOTHING | {"status": "unknown", "output_tokens": 0}, True),
        (NOTHING | {"status": "failed", "input_tokens": 0, "output_tokens": 0}, False),  # NOT_RUN
        (NOTHING | {"status": "failed", "usage_source": None}, False),  # refused by its provider
        (NOTHING | {"status": "rejected", "usage_source": None}, False),
        ({"cost_total_pico": 0, "cost_input_pico": 0, "cost_output_pico": 0}, False),  # free
    ],
)
def test_what_ran_has_a_price_or_lacks_one_and_what_never_ran_lacks_none(changes, lacks):
    assert unpriced(receipt(**changes)) is lacks


@pytest.mark.parametrize("dimension", [name for name in DIMENSIONS if name not in TIME_DIMENSIONS])
def test_every_row_counts_what_has_no_price_and_no_row_counts_it_twice(connection, dimension):
    table = costs(connection, WHOLE, [dimension], zone=UTC)
    wanted = Counter(FIELD[dimension](one) for one in LACKING)
    assert {row.values[0]: row.sums.unpriced for row in table.rows if row.sums.unpriced} == wanted
    assert table.total.unpriced == len(LACKING) > 100
    few = costs(connection, WHOLE, ["tenant", "route"], zone=UTC, rows_limit=2)
    assert few.others is not None
    assert sum(row.sums.unpriced for row in few.rows) + few.others.unpriced == len(LACKING)


def test_the_counts_are_read_from_sums_and_never_from_all_receipts(connection):
    with Plans(connection) as plans:
        assert costs(connection, WHOLE, ["tenant", "day"], zone=UTC).total.unpriced
    assert plans.steps()
    assert plans.scans_of_large_tables() == []
    assert not [step for step in plans.steps() if "receipt" in step]


def test_they_stay_equal_to_the_receipts_also_where_one_is_resolved(ledger_path):
    """By one receipt a commit as by fifty alike, and where an unknown gets a price or never ran."""
    same = [receipt(request_id=f"r{n}", **NOTHING) for n in range(50)]
    open_ones = [
        receipt(request_id=f"u{n}", status="unknown", **NOTHING | {"output_tokens": 0})
        for n in range(3)
    ]
    never = NOTHING | {"status": "failed", "input_tokens": 0, "output_tokens": 0}
    with Store.open(ledger_path, projections=(Rollups(),)) as store:
        store.append(same).result()
        for one in open_ones:
            store.append([one]).result()
        store.append([receipt(request_id="u0", revision=1, resolves_hash=b"x" * 32)]).result()
        store.append(
            [receipt(request_id="u1", revision=1, resolves_hash=b"x" * 32, **never)]
        ).result()
    with closing(connect_read_only(ledger_path)) as connection:
        assert costs(connection, WHOLE, ["tenant"], zone=UTC).total.unpriced == 51
        assert first_difference(connection) is None


def test_sums_of_an_older_version_are_refused_by_name_and_made_again(filled, tmp_path):
    path = shutil.copyfile(filled, tmp_path / "ledger.sqlite3")
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("ALTER TABLE rollup_total DROP COLUMN unpriced")
        assert not is_current(connection)
    with pytest.raises(LedgerNotReady, match=r"unpriced.*migrate --database ledger"):
        Store.open(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        rebuild(connection)
    Store.open(path).close()
    with closing(connect_read_only(path)) as connection:
        assert costs(connection, WHOLE, ["tenant"], zone=UTC).total.unpriced == len(LACKING)


def test_cst_4_the_bridge_says_how_many_requests_are_in_neither_sum(connection):
    half = T0_US + 3 * 24 * HOUR_US
    before = Period(start_us=T0_US, end_us=half)
    after = Period(start_us=half, end_us=WHOLE.end_us)
    found = bridge_between(connection, before, after)
    early = sum(one.accepted_at_us < half for one in LACKING)
    assert (found.before_unpriced, found.after_unpriced) == (early, len(LACKING) - early)
    assert early and found.after_unpriced


def test_a_side_of_a_release_says_what_has_no_price(connection):
    sides = [Side(release_id="release-1", arm=arm) for arm in ("stable", "canary")]
    found = compare(
        connection, WHOLE, logical_model="chat-large", baseline=sides[0], candidate=sides[1]
    )
    mine = Counter(one.arm for one in LACKING if one.logical_model == "chat-large")
    assert (found.baseline.sums.unpriced, found.candidate.sums.unpriced) == (
        mine["stable"],
        mine["canary"],
    )


def test_a_valid_result_without_a_price_makes_the_others_no_cheaper(ledger_path, reader):
    """What a valid result cost, by slice and in a diagnosis: 3.6 thousandths, and not the half."""
    fill(ledger_path, [receipt(request_id="r1"), receipt(request_id="r2", **NOTHING)])
    (one,) = indicators(reader, T0_US, WHOLE.end_us, "tenant").slices
    seen = picture(reader, T0_US, WHOLE.end_us)
    assert (one.valid, one.cost_per_valid_pico, seen.cost_per_valid_pico) == (
        2,
        *[3_600_000_000] * 2,
    )


def test_a_canary_without_a_rate_is_not_the_cheaper_arm():
    """REL-5: its cost is unknown, so the test of cost says nothing; also where half is unpriced."""
    plan = Plan(
        rollout_id="v3", release_id="v3", logical_model="assist", baseline_routes=("v2",),
        canary_routes=("v3",), steps_permille=(500,),
        conditions=(Condition(metric="cost_per_valid", limit_permille=200),),
    )  # fmt: skip

    def rows(arm, count, **changes):
        one = receipt(arm=arm, **changes)
        fields = {name: getattr(one, name) for name in ArmRow._fields if hasattr(one, name)}
        return [ArmRow(**fields) for _ in range(count)]

    baseline = rows("baseline", 2_000)
    assert _verdict(plan, [*baseline, *rows("canary", 2_000)]) == "PASS"
    assert _verdict(plan, [*baseline, *rows("canary", 2_000, **NOTHING)]) == "INCONCLUSIVE"
    dearer = rows("canary", 1_000, cost_total_pico=5_400_000_000)
    mixed = [*baseline, *dearer, *rows("canary", 1_000, **NOTHING)]
    assert _verdict(plan, mixed) == "FAIL"  # half as dear again, and not three quarters of it


def _verdict(plan, rows):
    return statistics(plan, 500, rows).verdicts["cost_per_valid"]


def test_a_list_tells_no_price_from_nothing_that_ran(connection):
    wanted = {one.request_id: unpriced(one) for one in RECEIPTS}
    listed = receipt_list(connection, ReceiptFilter(), limit=200).receipts
    assert {one.request_id: one.unpriced for one in listed} == {
        one.request_id: wanted[one.request_id] for one in listed
    }
    assert {one.unpriced for one in listed} == {True, False}
