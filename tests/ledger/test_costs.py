"""CST-2, CST-3, CST-9: parts add up to the whole, exactly, in any zone, from rollups alone."""

import itertools
import shutil
from collections import defaultdict
from datetime import UTC, date, timedelta

import pytest

from ledger.queries.cost_sums import unit_cost_pico
from ledger.queries.costs import DIMENSIONS, TIME_DIMENSIONS, costs
from ledger.reading import connect_read_only
from ledger.zones import Period, days, parse_zone, to_local
from tests.ledger.receipts import HOUR_US, T0_US, receipt
from tests.ledger.seeded import Plans, fill, seeded_receipts

RECEIPTS = seeded_receipts()
WHOLE = Period(start_us=T0_US, end_us=T0_US + 6 * 24 * HOUR_US)
INDIA = parse_zone("+05:30")
PLAIN = [name for name in DIMENSIONS if name not in TIME_DIMENSIONS]
FIELD = {
    "tenant": lambda r: r.tenant_id,
    "key": lambda r: r.key_id,
    "logical_model": lambda r: r.logical_model,
    "identity": lambda r: r.identity_id or "",
    "route": lambda r: r.route_id or "",
    "priority": lambda r: r.priority,
    "path": lambda r: r.user_path,
    "task_type": lambda r: r.task_type,
    "release": lambda r: r.release_id or "",
    "arm": lambda r: r.arm or "",
    "status": lambda r: r.status,
    "reason": lambda r: r.terminal_error_code or "",
    "degraded": lambda r: "1" if r.degraded_from else "",
}
LOCAL = {
    "hour": lambda local: local.replace(minute=0, second=0, microsecond=0).isoformat(
        timespec="minutes"
    ),
    "day": lambda local: local.date().isoformat(),
    "month": lambda local: f"{local:%Y-%m}",
}


@pytest.fixture(scope="module")
def filled(ledger_template, tmp_path_factory):
    path = tmp_path_factory.mktemp("costs") / "ledger.sqlite3"
    shutil.copyfile(ledger_template, path)
    fill(path, RECEIPTS)
    return path


@pytest.fixture
def connection(filled):
    opened = connect_read_only(filled)
    yield opened
    opened.close()


def value_of(one, dimension, zone):
    if dimension in FIELD:
        return FIELD[dimension](one)
    return LOCAL[dimension](to_local(one.accepted_at_us, zone))


def expected(dimensions, zone, receipts=RECEIPTS):
    found: dict[tuple[str, ...], int] = defaultdict(int)
    for one in receipts:
        found[tuple(value_of(one, name, zone) for name in dimensions)] += one.cost_total_pico
    return dict(found)


def by_values(table):
    return {row.values: row.sums.cost_total_pico for row in table.rows}


@pytest.mark.parametrize("zone", [UTC, INDIA], ids=["UTC", "+05:30"])
@pytest.mark.parametrize(
    "dimensions", list(itertools.combinations(PLAIN, 2)), ids=lambda names: "-".join(names)
)
def test_any_two_dimensions_group_exactly(connection, dimensions, zone):
    table = costs(connection, WHOLE, dimensions, zone=zone)
    assert by_values(table) == expected(dimensions, zone)
    assert table.total.cost_total_pico == sum(one.cost_total_pico for one in RECEIPTS)
    assert table.total.receipts == len(RECEIPTS)


@pytest.mark.parametrize("zone", [UTC, INDIA, parse_zone("Asia/Kathmandu")], ids=str)
@pytest.mark.parametrize("unit", TIME_DIMENSIONS)
def test_local_hours_days_and_months_group_exactly(connection, unit, zone):
    dimensions = ("tenant", "route", unit)
    table = costs(connection, WHOLE, dimensions, zone=zone)
    assert table.others is None
    assert by_values(table) == expected(dimensions, zone)
    assert shown_total_pico(table) == sum(one.cost_total_pico for one in RECEIPTS)


def shown_total_pico(table):
    return sum(row.sums.cost_total_pico for row in table.rows) + (
        table.others.cost_total_pico if table.others else 0
    )


def test_three_dimensions_group_exactly(connection):
    dimensions = ("tenant", "priority", "status")
    table = costs(connection, WHOLE, dimensions, zone=UTC)
    assert by_values(table) == expected(dimensions, UTC)


@pytest.mark.parametrize("zone", [UTC, INDIA], ids=["UTC", "+05:30"])
def test_five_single_days_add_up_to_their_range(connection, zone):
    first = to_local(T0_US + 20 * HOUR_US, zone).date()
    singles = [
        costs(connection, days(day, day, zone), ["tenant"], zone=zone).total
        for day in (first + timedelta(days=number) for number in range(5))
    ]
    whole = costs(
        connection, days(first, first + timedelta(days=4), zone), ["tenant"], zone=zone
    ).total
    added = singles[0]
    for one in singles[1:]:
        added = added.plus(one)
    assert added == whole
    assert whole.receipts > 0


def test_every_sum_of_a_row_is_that_of_its_receipts(connection):
    table = costs(connection, WHOLE, ["tenant"], zone=UTC)
    for row in table.rows:
        mine = [one for one in RECEIPTS if one.tenant_id == row.values[0]]
        completed = [one for one in mine if one.status == "completed"]
        wasted = [one for one in mine if one.status != "completed" or one.schema_valid == 0]
        assert row.sums.receipts == len(mine)
        assert row.sums.completed == len(completed)
        assert row.sums.rejected == sum(one.status == "rejected" for one in mine)
        assert row.sums.degraded == sum(one.degraded_from is not None for one in mine)
        assert row.sums.input_tokens == sum(one.input_tokens for one in mine)
        assert row.sums.output_tokens == sum(one.output_tokens for one in mine)
        assert row.sums.cost_input_pico == sum(one.cost_input_pico for one in mine)
        assert row.sums.cost_waste_pico == sum(one.cost_total_pico for one in wasted) + sum(
            one.cost_retry_and_hedge_pico for one in mine if one not in wasted
        )
        assert row.sums.cost_per_completed_pico == unit_cost_pico(
            sum(one.cost_total_pico for one in mine), len(completed)
        )


def test_rows_come_by_falling_cost_and_with_a_time_by_time(connection):
    plain = [row.sums.cost_total_pico for row in costs(connection, WHOLE, ["route"], zone=UTC).rows]
    assert plain == sorted(plain, reverse=True)
    timed = [row.values[0] for row in costs(connection, WHOLE, ["day", "tenant"], zone=UTC).rows]
    assert timed == sorted(timed)


def test_filters_take_any_of_their_values(connection):
    filters = {"tenant": ("acme", "globex"), "priority": ("batch",)}
    table = costs(connection, WHOLE, ["tenant"], zone=UTC, filters=filters)
    mine = [one for one in RECEIPTS if one.tenant_id != "initech" and one.priority == "batch"]
    assert by_values(table) == expected(["tenant"], UTC, mine)


@pytest.mark.parametrize("dimensions", [("tenant", "day"), ("route", "status"), ("hour",)])
def test_a_drill_names_the_very_receipts_that_a_row_sums(connection, dimensions):
    filters = {"priority": ("interactive", "batch")}
    table = costs(connection, WHOLE, dimensions, zone=INDIA, filters=filters)
    for row in table.rows:
        drill = table.drill(row)
        behind = [
            one
            for one in RECEIPTS
            if drill.period.start_us <= one.accepted_at_us < drill.period.end_us
            and all(FIELD[name](one) in allowed for name, allowed in drill.values)
        ]
        assert len(behind) == row.sums.receipts
        assert sum(one.cost_total_pico for one in behind) == row.sums.cost_total_pico


def test_rows_beyond_the_limit_are_added_up_and_not_dropped(connection):
    everything = costs(connection, WHOLE, ["tenant", "route"], zone=UTC)
    table = costs(connection, WHOLE, ["tenant", "route"], zone=UTC, rows_limit=4)
    assert table.rows == everything.rows[:4]
    assert table.others_count == len(everything.rows) - 4
    assert (
        shown_total_pico(table) == table.total.cost_total_pico == everything.total.cost_total_pico
    )


def test_a_period_without_receipts_has_no_rows_and_a_total_of_zero(connection):
    empty = days(date(2001, 1, 1), date(2001, 1, 2), UTC)
    table = costs(connection, empty, ["tenant", "day"], zone=UTC)
    assert table.rows == ()
    assert table.total.receipts == 0
    assert table.total.cost_per_completed_pico is None
    assert [bucket.label for bucket in table.time_buckets] == ["2001-01-01", "2001-01-02"]
    nothing = Period(start_us=T0_US, end_us=T0_US)
    assert costs(connection, nothing, ["tenant"], zone=UTC).rows == ()


def test_an_unknown_that_was_resolved_leaves_no_row(ledger_path, reader):
    unknown = receipt(status="unknown")
    fill(ledger_path, [unknown, receipt(revision=1)], batch=1)
    table = costs(reader, WHOLE, ["status"], zone=UTC)
    assert [row.values for row in table.rows] == [("completed",)]


@pytest.mark.parametrize(
    ("dimensions", "filters", "named"),
    [
        (["colour"], {}, "no dimension 'colour'"),
        ([], {}, "one to 3"),
        (["tenant", "tenant"], {}, "one to 3"),
        (["tenant", "route", "path", "status"], {}, "one to 3"),
        (["day", "hour"], {}, "one of hour, day and month"),
        (["tenant"], {"day": ("2026-01-01",)}, "day is no filter"),
        (["tenant"], {"route": ()}, "takes 1 to"),
        (["tenant"], {"x' OR 1=1": ("a",)}, "no dimension"),
    ],
)
def test_what_can_not_be_asked_is_refused_by_name(connection, dimensions, filters, named):
    with pytest.raises(ValueError, match=named):
        costs(connection, WHOLE, dimensions, zone=UTC, filters=filters)


def test_hours_are_for_short_periods(connection):
    month = days(date(2025, 6, 1), date(2025, 6, 30), UTC)
    with pytest.raises(ValueError, match="by hour for at most 200 hours"):
        costs(connection, month, ["hour"], zone=UTC)


def test_a_thousand_requests_of_the_source_cost_3_6_units(ledger_path, reader):
    fill(ledger_path, [receipt(request_id=f"r{number}") for number in range(1_000)], batch=250)
    total = costs(reader, WHOLE, ["tenant"], zone=UTC).total
    assert total.cost_total_pico == 3_600_000_000_000
    assert total.cost_per_completed_pico == 3_600_000_000


@pytest.mark.parametrize("dimensions", [("tenant", "route"), ("tenant", "route", "day"), ("hour",)])
def test_no_query_of_costs_scans_a_large_table(connection, dimensions):
    with Plans(connection) as plans:
        costs(connection, WHOLE, dimensions, zone=INDIA, filters={"tenant": ("acme",)})
    assert any("SEARCH rollup_packed USING INDEX" in step for step in plans.steps())
    assert any("SEARCH rollup_total USING PRIMARY KEY" in step for step in plans.steps())
    assert plans.scans_of_large_tables() == []
