"""Ids sort by their time, are not to be guessed, and hold their alphabet."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.ids import completion_id, exchange_id, request_id

TIMES = st.integers(0, 2**55 - 2)
RANDOM = st.binary(min_size=10, max_size=10)


def test_an_id_is_time_and_randomness_in_crockfords_base32():
    assert request_id(0, bytes(10)) == "req_" + "0" * 27
    assert request_id(1, b"\xff" * 10) == "req_" + "0" * 10 + "1" + "z" * 16
    assert request_id(32, bytes(10)) == "req_" + "0" * 9 + "10" + "0" * 16
    assert exchange_id(0, bytes(10)) == "xch_" + "0" * 27


@given(TIMES, RANDOM, RANDOM)
def test_a_later_id_sorts_after_an_earlier_one(now_us, first, second):
    assert request_id(now_us, first) < request_id(now_us + 1, second)


@given(TIMES, RANDOM)
def test_ids_have_one_length_and_no_letter_that_is_read_as_another(now_us, random_bytes):
    made = request_id(now_us, random_bytes).removeprefix("req_")
    assert len(made) == 27
    assert set(made) <= set("0123456789abcdefghjkmnpqrstvwxyz")


@given(TIMES, RANDOM, RANDOM)
def test_different_randomness_makes_different_ids(now_us, first, second):
    assert (request_id(now_us, first) == request_id(now_us, second)) == (first == second)


def test_what_an_id_cannot_hold_is_refused():
    with pytest.raises(ValueError, match="no time"):
        request_id(2**55, bytes(10))
    with pytest.raises(ValueError, match="random bytes"):
        request_id(0, bytes(9))


def test_a_completion_carries_its_requests_name():
    made = request_id(1, bytes(10))
    assert completion_id(made) == "chatcmpl-" + made.removeprefix("req_")
