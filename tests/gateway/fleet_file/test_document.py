"""A fleet file as text: any text is a fleet or problems with their place; names stand for ids."""

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.demo.fleet import FAST_V2, IDENTITIES, TENANTS, policy, rate_table
from gateway.fleet_file.document import TEXT_LIMIT_BYTES, Fleet, read_fleet, write_fleet
from gateway.fleet_file.identities import identity_of
from gateway.fleet_file.secrets import credential_faults, looks_like_credential
from gateway.fleet_file.where import place_of
from gateway.policy.validation import problems
from tests.factories import NOW_US
from tests.gateway.fleet_file.fleets import fleets, policies
from tests.gateway.operations.publishing import SECRETS
from tests.policy_factories import replaced

DEMO = Fleet(
    tenants=TENANTS,
    identities={f"name {place}": identity_of(each) for place, each in enumerate(IDENTITIES)},
    rate_tables=(rate_table(NOW_US),),
    policy=policy(),
)
TEXT = write_fleet(DEMO)
PLACED = re.compile("line [0-9]+, column [0-9]+: .+", re.DOTALL)


def test_a_file_names_identities_and_leaves_out_what_follows_from_them():
    assert read_fleet(TEXT).fleet == DEMO
    assert "tokenizer_revision" not in TEXT[TEXT.index("[policy]") :]
    assert 'identity_id = "name 0"' in TEXT
    assert f'"{FAST_V2.identity_id}"' not in TEXT
    assert "effective_from_us = 2025-11-24T16:00:00Z" in TEXT
    assert "budget_pico = 40_000_000_000_000" in TEXT


@given(fleets())
def test_a_fleet_is_read_as_it_was_written(fleet):
    reading = read_fleet(write_fleet(fleet))
    assert (reading.fleet, reading.problems) == (fleet, ())


@given(policies())
def test_so_is_a_policy_that_makes_no_sense(value):
    fleet = Fleet(policy=value)
    reading = read_fleet(write_fleet(fleet))
    # Names that no file could hold apart from the ids that they stand for are told, not misread.
    assert reading.fleet == fleet or any("identity" in each for each in reading.problems)


@given(st.text() | st.text("[]{}=.\"'\n,#policyroutestenants01", max_size=80))
def test_any_text_is_a_fleet_or_problems_each_with_its_place(text):
    reading = read_fleet(text)
    assert (reading.fleet is None) == bool(reading.problems)
    for problem in reading.problems:
        assert PLACED.fullmatch(problem), problem


@given(st.data())
def test_a_file_with_a_line_lost_or_doubled_or_cut_is_read_or_refused_with_the_place(data):
    lines = TEXT.split("\n")
    place = data.draw(st.integers(0, len(lines) - 1))
    change = data.draw(st.sampled_from(["lost", "doubled", "cut", "other"]))
    line = lines[place]
    lines[place : place + 1] = {
        "lost": [],
        "doubled": [line, line],
        "cut": [line[: len(line) // 2]],
        "other": [line.split("=")[0] + "= [[]]"],
    }[change]
    reading = read_fleet("\n".join(lines))
    assert (reading.fleet is None) == bool(reading.problems)
    for problem in reading.problems:
        assert PLACED.fullmatch(problem), problem


def test_a_file_has_a_limit_and_a_depth():
    (problem,) = read_fleet("#" * (TEXT_LIMIT_BYTES + 1)).problems
    assert problem == f"the file has {TEXT_LIMIT_BYTES + 1} bytes of at most {TEXT_LIMIT_BYTES}"
    for depth in (200, 400, 5_000):
        reading = read_fleet(f"a = {'[' * depth}{']' * depth}")
        assert reading.fleet is None
        assert reading.problems


@pytest.mark.parametrize("secret", SECRETS)
def test_what_looks_like_a_credential_is_found_wherever_it_stands(secret):
    for tree in ({"a": secret}, {"a": [{"b": f"x {secret}"}]}, {secret: 1}):
        (fault,) = credential_faults(tree)
        assert secret not in str(fault)


@pytest.mark.parametrize(
    "text",
    [
        "openai:https://api.example.com/v1?model=small-1&key_env=EXAMPLE_API_KEY",
        "openai:http://10.0.0.7:8000/v1?model=Meta-Llama-3.1-8B-Instruct-GPTQ-INT4&kv_tokens=9",
        "sim:llama-3.1-8b-rtx4090?kv_blocks=3600",
        "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        "basic authentication was dropped",
        "ask-sales-2024-q3",
        "mid_b2ca9085e368bce3fda61fca",
        "core-chat-v1/fast-2",
    ],
)
def test_what_fleets_are_made_of_is_no_credential(text):
    assert not looks_like_credential(text)
    assert credential_faults({"address": text}) == ()


def test_settings_and_fields_that_are_for_credentials_are_refused_whatever_they_hold():
    for tree in (
        {"address": "openai:https://h/v1?model=m&api_key=x"},
        {"address": "openai:https://h/v1?model=m&token=x"},
        {"address": "openai:https://user:word@h/v1"},
        {"address": "openai:https://h/v1?model=Ab3dEf6hIj9kLm2nOp5qRs8tUv1wXy4zA"},
        {"api_key": "x"},
        {"provider_token": "x"},
        {"password": "x"},
    ):
        assert len(credential_faults(tree)) == 1, tree
    assert credential_faults({"key": "route-a", "max_total_tokens": 9}) == ()


@given(policies())
def test_every_problem_of_a_policy_is_found_in_its_tree(value):
    whole = replaced(value, queue_shares=())
    for problem in problems(whole):
        path = place_of(problem, whole)
        node: Any = whole
        for part in path:
            node = getattr(node, part) if isinstance(part, str) else node[part]
        if problem.where.startswith(("route ", "model ", "edge ")):
            assert path[0] in ("routes", "models", "edges")
