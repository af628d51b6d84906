"""Headers about a tenant's minute and the gateway's own time; hints of a client's patience."""

import pytest

from gateway.api.allowance import allowance_headers, overhead_header, patience_ms
from tests.factories import NOW_US
from tests.gateway.api.client import Client, Running, SmallGateway
from tests.policy_factories import tenant


def test_what_is_left_of_the_minute_is_said_in_both_ways():
    state = tenant(
        requests_per_minute=60, requests_in_minute=59, requests_free_ms=0,
        tokens_per_minute=1_000, tokens_in_minute=1_000, tokens_free_ms=1_500,
    )  # fmt: skip
    assert dict(allowance_headers(state)) == {
        b"x-ratelimit-limit-requests": b"60",
        b"x-ratelimit-remaining-requests": b"1",
        b"x-ratelimit-reset-requests": b"0ms",
        b"x-ratelimit-limit-tokens": b"1000",
        b"x-ratelimit-remaining-tokens": b"0",
        b"x-ratelimit-reset-tokens": b"1500ms",
        b"ratelimit-policy": b'"requests";q=60;w=60, "tokens";q=1000;w=60',
        b"ratelimit": b'"requests";r=1;t=0, "tokens";r=0;t=2',
    }


def test_a_tenant_without_limits_is_told_of_none():
    assert allowance_headers(None) == ()
    assert allowance_headers(tenant(requests_per_minute=None, tokens_per_minute=None)) == ()


def test_the_overhead_is_the_time_until_a_backend_has_the_call():
    assert overhead_header(1_000, 3_345) == ((b"x-weighbridge-overhead-ms", b"2.345"),)
    assert overhead_header(1_000, None) == overhead_header(1_000, 999) == ()


@pytest.mark.parametrize(
    ("text", "stream", "expected"),
    [("600", False, 600_000), ("2.5", False, 2_500), ("2.5", True, None),
     ("", False, None), ("NaN", False, None), ("-1", False, None), ("0", False, None)],
)  # fmt: skip
def test_a_clients_patience_is_read_where_it_bounds_the_whole(text, stream, expected):
    assert patience_ms({"x-stainless-read-timeout": text}, stream) == expected


def test_an_answer_says_the_overhead_and_what_is_left(ledger_path):
    gateway = SmallGateway(ledger_path)
    gateway.journey.run = Running(handed_over_us=NOW_US + 700)
    gateway.tenant_state = tenant(requests_per_minute=10, requests_in_minute=1)
    for stream in (False, True):
        reply = Client(gateway).chat(stream=stream, headers={"x-stainless-read-timeout": "30"})
        assert reply.headers["x-weighbridge-overhead-ms"] == "0.700"
        assert reply.headers["x-ratelimit-remaining-requests"] == "9"
    assert [each.patience_ms for each in gateway.journey.submissions] == [30_000, None]
