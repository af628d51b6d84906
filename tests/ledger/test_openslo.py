"""SLO-9: objectives as OpenSLO YAML, both ways."""

from dataclasses import replace
from fractions import Fraction

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger import openslo
from ledger.slo import HOUR_US, MINUTE_US, Action, BurnRule, Selector
from ledger.slo_defaults import DEFAULT_SLOS
from ledger.slo_rules import default_rules, problems


def as_imported(definition):
    return replace(definition, revision=0)


def test_what_is_exported_is_imported_as_it_was():
    parsed = openslo.load(openslo.dump(DEFAULT_SLOS))
    assert parsed.problems == ()
    assert parsed.definitions == tuple(as_imported(one) for one in DEFAULT_SLOS)


@settings(max_examples=50)
@given(
    st.integers(1, 999_999),
    st.integers(1, 90),
    st.sampled_from([Fraction(72, 5), Fraction(10, 3), Fraction(6)]),
    st.lists(st.sampled_from(["acme", "globex"]), unique=True),
    st.none() | st.tuples(st.integers(0, 10), st.integers(11, 9_999)),
)
def test_any_objective_that_may_be_declared_survives_the_way_there_and_back(
    target_ppm, days, factor, tenants, bucket
):
    definition = replace(
        DEFAULT_SLOS[0],
        revision=0,
        target_ppm=target_ppm,
        period_us=days * 24 * HOUR_US,
        selector=Selector(tenants=tuple(tenants), input_tokens=bucket, degraded=False),
        rules=(
            BurnRule(
                name="own", severity="page", factor=factor, long_us=HOUR_US, short_us=5 * MINUTE_US
            ),
        ),
        action=Action(kind="cut_route", target="route-a"),
    )
    if problems(definition):
        return
    assert openslo.load(openslo.dump([definition])).definitions == (definition,)


def foreign(**spec):
    """A document as another tool would write it, without annotations of ours."""
    metric = {"metricSource": {"type": "weighbridge", "spec": {"indicator": "valid_completion"}}}
    return {
        "apiVersion": "openslo/v1",
        "kind": "SLO",
        "metadata": {"name": "answers"},
        "spec": {
            "service": "chat",
            "indicator": {"spec": {"ratioMetric": {"good": metric, "total": metric}}},
            "timeWindow": [{"duration": "30d", "isRolling": True}],
            "budgetingMethod": "Occurrences",
            "objectives": [{"target": 0.995}],
            **spec,
        },
    }


def test_a_foreign_objective_gets_the_default_rules_and_opens_an_incident():
    (found,) = openslo.load(yaml.safe_dump(foreign())).definitions
    assert (found.slo_id, found.target_ppm) == ("answers", 995_000)
    assert found.rules == default_rules(995_000)[0]
    assert found.action == Action(kind="open_incident")


OTHER = {"metricSource": {"type": "Prometheus", "spec": {}}}


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ({"objectives": [{"target": 1}]}, "TARGET_IMPOSSIBLE"),
        ({"objectives": [{"target": 0.12345678}]}, "six decimals"),
        *(
            ({"objectives": [{"target": wrong}]}, "between 0 and 1")
            for wrong in (float("nan"), float("inf"), -0.5, 99.5)
        ),
        ({"objectives": []}, "objectives has one entry"),
        ({"timeWindow": [{"duration": ["30d"]}]}, "duration is text"),
        ({"budgetingMethod": "Timeslices"}, "Occurrences"),
        ({"timeWindow": [{"duration": "1M"}]}, "duration"),
        ({"timeWindow": [{"duration": "30d", "isRolling": False}]}, "rolling"),
        ({"indicator": {"spec": {"ratioMetric": {"good": OTHER, "total": OTHER}}}}, "weighbridge"),
    ],
)
def test_what_can_not_be_counted_here_is_refused_and_said(spec, says):
    parsed = openslo.load(yaml.safe_dump(foreign(**spec)))
    assert parsed.definitions == ()
    assert says in parsed.problems[0]


@pytest.mark.parametrize(
    "text",
    [
        *("", "- 1", "kind: Service", "a: [", "x: !!python/object:os.system {}"),
        *(opening * (openslo.SIZE_LIMIT_CHARS // len(opening)) for opening in ("{", "[", "- ")),
        *("{a: " * 100_000, "? " * 100_000, "---\n" * 1_000),
    ],
    ids=lambda text: text[:16],
)
def test_what_is_no_objective_is_a_problem_and_no_fault(text):
    parsed = openslo.load(text)
    assert parsed.definitions == ()
    assert parsed.problems


@pytest.mark.parametrize("place", ["displayName", "annotations"])
def test_what_is_text_is_never_written_out_of_nested_aliases(place):
    """Twelve levels of nine would be text for hours."""
    levels = ["a0: &a0 x"]
    levels += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 13)]
    text = yaml.safe_dump(foreign()).replace("metadata:", f"metadata:\n  {place}: PLACE", 1)
    inner = "*a12" if place == "displayName" else "{weighbridge/rules: *a12}"
    text = "\n".join([*levels, text.replace("PLACE", inner)])
    parsed = openslo.load(text)
    assert parsed.definitions == ()
    assert parsed.problems
    assert max(map(len, parsed.problems)) < 500


def test_two_of_one_name_are_refused():
    text = yaml.safe_dump_all([foreign(), foreign()])
    assert openslo.load(text).problems == ("answers is there twice",)
