"""The window that Now and the API's diagnosis ask about."""

import pytest

from gateway.diagnosing import Moment, read_moment
from gateway.reporting import AskProblem

NOW_US = 1_795_992_000_123_456
MINUTE_US = 60_000_000


def test_by_default_it_is_the_last_quarter_of_an_hour():
    assert read_moment({}, NOW_US) == Moment(
        start_us=NOW_US - 15 * MINUTE_US, end_us=NOW_US, within="15m", at=""
    )


@pytest.mark.parametrize(
    ("at", "end_us"),
    [
        ("2026-11-18T10:40", 1_794_998_400_000_000),
        ("2026-11-18T10:40:00Z", 1_794_998_400_000_000),
        ("2026-11-18T16:10+05:30", 1_794_998_400_000_000),
        ("2026-11-18T10:40:00.250000", 1_794_998_400_250_000),
    ],
)
def test_a_time_without_a_zone_is_utc_and_one_with_it_is_its_own(at: str, end_us: int):
    found = read_moment({"at": [at], "within": ["5m"]}, NOW_US)
    assert isinstance(found, Moment)
    assert (found.start_us, found.end_us) == (end_us - 5 * MINUTE_US, end_us)


@pytest.mark.parametrize(
    ("query", "parameter"),
    [
        ({"within": ["2h"]}, "within"),
        ({"at": ["soon"]}, "at"),
        ({"at": ["1066-10-14T09:00"]}, "at"),
        ({"at": ["9" * 5_000]}, "at"),
        ({"follow": ["1"]}, "follow"),
    ],
)
def test_what_cant_be_read_names_its_parameter(query: dict[str, list[str]], parameter: str):
    found = read_moment(query, NOW_US)
    assert isinstance(found, AskProblem)
    assert found.parameter == parameter


def test_parameters_of_the_asker_are_let_through():
    assert isinstance(read_moment({"follow": ["0"]}, NOW_US, ("follow",)), Moment)
