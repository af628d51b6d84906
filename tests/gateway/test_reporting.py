"""One reading of a report's query for page, API and CSV."""

from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.reporting import (
    AskProblem,
    CostsAsk,
    ReleasesAsk,
    iso,
    read_costs,
    read_period,
    read_releases,
)
from ledger.queries.releases import Side
from ledger.zones import parse_zone

NOW_US = 1_764_000_123_000_000  # 2025-11-24T16:02:03Z


def asked(ask):
    """The ask, which is no problem."""
    assert not isinstance(ask, AskProblem)
    return ask


def refused(problem):
    """The problem, which is no ask."""
    assert isinstance(problem, AskProblem)
    return problem


def test_the_default_is_the_last_24_hours_by_tenant_and_model():
    ask = asked(read_costs({}, NOW_US))
    assert ask.dimensions == ("tenant", "logical_model")
    assert ask.filters == {}
    assert iso(ask.when.period.end_us) == "2025-11-24T16:15:00+00:00"
    assert iso(ask.when.period.start_us) == "2025-11-23T16:15:00+00:00"


def test_local_days_are_inclusive_and_in_the_zone():
    query = {"first": ["2025-11-20"], "last": ["2025-11-21"], "zone": ["+05:30"]}
    when = asked(read_period(query, NOW_US))
    assert iso(when.period.start_us, when.zone) == "2025-11-20T00:00:00+05:30"
    assert iso(when.period.end_us, when.zone) == "2025-11-22T00:00:00+05:30"


@pytest.mark.parametrize("text", [" 05:30", " 0530", "+05:30"])
def test_an_offset_whose_plus_was_read_as_a_space_is_that_offset(text):
    when = asked(read_period({"zone": [text]}, NOW_US))
    assert when.zone == parse_zone("+05:30")
    assert when.zone_name.startswith("+05")


@pytest.mark.parametrize("read", [read_costs, read_releases])
def test_what_is_no_parameter_is_named_only_where_it_looks_like_a_name(read):
    assert refused(read({"tennant": ["acme"]}, NOW_US)).parameter == "tennant"
    assert refused(read({"sk-1 secret": [""]}, NOW_US)).parameter == "query"


@pytest.mark.parametrize("name", ["first", "last"])
def test_one_day_alone_is_that_day(name):
    when = asked(read_period({name: ["2025-11-20"]}, NOW_US))
    assert iso(when.period.start_us) == "2025-11-20T00:00:00+00:00"
    assert iso(when.period.end_us) == "2025-11-21T00:00:00+00:00"


def test_dimensions_come_by_comma_or_repeated_and_filters_by_their_names():
    query = {"by": ["tenant,route", "day"], "tenant": ["acme", "globex", "acme", ""]}
    ask = asked(read_costs(query, NOW_US))
    assert asked(read_costs({"by": ["route"]}, NOW_US)).dimensions == ("route",)
    assert asked(read_costs({"by": ["route"], "then": [""]}, NOW_US)).dimensions == ("route",)
    both = asked(read_costs({"by": ["route"], "then": ["day"]}, NOW_US))
    assert both.dimensions == ("route", "day")
    assert ask.dimensions == ("tenant", "route", "day")
    assert ask.filters == {"tenant": ("acme", "globex")}


def test_sides_are_identities_or_arms():
    ask = asked(read_releases({"baseline": ["mid_a"], "candidate": ["release-1/canary"]}, NOW_US))
    assert ask.baseline == Side(identity_id="mid_a")
    assert ask.candidate == Side(release_id="release-1", arm="canary")
    assert ask.logical_model is None


@pytest.mark.parametrize(
    ("query", "parameter"),
    [
        ({"zone": ["Mars/Base"]}, "zone"),
        ({"within": ["2w"]}, "within"),
        ({"first": ["yesterday"]}, "first"),
        ({"first": ["2025-11-01"], "last": ["2025-13-01"]}, "last"),
        ({"first": ["2025-11-02"], "last": ["2025-11-01"]}, "first"),
        ({"first": ["0001-01-01"]}, "first"),
        ({"first": ["1981-01-01"], "last": ["2025-01-01"]}, "first"),
        ({"by": ["colour"]}, "by"),
        ({"by": ["tenant,route,status,path"]}, "by"),
        ({"by": ["day,hour"]}, "by"),
        ({"by": ["hour"], "within": ["30d"]}, "by"),
        ({"tenant": ["x" * 201]}, "tenant"),
        ({"route": [str(number) for number in range(101)]}, "route"),
    ],
)
def test_what_can_not_be_asked_names_its_parameter(query, parameter):
    assert refused(read_costs(query, NOW_US)).parameter == parameter


def test_a_side_without_its_arm_is_refused_by_name():
    problem = refused(read_releases({"candidate": ["release-1/"]}, NOW_US))
    assert problem.parameter == "candidate"


parameters = st.dictionaries(
    st.sampled_from(
        ["zone", "within", "first", "last", "by", "then", "tenant", "baseline", "model"]
    ),
    st.lists(st.text(max_size=30), max_size=3),
)


@given(parameters)
def test_any_query_gives_an_ask_or_a_problem(query):
    assert isinstance(read_costs(query, NOW_US), CostsAsk | AskProblem)
    assert isinstance(read_releases(query, NOW_US), ReleasesAsk | AskProblem)


@given(st.dates(date(1990, 1, 1), date(2100, 1, 1)), st.sampled_from(["UTC", "+05:30", "-03:30"]))
def test_any_single_day_is_a_period_of_24_hours(day, zone):
    query = {"first": [day.isoformat()], "zone": [zone]}
    when = asked(read_period(query, NOW_US))
    assert when.period.end_us - when.period.start_us == 86_400_000_000
    assert when.zone == parse_zone(zone)
