"""Values as trees of named fields, back again, and every fault of a tree by its path."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.demo.fleet import policy
from gateway.fleet_file.named import Fault, dotted, instant, instant_us, label_of, named, read
from gateway.policy.values import Route, RoutePolicy
from gateway.quota import Quota
from ledger.rates import Rate, RateTable
from tests.gateway.fleet_file.fleets import policies
from tests.policy_factories import course_policy, edge, replaced


def faults_of(kind: type, tree: object) -> list[str]:
    value, faults = read(kind, tree)
    assert value is None
    return [str(fault) for fault in faults]


def test_a_tree_names_the_fields_that_differ_from_their_default():
    tree = named(course_policy(edges=(edge("fast-v2", "long-context-v4"),)))
    assert sorted(tree) == ["edges", "models", "revision", "routes"]
    assert tree["edges"] == [
        {
            "from_route": "fast-v2",
            "to_route": "long-context-v4",
            "allowed_reasons": ["overloaded", "unhealthy", "deadline_risk"],
            "required_evaluation_suite": "suite-1",
            "quality_floor_milli": 800,
        }
    ]
    assert named(course_policy(), whole=True)["retry_after_ms"] == 1_000


@given(policies())
def test_a_tree_reads_back_as_the_value_that_it_was_made_of(value):
    assert read(RoutePolicy, named(value)) == (value, ())
    assert read(RoutePolicy, named(value, whole=True)) == (value, ())


def test_every_fault_is_told_by_its_path_and_no_value_is_repeated():
    tree = named(policy())
    tree["routes"][1]["queue_limit"] = "hunter2"
    tree["routes"][2]["regoin"] = "hunter2"
    tree["routes"][3]["max_input_tokens"] = True
    tree["routes"][3]["max_output_tokens"] = 2**63
    tree["routes"][4]["provider_kind"] = "hunter2"
    tree["routes"][4]["capabilities"] = "hunter2"
    tree["models"][0]["canary"]["arms"] = [7]
    del tree["revision"]
    assert faults_of(RoutePolicy, tree) == [
        "it: revision is missing. Add it.",
        "models[0].canary.arms[0]: it is no table of named fields. Give its fields by name.",
        "routes[1].queue_limit: it is not a whole number. Give a whole number.",
        "routes[2].regoin: there is no such field. Did you mean region.",
        "routes[3].max_input_tokens: it is not a whole number. Give a whole number.",
        "routes[3].max_output_tokens: it does not fit in 64 bits. Give a smaller number.",
        "routes[4].provider_kind: it is not one of kserve, openai, simulator. "
        "Give one of kserve, openai, simulator.",
        "routes[4].capabilities: it is no list. Put it in brackets.",
    ]


@pytest.mark.parametrize(
    ("value", "us"),
    [
        (datetime(2026, 12, 1, tzinfo=UTC), 1_796_083_200_000_000),
        (datetime(2026, 12, 1, 5, 30, tzinfo=timezone(timedelta(hours=5, minutes=30))),
         1_796_083_200_000_000),
        (datetime(2026, 12, 1, 0, 0, 0, 1, tzinfo=UTC), 1_796_083_200_000_001),
        (1_796_083_200_000_000, 1_796_083_200_000_000),
    ],
)  # fmt: skip
def test_a_moment_may_be_written_as_a_time_with_its_zone(value, us):
    table = {"version": "r", "effective_from_us": value, "currency": "USD", "rates": []}
    assert read(RateTable, table)[0] == RateTable(
        version="r", effective_from_us=us, currency="USD", rates=()
    )


def test_a_time_is_no_length_of_time_and_needs_its_zone():
    now = datetime(2026, 12, 1, tzinfo=UTC)
    assert faults_of(Quota, {"in_flight_limit": 1, "default_deadline_us": now}) == [
        "default_deadline_us: it is not a whole number. Give a whole number."
    ]
    table = {"version": "r", "effective_from_us": now.replace(tzinfo=None), "currency": "USD",
             "rates": []}  # fmt: skip
    assert faults_of(RateTable, table) == [
        "effective_from_us: the time has no zone. End it in Z or an offset."
    ]


@pytest.mark.parametrize("at_us", [-1, 2**62, datetime(9999, 12, 31, tzinfo=UTC)])
def test_a_time_that_no_calendar_would_show_is_no_time(at_us):
    """CST-7: one of the year 10000 in a published table could not be shown on any page again."""
    rate = {"key": "k", "input_micro_per_mtok": 1, "output_micro_per_mtok": 1,
            "cached_input_micro_per_mtok": 1, "valid_to_us": at_us}  # fmt: skip
    assert faults_of(Rate, rate) == [
        "valid_to_us: it is not in the years 1970 to 2999. Give another time."
    ]


def test_half_a_character_is_refused_by_its_path():
    """JSON can say it alone, as \\ud800; no ledger can keep it."""
    rate = {"key": "k\ud800", "input_micro_per_mtok": 1, "output_micro_per_mtok": 1,
            "cached_input_micro_per_mtok": 1}  # fmt: skip
    assert faults_of(Rate, rate) == ["key: it has half a character. Leave it out."]


@given(st.integers(0, 253_402_300_799_999_999))
def test_an_instant_is_exact_to_the_microsecond(us):
    assert instant_us(instant(us)) == us


def test_pairs_of_a_meter_and_its_price_are_lists_of_two():
    tree = named(
        Rate(key="k", input_micro_per_mtok=1, output_micro_per_mtok=1,
             cached_input_micro_per_mtok=1, meters=(("web_search", 5),))
    )  # fmt: skip
    assert tree["meters"] == [["web_search", 5]]
    assert read(Rate, tree)[0].meters == (("web_search", 5),)
    assert faults_of(Rate, tree | {"meters": [["web_search"]]}) == [
        "meters[0]: it is no list of 2. Give 2 values."
    ]


def test_with_its_tree_a_path_names_elements_by_what_identifies_them():
    tree = named(course_policy(edges=(edge("fast-v2", "long-context-v4"),)))
    assert dotted(("routes", 1, "prediction", "queue_us"), tree) == (
        "routes[long-context-v4].prediction.queue_us"
    )
    assert dotted(("edges", 0), tree) == "edges[fast-v2 -> long-context-v4]"
    assert (
        dotted(("routes", 1, "capabilities", 0), tree) == "routes[long-context-v4].capabilities[0]"
    )
    assert dotted(("routes", 9), tree) == "routes[9]"
    assert dotted(()) == "it"
    fault = Fault(path=("routes", 0, "queue_limit"), what="it is 0", action="Raise it")
    assert fault.shown(tree) == "routes[fast-v2].queue_limit: it is 0. Raise it."
    assert label_of({"key": "k", "provider": "", "region": "eu"}) == "k eu"
    assert label_of({"anything": 1}) is None


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
                    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))  # fmt: skip
def test_no_tree_at_all_is_anything_but_a_value_or_faults(tree):
    for kind in (RoutePolicy, Quota, RateTable, Route):
        value, faults = read(kind, tree)
        assert (value is None) == bool(faults)


def test_a_text_has_a_limit():
    tree = named(replaced(course_policy(), revision="r" * 2_001))
    assert faults_of(RoutePolicy, tree) == [
        "revision: it has 2001 characters of at most 2000. Shorten it."
    ]
