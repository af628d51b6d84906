"""PRV-4, DLV-4: the simulator's JSON is valid under the schema that was asked for, or says why not.

"Valid" is what the gateway's own judge says of the answer's text.
"""

import json
import re
from datetime import date

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from gateway.providers import simulated_json
from gateway.providers.simulated_json import RETRY_PARTS_LIMIT, Unmet, json_text
from gateway.providers.simulated_pattern import text_matching
from gateway.schemas import accepted_schema, matches_schema, schema_to_make_by

PARTS = 2_000


def of(**properties):
    return {"type": "object", "properties": properties, "required": sorted(properties)}


def made(schema, seed="s"):
    return json_text(seed, accepted_schema(schema), PARTS)


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}, 1 / 64),
        ({"type": "number", "minimum": 0.5, "maximum": 0.5}, 0.5),
        ({"type": "number", "minimum": 0.25, "multipleOf": 0.1}, 0.4),
        ({"type": "integer", "minimum": 5.5}, 6),
        ({"type": "integer", "exclusiveMaximum": -5}, -6),
        ({"type": "integer", "minimum": 1, "multipleOf": 6, "allOf": [{"multipleOf": 4}]}, 12),
        ({"type": "integer", "minimum": 1e30}, 1e30),
        ({"type": "array", "items": {"type": "integer"}, "minItems": 3, "uniqueItems": True},
         [0, 1, 2]),
        ({"type": "array", "items": {"enum": [1, 2]}, "maxItems": 0}, []),
        ({"prefixItems": [{"type": "integer"}, {"type": "null"}], "items": False, "minItems": 2},
         [0, None]),
        ({"type": "array", "contains": {"const": 7}, "minContains": 2}, [7, 7]),
        ({"type": "object", "minProperties": 2, "additionalProperties": {"type": "integer"}},
         {"simulated": 0, "simulated1": 1}),
        (of(a={"const": 1}) | {"dependentRequired": {"a": ["b"], "b": ["c"]}},
         {"a": 1, "b": "simulated", "c": "simulated"}),
        ({"allOf": [of(a={"type": "null"}), of(b={"type": "null"})]}, {"a": None, "b": None}),
        (of(k={"const": 1}) | {"oneOf": [{"required": ["k"]}, {"required": ["z"]}]}, {"k": 1}),
        (of(a={"type": "integer"}) | {
            "if": {"properties": {"a": {"const": 0}}}, "then": {"required": ["b"]},
            "additionalProperties": {"const": 2},
         }, {"a": 0, "b": 2}),
        ({"not": {"type": "string"}}, {}),
        ({"anyOf": [False, {"type": "boolean", "not": {"const": True}}]}, False),
        ({"enum": ["a", 3], "type": "integer"}, 3),
        ({"type": "string", "minLength": 11, "maxLength": 11}, "simulated--"),
        ({"type": ["string", "null"], "maxLength": 3, "not": {"type": "string"}}, None),
        (of(a={"const": 1}) | {"dependentSchemas": {"a": of(b={"const": 2})}}, {"a": 1, "b": 2}),
        ({"type": "object", "properties": {"a": False, "b": {"const": 1}}, "maxProperties": 1},
         {"b": 1}),
    ],
    ids=lambda given: "+".join(given) if isinstance(given, dict) else "",
)  # fmt: skip
def test_each_common_keyword_is_met_by_the_value(schema, value):
    text = made(schema)
    assert text == made(schema)
    assert matches_schema(text, accepted_schema(schema))
    assert json.loads(text) == value


@pytest.mark.parametrize("name", ["date", "email", "uuid", "ipv4", "ipv6", "idn-email", "regex"])
def test_a_string_has_the_format_that_its_schema_names(name):
    schema = {"type": "string", "format": name}
    judge = Draft202012Validator(schema, format_checker=Draft202012Validator.FORMAT_CHECKER)
    several = {"type": "array", "items": schema, "minItems": 40, "uniqueItems": True}
    for value in json.loads(made(several)):
        judge.validate(value)


def test_a_time_is_written_as_rfc_3339_says():
    asked = of(at={"format": "date-time"}, day={"format": "date"}, clock={"format": "time"})
    value = json.loads(made(asked))
    assert (value["at"], value["clock"]) == ("2026-01-01T08:00:00Z", "00:00:00Z")
    assert date.fromisoformat(value["day"])


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ({"type": "string", "minLength": 5, "maxLength": 2}, "minLength is above maxLength"),
        (of(a=False), "false, or a $ref that never ends, allows no value"),
        ({"type": "integer", "exclusiveMinimum": 1, "exclusiveMaximum": 2},
         "no number lies within the bounds"),
        ({"allOf": [{"type": "string"}, {"type": "null"}]}, "its types exclude each other"),
        ({"enum": [1], "type": "string"}, "no value of its enum or const is valid"),
        ({"type": "array", "minItems": 3, "maxItems": 2}, "minItems is above maxItems"),
        ({"items": {"type": "null"}, "type": "array", "minItems": 2, "uniqueItems": True},
         "uniqueItems asks for more different items than were found"),
        ({"not": {}}, "no valid value was found at not"),
    ],
)  # fmt: skip
def test_of_a_schema_that_contradicts_itself_it_says_so_by_its_keywords(schema, why):
    assert made(schema) == Unmet(why=why)


def test_what_is_tried_is_bounded_also_where_nothing_can_fit():
    schema: dict = {"not": {}}
    for _ in range(9):
        schema = {"type": "array", "items": schema, "minItems": 1, "not": {"const": 1}}
    judged = []

    def refused(value, schema):
        judged.append(schema)
        return False

    maker = simulated_json._Maker(PARTS, refused)
    with pytest.raises(simulated_json._GaveUp):
        maker.value([schema], "s", 0, 0)
    assert len(judged) <= RETRY_PARTS_LIMIT / simulated_json.LEAST_RETRY_PARTS
    assert made(schema).why.endswith("no variation within the limits is valid")


def test_a_value_of_more_parts_than_the_limit_is_not_made(monkeypatch):
    monkeypatch.setattr(simulated_json, "PARTS_LIMIT", 200)
    schema = {"type": "array", "minItems": 1_000, "items": {"type": "array", "minItems": 1_000}}
    asked = json_text("s", schema, PARTS)
    assert asked == Unmet(why="it asks for more than 200 parts")


bounds = st.integers(-30, 30).flatmap(
    lambda low: st.fixed_dictionaries(
        {"type": st.just("integer"), "minimum": st.just(low), "exclusiveMaximum": st.just(low + 7)},
        optional={"multipleOf": st.sampled_from([1, 2, 3, 0.5])},
    )
)
leaves = st.one_of(
    bounds,
    st.sampled_from(
        [
            {"type": "number", "exclusiveMinimum": -0.5, "exclusiveMaximum": -0.25},
            {"type": "string", "format": "uuid"},
            {"type": "string", "maxLength": 2},
            {"enum": ["a", 2, None]},
            {"not": {"type": ["string", "object"]}},
            {"type": ["null", "boolean"], "not": {"type": "null"}},
        ]
    ),
)


def composed(inner):
    pair = st.tuples(inner, inner)
    names = st.dictionaries(st.sampled_from("abcd"), inner, min_size=1, max_size=3)
    return st.one_of(
        pair.map(lambda two: {"allOf": [of(a=two[0]), of(b=two[1])], "minProperties": 3}),
        pair.map(lambda two: {"type": "array", "prefixItems": list(two), "contains": two[1]}),
        pair.map(lambda two: {"anyOf": [{"allOf": [False, two[0]]}, two[1]]}),
        pair.map(lambda two: {"oneOf": [of(a=two[0]), of(b=two[1]) | {"maxProperties": 1}]}),
        inner.map(lambda one: {"type": "array", "items": one, "minItems": 2}),
        st.lists(bounds, min_size=1, max_size=2).map(
            lambda of: {"type": "array", "items": of[0], "minItems": 2, "uniqueItems": True}
            if "multipleOf" not in of[0] else {"type": "array", "maxItems": 0}
        ),
        names.map(lambda named: of(**named) | {"dependentRequired": {"a": ["e"], "e": ["f"]}}),
        inner.map(
            lambda one: {
                "type": "object",
                "properties": {"a": {"type": "boolean"}},
                "if": {"required": ["a"]},
                "then": of(b=one),
                "else": {"required": ["c"]},
            }
        ),
    )  # fmt: skip


@settings(max_examples=30)  # each is made twice and judged
@given(st.recursive(leaves, composed, max_leaves=5), st.text("xyz", max_size=3))
def test_a_value_made_under_any_satisfiable_schema_is_valid_and_the_same_for_a_seed(schema, seed):
    accepted = accepted_schema(schema)
    text = json_text(seed, accepted, PARTS)
    assert not isinstance(text, Unmet), text
    assert matches_schema(text, accepted)
    assert text == json_text(seed, accepted, PARTS)


PATTERNS = [
    "^[A-Z]{3}$", r"^\d{4}-\d{2}$", "^(foo|bar)+x?$", r"^[^@\s]+@[^@]+\.com$", "abc",
    r"^\+?[1-9]\d{1,14}$", "^#[0-9a-fA-F]{6}$", "^(a+)+$", "", "^a?b*?c{2,}$", r"^(?:a|b)\.[\w-]+$",
]  # fmt: skip


@settings(max_examples=40)
@given(st.sampled_from(PATTERNS), st.integers(0, 40))
def test_a_text_made_for_a_simple_pattern_matches_it_and_is_as_long_as_asked(pattern, least):
    text = text_matching(pattern, least, None)
    if text is not None:
        assert re.search(pattern, text)
        assert len(text) >= least
    assert text_matching(pattern, 0, None) is not None


@pytest.mark.parametrize("pattern", ["(?=a)b", r"(a)\1", r"\bx", "a{9999}", "((a{200}){200}){200}"])
def test_of_a_pattern_that_is_not_simple_no_text_is_made(pattern):
    assert text_matching(pattern, 0, None) is None


def test_a_schema_that_refers_to_itself_ends_by_the_shortest_way():
    node = of(v={"type": "integer"}, next={"anyOf": [{"$ref": "#"}, {"type": "null"}]})
    text = json_text("s", schema_to_make_by(node), PARTS)
    assert isinstance(text, str)
    assert json.loads(text) == {"v": 0, "next": {"v": 0, "next": None}}
    tree = of(kids={"type": "array", "items": {"$ref": "#"}})
    assert json_text("s", schema_to_make_by(tree), PARTS) == '{"kids":[{"kids":[]}]}'
    endless = json_text("s", schema_to_make_by(of(next={"$ref": "#"})), PARTS)
    assert endless == Unmet(why="false, or a $ref that never ends, allows no value")
