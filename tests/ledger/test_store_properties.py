"""Whatever callers do at once: each whole call stands or falls alone, and the chain has no gap."""

import shutil
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.errors import RecordRefused
from ledger.queries.holds import open_reservations
from ledger.reading import connect_read_only
from ledger.store import Store
from tests import factories
from tests.ledger.tampering import verified

KEYS = st.integers(0, 5)
CALLS = st.lists(
    st.lists(st.tuples(st.sampled_from(["reserve", "settle", "event", "bad"]), KEYS), max_size=4),
    max_size=30,
)


def record(kind, key):
    if kind == "reserve":
        return factories.reservation(key)
    if kind == "settle":
        return factories.settlement(key)
    return factories.trace_event(key, **({"snapshot_revision": 2**64} if kind == "bad" else {}))


def model(calls):
    """The calls that can stand, in order: none with a bad record or a key that is taken."""
    taken: set[tuple[str, int]] = set()
    accepted = []
    for call in calls:
        keys = [step for step in call if step[0] in ("reserve", "settle")]
        good = all(kind != "bad" for kind, _ in call)
        if good and len(set(keys)) == len(keys) and not taken & set(keys):
            taken |= set(keys)
            accepted.append(call)
    return accepted, taken


@settings(max_examples=30)
@given(calls=CALLS)
def test_each_call_stands_whole_or_not_at_all_whatever_stands_beside_it(ledger_template, calls):
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "ledger.sqlite3"
        shutil.copyfile(ledger_template, path)
        with Store.open(path) as store:
            futures = [store.append([record(*step) for step in call]) for call in calls]
            outcomes = []
            for call, future in zip(calls, futures, strict=True):
                try:
                    outcomes.append((call, future.result()))
                except RecordRefused:
                    continue
            size = store.head.size
        accepted, taken = model(calls)
        assert [call for call, _ in outcomes] == accepted
        places = [place.seq for _, appended in outcomes for place in appended]
        assert places == list(range(1, size + 1))
        faults = verified(path).faults
        assert {fault.kind for fault in faults} <= {"settlement"}  # one without its reservation
        reader = connect_read_only(path)
        held = {row.reservation_id for row in open_reservations(reader)}
        reader.close()
        reserved = {key for kind, key in taken if kind == "reserve"}
        settled = {key for kind, key in taken if kind == "settle"}
        assert held == {factories.reservation(key).reservation_id for key in reserved - settled}
