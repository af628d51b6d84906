"""PRV-2, RTY-2: what a status says, and Retry-After in each of its forms."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.providers.http_status import (
    RETRY_AFTER_DEFAULT_MS,
    RETRY_AFTER_LIMIT_MS,
    Verdict,
    retry_after_ms,
    verdict,
)

NOW_US = 1_800_000_000_250_000  # 2027-01-15T08:00:00.25Z


@pytest.mark.parametrize(
    ("status", "ended", "reason"),
    [
        (400, "rejected", "PROVIDER_REFUSED"),
        (401, "rejected", "PROVIDER_CREDENTIAL_REFUSED"),
        (404, "rejected", "PROVIDER_NOT_FOUND"),
        (408, "rejected", "PROVIDER_TIMED_OUT_READING"),
        (413, "rejected", "PROVIDER_REQUEST_TOO_LARGE"),
        (422, "rejected", "PROVIDER_REFUSED"),
        (429, "rejected", "PROVIDER_RATE_LIMITED"),
        (503, "rejected", "PROVIDER_OVERLOADED"),
        (529, "rejected", "PROVIDER_OVERLOADED"),
        (501, "rejected", "PROVIDER_NOT_IMPLEMENTED"),
        (307, "rejected", "PROVIDER_REDIRECTED"),
        (500, "failed", "PROVIDER_INTERNAL_ERROR"),
        (502, "unknown", "PROVIDER_LOST_BEHIND_GATEWAY"),
        (504, "unknown", "PROVIDER_LOST_BEHIND_GATEWAY"),
        (524, "unknown", "PROVIDER_LOST_BEHIND_GATEWAY"),
        (204, "unknown", "PROVIDER_LOST_BEHIND_GATEWAY"),
    ],
)
def test_only_a_status_that_says_not_taken_is_a_rejection(status, ended, reason):
    told = verdict(status, {}, NOW_US)
    assert (told.ended, told.reason) == (ended, reason)


@pytest.mark.parametrize(
    ("header", "expected_ms"),
    [
        ("7", 7_000),
        ("0", 0),
        ("1.5", 1_500),
        (" 2 ", 2_000),
        ("Fri, 15 Jan 2027 08:00:30 GMT", 29_750),
        ("Friday, 15-Jan-27 08:00:30 GMT", 29_750),
        ("Fri, 15 Jan 2027 08:00:30 -0000", 29_750),
        ("Fri, 15 Jan 2027 07:59:00 GMT", 0),  # past
        ("Thu, 01 Jan 1970 00:00:00 GMT", 0),
        ("999999999", RETRY_AFTER_LIMIT_MS),
    ],
)
def test_retry_after_is_read_as_seconds_or_as_a_date(header, expected_ms):
    assert verdict(429, {"retry-after": header}, NOW_US).retry_after_ms == expected_ms


@pytest.mark.parametrize("header", ["soon", "-1", "1e3", "", "٣", "1,5", "99999999999", "Fri, 99"])
def test_junk_and_a_missing_header_give_the_default(header):
    assert retry_after_ms({"retry-after": header}, NOW_US) is None
    for status in (429, 503):
        told = verdict(status, {"retry-after": header}, NOW_US)
        assert told.retry_after_ms == RETRY_AFTER_DEFAULT_MS


def test_of_two_cooldowns_the_longer_wins():
    both = {"retry-after": "1", "retry-after-ms": "2500"}
    assert retry_after_ms(both, NOW_US) == 2_500
    assert retry_after_ms({**both, "retry-after": "3"}, NOW_US) == 3_000
    assert retry_after_ms({"retry-after-ms": "40"}, NOW_US) == 40


def test_a_clients_error_has_a_cooldown_only_where_the_server_gave_one():
    assert verdict(400, {}, NOW_US).retry_after_ms is None
    assert verdict(409, {"retry-after": "2"}, NOW_US) == Verdict(
        ended="rejected", reason="PROVIDER_CONFLICT", retry_after_ms=2_000
    )
    assert verdict(425, {}, NOW_US).reason == "PROVIDER_TOO_EARLY"


@given(st.integers(0, 999), st.text(max_size=40))
def test_no_status_and_no_header_is_a_fault_and_a_cooldown_has_bounds(status, header):
    told = verdict(status, {"retry-after": header}, NOW_US)
    assert told.retry_after_ms is None or 0 <= told.retry_after_ms <= RETRY_AFTER_LIMIT_MS
