"""A caller's JSON schema: what is accepted, and that judging can't hurt the server (DLV-4)."""

import json
import sys

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.providers.simulated_json import Unmet
from gateway.providers.simulated_text import JSON_PIECE_CHARS, json_pieces, unmet_pieces
from gateway.schemas import NODES_LIMIT, BadSchema, accepted_schema, judge_of, matches_schema

POINT = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}
LAUGHS = {
    "$defs": {
        f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}, {"$ref": f"#/$defs/d{n + 1}"}]}
        for n in range(30)
    }
    | {"d30": {"type": "string"}},
    "$ref": "#/$defs/d0",
}


def pieces_of(schema, seed, most):
    pieces = json_pieces(seed, accepted_schema(schema), most)
    assert not isinstance(pieces, Unmet)
    return pieces


def deep(levels):
    schema: dict = {"type": "string"}
    for _ in range(levels):
        schema = {"type": "array", "items": schema}
    return schema


@pytest.mark.parametrize(
    "schema",
    [
        {"const": "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!", "pattern": "^(a+)+$"},
        {"properties": {"a": {"items": {"pattern": "x"}}}},
        {"patternProperties": {"^(a+)+$": {}}},
        {"propertyNames": {"pattern": "^(a+)+$"}},
        {"$ref": "#/nope"},
        {"$ref": "http://127.0.0.1:9/x"},
        {"$ref": "#"},
        {"allOf": [{"$ref": "#"}]},
        {"$dynamicRef": "#a"},
        {"properties": {"next": {"$ref": "#"}}},
        {"type": "array", "minItems": 200_000},
        {"type": "string", "minLength": 10**15},
        {"type": "string", "minLength": 1e300},
        {"type": "no such type"},
        {"required": "x"},
        LAUGHS,
        deep(60),
        {"enum": ["x" * 70_000]},
        {"anyOf": [{"type": "string"}] * (NODES_LIMIT + 1)},
    ],
    ids=lambda schema: next(iter(schema)),
)
def test_a_schema_that_could_not_be_judged_by_is_refused(schema):
    with pytest.raises(BadSchema) as refused:
        accepted_schema(schema)
    assert "aaaa" not in str(refused.value)


def test_references_inside_the_schema_are_inlined():
    schema = {"$defs": {"point": POINT}, "type": "array", "items": {"$ref": "#/$defs/point"}}
    assert accepted_schema(schema) == {"type": "array", "items": POINT}


def test_a_property_may_be_named_like_a_keyword():
    schema = {"type": "object", "properties": {"pattern": {"type": "string"}, "$ref": {}}}
    assert accepted_schema(schema) == schema


def test_an_answer_is_judged_by_the_accepted_schema():
    schema = accepted_schema({"$defs": {"point": POINT}, "$ref": "#/$defs/point"})
    assert matches_schema('{"x": 1}', schema)
    assert not matches_schema('{"x": "1"}', schema)
    assert not matches_schema('{"x": 1', schema)
    assert not matches_schema("1e999", {"type": "number", "multipleOf": 0.1})


values = st.recursive(
    st.sampled_from(
        [
            {"type": "integer", "minimum": 3},
            {"type": "number", "maximum": -1.5},
            {"type": "boolean"},
            {"type": "null"},
            {"type": "string", "minLength": 12},
            {"enum": ["a", 2, None]},
            {"const": {"k": [1]}},
        ]
    ),
    lambda inner: st.one_of(
        st.fixed_dictionaries({"type": st.just("array"), "items": inner, "minItems": st.just(2)}),
        st.dictionaries(st.text("abc", min_size=1, max_size=2), inner, max_size=3).map(
            lambda named: {"type": "object", "properties": named, "required": sorted(named)}
        ),
        st.lists(inner, min_size=1, max_size=2).map(lambda several: {"anyOf": several}),
    ),
    max_leaves=8,
)


@settings(max_examples=40)
@given(values, st.text("xyz", max_size=4))
def test_simulated_json_fits_its_schema_and_is_the_same_for_a_seed(schema, seed):
    pieces = pieces_of(schema, seed, 4_096)
    assert pieces == pieces_of(schema, seed, 4_096)
    assert matches_schema("".join(pieces), accepted_schema(schema))


@settings(max_examples=40)
@given(values, st.integers(1, 20))
def test_simulated_json_is_never_made_longer_than_the_cap_and_one(schema, most):
    pieces = pieces_of(schema, "s", most)
    assert len(pieces) <= most + 1
    assert all(len(piece) <= JSON_PIECE_CHARS for piece in pieces)


def test_a_wide_and_deep_schema_costs_no_more_than_the_cap():
    schema = {"type": "array", "minItems": 1_000, "items": deep(3) | {"minItems": 1_000}}
    assert len(pieces_of(schema, "s", 40)) == 41


def test_a_number_that_no_json_text_holds_is_not_made_and_the_answer_says_so():
    schema = accepted_schema({"type": "number", "exclusiveMinimum": sys.float_info.max})
    unmet = json_pieces("s", schema, 40)
    assert unmet == Unmet(why="no number was found within the bounds")
    said = "".join(unmet_pieces(unmet, 40))
    assert said == (
        "Simulated answer: no JSON was found that fits the schema: "
        "no number was found within the bounds."
    )
    assert len(unmet_pieces(unmet, 5)) == 6
    assert not matches_schema(said, schema)


parts = st.sampled_from([0, 0.0, 1, 1.0, True, False, None, "1", 1e300, [1], [1.0], {"a": 1}])


@settings(max_examples=40)
@given(st.lists(parts | st.lists(parts, max_size=2), max_size=4))
def test_unlike_items_are_judged_as_jsonschema_does(items):
    schema = {"uniqueItems": True}
    expected = jsonschema.Draft202012Validator(schema).is_valid(items)
    assert matches_schema(json.dumps(items), schema) == expected


def test_a_thousand_unlike_objects_are_judged_in_one_pass():
    class Counted(dict):
        compared = 0

        def __eq__(self, other):
            Counted.compared += 1
            return dict.__eq__(self, other)

        __hash__ = None

    judge = judge_of({"uniqueItems": True})
    assert judge([Counted(a=n) for n in range(1_000)], {"uniqueItems": True})
    assert Counted.compared == 0
