"""Whatever the lines and attempts: it ties out, each has one class, and order changes nothing."""

import random

from hypothesis import given
from hypothesis import strategies as st

from ledger.invoices.values import KINDS, METERS
from ledger.reconcile.matching import compare
from ledger.reconcile.tying import tied_out
from ledger.reconcile.values import Binding, Coverage, Ours, Plan, Theirs, Tokens
from tests.ledger.reconcile.parts import DAY_US, START_US, ours, theirs

PICO = st.integers(-(10**22), 10**22)  # sums outgrow 64 bits
COST = st.integers(0, 2**63 - 1)
COUNT = st.integers(0, 2_000)
REQUEST = st.sampled_from([None, None, "p-1", "p-2"])
MODEL = st.sampled_from(["m", "n", None])
OUTCOME = st.sampled_from(["completed", "rejected", "failed", "unknown"])
DAY = st.integers(0, 2)


@st.composite
def attempts(draw: st.DrawFn) -> list[Ours]:
    return [
        ours(
            number,
            route_id=draw(st.sampled_from(["route-m", "route-n", "elsewhere"])),
            started_at_us=START_US + draw(DAY) * DAY_US + draw(st.integers(0, DAY_US - 1)),
            simulated=draw(st.booleans()),
            outcome=(outcome := draw(OUTCOME)),
            open=outcome == "unknown" and draw(st.booleans()),
            provider_request_id=draw(REQUEST),
            tokens=Tokens(uncached=draw(COUNT), cached=draw(COUNT), output=draw(COUNT)),
            cost_pico=draw(COST),
            late=draw(st.booleans()),
        )
        for number in range(draw(st.integers(0, 6)))
    ]  # fmt: skip


@st.composite
def lines(draw: st.DrawFn) -> list[Theirs]:
    found = []
    for number in range(draw(st.integers(0, 8))):
        start_us = START_US + draw(DAY) * DAY_US
        usage = draw(st.booleans())
        found.append(
            theirs(
                number,
                role="usage" if usage else "cost",
                kind="usage" if usage else draw(st.sampled_from(KINDS)),
                start_us=start_us,
                end_us=start_us + draw(st.integers(1, 2 * DAY_US)),
                model=draw(MODEL),
                meter=draw(st.sampled_from(sorted(METERS))),
                tokens=draw(st.none() | COUNT),
                pico=0 if usage else draw(PICO),
                uncertain_pico=draw(st.integers(0, 10**10)),
                provider_request_id=draw(REQUEST),
                repeats=draw(st.booleans()),
                late=draw(st.booleans()),
            )
        )
    return found


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    return Plan(
        provider="acme",
        bindings=(Binding(route_id="route-m", model="m"), Binding(route_id="route-n", model="n")),
        group_by=draw(st.sampled_from([(), ("model",), ("model", "tier")])),
        line_tolerance_pico=draw(st.sampled_from([0, 10**9])),
        tokens_tolerance=draw(st.sampled_from([0, 5])),
    )


@given(plan=plans(), ours_=attempts(), theirs_=lines(), seed=st.integers(0, 2**32))
def test_it_ties_out_and_order_changes_nothing(plan, ours_, theirs_, seed):
    """REC-2: ours + differences = theirs, to the pico unit; everything has exactly one class."""
    coverage = Coverage(empty=((START_US, START_US + DAY_US),))
    found = tied_out(compare(plan, ours_, theirs_, coverage), ours_, theirs_)
    assert found.ours_pico + sum(u.difference_pico for u in found.units) == found.theirs_pico
    for unit, one in enumerate(found.units):
        rows = [row for row in found.rows if row.unit == unit]
        assert len(rows) == len(one.attempts) + len(one.lines) > 0
        assert {row.class_name for row in rows} == {one.class_name}
    shuffled = random.Random(seed)
    other_ours, other_theirs = list(ours_), list(theirs_)
    shuffled.shuffle(other_ours)
    shuffled.shuffle(other_theirs)
    assert compare(plan, other_ours, other_theirs, coverage) == found
