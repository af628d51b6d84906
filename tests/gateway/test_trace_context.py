"""W3C Trace Context: carried on, a parent id for each attempt; invalid ones are replaced."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.trace_context import span_id, trace_of

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
FRESH = bytes(range(16))


def test_a_valid_context_keeps_its_trace_and_gets_a_new_parent_for_each_attempt():
    context = trace_of(f"00-{TRACE}-{PARENT}-01", "congo=t61rcWkgMzE, rojo=1", fresh=FRESH)
    assert (context.trace_id, context.parent_id, context.flags) == (TRACE, PARENT, "01")
    assert context.tracestate == "congo=t61rcWkgMzE,rojo=1"
    first, second = context.traceparent("r.0"), context.traceparent("r.1")
    assert first == f"00-{TRACE}-{span_id(TRACE, 'r.0')}-01"
    assert first != second and PARENT not in first


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        f"00-{TRACE}-{PARENT}",
        f"00-{TRACE.upper()}-{PARENT}-01",
        f"00-{'0' * 32}-{PARENT}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"ff-{TRACE}-{PARENT}-01",
        f"00-{TRACE}-{PARENT}-01-more",
        f"00-{TRACE}-{PARENT}-01" + "-x" * 500,
    ],
)
def test_an_invalid_context_is_replaced_by_a_new_trace_without_state(text):
    context = trace_of(text, "congo=1", fresh=FRESH)
    assert (context.trace_id, context.parent_id, context.tracestate) == (FRESH.hex(), None, None)


def test_a_later_version_is_read_as_far_as_it_is_known_and_sent_on_as_version_00():
    context = trace_of(f"cc-{TRACE}-{PARENT}-03-what", None, fresh=FRESH)
    assert (context.trace_id, context.flags) == (TRACE, "01")
    assert context.traceparent("r.0").startswith("00-")


@pytest.mark.parametrize(
    "state", ["=1", "UPPER=1", "a=1,a=2", "a=b=c", "a=\x01", ",".join(f"k{n}=1" for n in range(33))]
)
def test_an_invalid_state_is_dropped_and_the_trace_goes_on(state):
    context = trace_of(f"00-{TRACE}-{PARENT}-00", state, fresh=FRESH)
    assert (context.trace_id, context.flags, context.tracestate) == (TRACE, "00", None)


@given(st.text(max_size=80), st.text(max_size=80))
def test_whatever_is_sent_the_header_that_goes_on_is_valid(parent, state):
    context = trace_of(parent, state, fresh=FRESH)
    sent = context.traceparent("r.0")
    again = trace_of(sent, context.tracestate, fresh=bytes(16))
    assert (again.trace_id, again.tracestate) == (context.trace_id, context.tracestate)
