"""A first token's time: its four parts add up to it exactly, and none is negative (DLV-1)."""

from hypothesis import given
from hypothesis import strategies as st

from gateway.phases import measured
from gateway.providers.outcomes import Timings

DECIDED_US = 1_800_000_000_000_000
times_us = st.integers(0, 120_000_000)
maybe_us = st.none() | times_us


def test_the_four_parts_of_a_first_token_by_hand():
    """Waited 2 ms for the ledger and 118 ms in the queue; 260 ms prefill; 20 ms to the caller."""
    found = measured(
        Timings(queue_us=118_000, prefill_us=260_000, first_decode_us=0),
        decided_at_us=DECIDED_US,
        started_at_us=DECIDED_US + 2_000,
        first_piece_us=DECIDED_US + 381_000,
        first_byte_us=DECIDED_US + 400_000,
    )
    assert (found.queue_us, found.prefill_us, found.first_decode_us) == (120_000, 260_000, 0)
    assert (found.first_byte_network_us, found.first_token_us) == (20_000, 400_000)


def test_what_the_backend_does_not_tell_stays_unknown():
    found = measured(
        Timings(),
        decided_at_us=DECIDED_US,
        started_at_us=DECIDED_US + 2_000,
        first_piece_us=DECIDED_US + 300_000,
        first_byte_us=DECIDED_US + 305_000,
    )
    assert (found.queue_us, found.prefill_us, found.first_decode_us) == (None, None, None)
    assert (found.first_byte_network_us, found.first_token_us) == (5_000, 305_000)


def test_without_a_token_nothing_is_made_up():
    told = Timings(queue_us=118_000)
    found = measured(
        told,
        decided_at_us=DECIDED_US,
        started_at_us=DECIDED_US,
        first_piece_us=None,
        first_byte_us=None,
    )
    assert found == told


@given(
    queue_us=times_us, prefill_us=times_us, first_decode_us=maybe_us, waited_us=times_us,
    until_piece_us=times_us, until_byte_us=maybe_us,
)  # fmt: skip
def test_the_parts_add_up_and_none_is_negative_whatever_a_backend_claims(
    queue_us, prefill_us, first_decode_us, waited_us, until_piece_us, until_byte_us
):
    first_piece_us = DECIDED_US + waited_us + until_piece_us
    first_byte_us = None if until_byte_us is None else first_piece_us + until_byte_us
    found = measured(
        Timings(queue_us=queue_us, prefill_us=prefill_us, first_decode_us=first_decode_us),
        decided_at_us=DECIDED_US,
        started_at_us=DECIDED_US + waited_us,
        first_piece_us=first_piece_us,
        first_byte_us=first_byte_us,
    )
    parts = (
        found.queue_us, found.prefill_us, found.first_decode_us, found.first_byte_network_us,
    )  # fmt: skip
    known = [part for part in parts if part is not None]
    assert len(known) == 4 and min(known) >= 0
    seen_us = first_piece_us if first_byte_us is None else first_byte_us
    assert sum(known) == found.first_token_us == seen_us - DECIDED_US
