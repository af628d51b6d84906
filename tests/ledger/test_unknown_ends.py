"""LED-6: of a request's several attempts, the one that its unknown end hangs on is told apart."""

from hypothesis import given
from hypothesis import strategies as st

from ledger.queries.dossier import Dossier
from ledger.queries.unknowns import OpenUnknown
from ledger.rows import Stored
from tests import factories

ENDS = st.tuples(
    st.sampled_from(["route-a", "route-b"]),
    st.sampled_from(["unknown", "failed", "cancelled"]),
)


def kept(record):
    return Stored(record=record, seq=1, entry_hash=b"")


@given(st.lists(ENDS, min_size=1, max_size=4), st.permutations(range(4)), st.integers(0, 3))
def test_a_request_s_unknown_end_hangs_on_the_attempt_that_ended_when_it_did(ends, times, pick):
    """A later retry or hedge on the same route may have ended otherwise, and before."""
    lost = [number for number, (_, outcome) in enumerate(ends) if outcome == "unknown"]
    if not lost:
        return
    its_end = lost[pick % len(lost)]
    attempts = [
        factories.attempt(attempt_id=f"req.{number}", ordinal=number, route_id=route_id)
        for number, (route_id, _) in enumerate(ends)
    ]
    events = [
        factories.attempt_event(attempt_id=f"req.{number}", outcome=outcome, at_us=times[number])
        for number, (_, outcome) in enumerate(ends)
    ]
    receipt = factories.receipt(
        status="unknown", route_id=ends[its_end][0], ended_at_us=times[its_end]
    )
    found = Dossier(
        receipts=(kept(receipt),), prev_hash=None, chain_size=1, decision=None, identity=None,
        rates=None, reservations=(), settlements=(), attempts=tuple(map(kept, attempts)),
        attempt_events=tuple(map(kept, events)), trace_events=(),
    )  # fmt: skip
    hangs = [
        attempt.ordinal
        for attempt in attempts
        if OpenUnknown(
            reservation=factories.reservation(), attempt=attempt, receipt=kept(receipt), found=found
        ).answering
    ]
    assert hangs == [its_end]
