"""Budgets from headers and metadata: exact, named, and never widened (BUD-1, BUD-2)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.api.budget import Asked, read_budget
from gateway.api.problems import Problem
from ledger.money import units_text

EVERYTHING = {
    "x-deadline-ms": "3000",
    "x-max-cost-units": "0.0036",
    "x-max-input-tokens": "8192",
    "x-max-total-tokens": "9000",
    "x-slo-ttft-ms": "500",
    "x-slo-tpot-ms": "12.5",
    "x-priority": "batch",
    "x-user-path": "evaluation",
    "x-task-type": "summarise",
    "x-required-capabilities": "vision, tools,vision",
    "x-region": "eu-west,eu-north",
    "x-quality-floor": "0.85",
    "x-session-id": "s-1",
    "x-tag-cost-centre": "42-A",
}
ASKED = Asked(
    deadline_ms=3_000,
    max_cost_pico=3_600_000_000,
    max_input_tokens=8_192,
    max_total_tokens=9_000,
    ttft_objective_us=500_000,
    tpot_objective_us=12_500,
    priority="batch",
    user_path="evaluation",
    task_type="summarise",
    required_capabilities=("tools", "vision"),
    allowed_regions=("eu-north", "eu-west"),
    quality_floor_milli=850,
    session_id="s-1",
    tags=(("cost-centre", "42-A"),),
)


def test_headers_and_metadata_say_the_same():
    plain = {name.removeprefix("x-"): value for name, value in EVERYTHING.items()}
    underscored = {name.replace("-", "_"): value for name, value in plain.items()}
    assert read_budget(EVERYTHING, {}) == ASKED
    assert read_budget({}, EVERYTHING) == ASKED
    assert read_budget({}, plain) == ASKED
    assert read_budget({}, underscored) == ASKED
    assert read_budget({}, {"deadline_ms": 3_000}) == Asked(deadline_ms=3_000)


def test_what_is_left_out_is_left_to_the_defaults():
    assert read_budget({}, {}) == Asked()


@pytest.mark.parametrize("text", ["0", "0.000", "-1", "1.0001", "1e3", "soon", "", "999999999999"])
def test_an_objective_that_is_no_duration_is_refused_by_name(text):
    problem = read_budget({"x-slo-ttft-ms": text}, {})
    assert isinstance(problem, Problem) and problem.param == "x-slo-ttft-ms"


def test_a_header_wins_over_metadata_and_unknown_names_are_left_alone():
    asked = read_budget(
        {"x-priority": "batch", "x-forwarded-for": "1.2.3.4"},
        {"priority": "normal", "trace": "abc"},
    )
    assert asked == Asked(priority="batch")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("x-deadline-ms", "3000.5"),
        ("x-deadline-ms", "soon"),
        ("x-deadline-ms", "604800001"),
        ("x-deadline-ms", "٣"),
        ("x-max-cost-units", "-1"),
        ("x-max-cost-units", "1e3"),
        ("x-max-cost-units", "nan"),
        ("x-max-cost-units", "0.0000000000001"),
        ("x-max-cost-units", "9223373"),
        ("x-priority", "urgent"),
        ("x-user-path", "front"),
        ("x-quality-floor", "1.001"),
        ("x-quality-floor", "0.8501"),
        ("x-required-capabilities", "a b"),
        ("x-required-capabilities", ","),
        ("x-region", ""),
        ("x-region", " , ,"),
        ("x-region", ",".join(f"r{n}" for n in range(17))),
        ("x-task-type", ""),
        ("x-session-id", "with space"),
    ],
)
def test_a_value_that_cannot_be_used_is_named_and_not_quoted(name, value):
    problem = read_budget({name: value}, {})
    assert isinstance(problem, Problem)
    assert (problem.code, problem.param) == ("INVALID_REQUEST", name)
    assert problem.message.startswith(f"{name} must be ")
    assert value.strip(" ,") == "" or f"'{value}'" not in problem.message


@pytest.mark.parametrize("name", ["region", "x-region", "required_capabilities"])
def test_an_empty_list_in_metadata_is_not_read_as_no_restriction(name):
    problem = read_budget({}, {name: " , "})
    assert isinstance(problem, Problem)
    assert problem.param == "metadata." + name.removeprefix("x-").replace("_", "-")


@pytest.mark.parametrize(
    "metadata",
    [
        {"deadline_ms": 3_000, "x-deadline-ms": 3_000},
        {"deadline-ms": 1, "Deadline_MS": 2},
        {"tag-team": "a", "x_tag_team": "b"},
    ],
)
def test_two_spellings_of_one_field_are_refused(metadata):
    problem = read_budget({}, metadata)
    assert isinstance(problem, Problem)
    assert problem.param in ("metadata.deadline-ms", "metadata.tag-team")
    assert problem.message.endswith("came in more than one spelling; send one.")


def test_two_spellings_of_a_name_that_means_nothing_here_are_left_alone():
    assert read_budget({}, {"trace_id": "a", "trace-id": "b"}) == Asked()


@pytest.mark.parametrize(
    "tags",
    [
        {f"x-tag-{n}": "a" for n in range(9)},
        {"x-tag-": "a"},
        {"x-tag-ä": "a"},
        {"x-tag-a": ""},
        {"x-tag-a": "line\nbreak"},
        {"x-tag-a": "a" * 65},
    ],
)
def test_tags_are_few_short_and_plain(tags):
    assert isinstance(read_budget(tags, {}), Problem)


@pytest.mark.parametrize("value", ["0", "-1"])
def test_a_budget_that_is_not_positive_is_left_to_admission(value):
    assert read_budget({"x-deadline-ms": value}, {}) == Asked(deadline_ms=int(value))


@given(st.integers(0, 2**63 - 1))
def test_a_cost_in_units_is_read_to_the_pico_unit(pico):
    assert read_budget({"x-max-cost-units": units_text(pico)}, {}) == Asked(max_cost_pico=pico)


@given(st.dictionaries(st.sampled_from([*EVERYTHING, "x-tag-a"]), st.text(max_size=20)))
def test_any_text_is_a_budget_or_a_problem(headers):
    assert isinstance(read_budget(headers, {}), Asked | Problem)
