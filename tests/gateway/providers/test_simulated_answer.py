"""PRV-4, DLV-7: what the simulator honours of a call, and that it is plainly simulated."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.providers.simulated_answer import script_of
from gateway.schemas import accepted_schema, matches_schema
from gateway.submission import Message, Parameters
from tests import policy_factories as make
from tests.gateway.providers.calls import call

CAP = 900
ROUTE = make.route(address="sim:llama-3.1-8b-rtx4090")
SCHEMA = {
    "type": "object",
    "properties": {"tonnes": {"type": "integer", "minimum": 3}, "bay": {"enum": ["A", "B"]}},
    "required": ["tonnes"],
}
TOOLS = json.dumps(
    [
        {"type": "function", "function": {"name": "weigh", "parameters": SCHEMA}},
        {"type": "function", "function": {"name": "gate", "parameters": {}}},
    ]
)


def script(**fields):
    return script_of(call(ROUTE, **{"max_output_tokens": CAP, **fields}), "seed")


def shown(of):
    return "".join(of.texts)


def test_words_are_plainly_simulated_and_the_same_for_the_same_seed():
    first, again = script(ignore_eos=True), script(ignore_eos=True)
    assert shown(first).startswith("Simulated answer:")
    assert first == again
    assert (len(first.texts), first.finish) == (CAP, "length")


def test_a_stop_sequence_ends_the_answer_before_it_and_its_tokens_count():
    whole = script(ignore_eos=True)
    text = shown(whole)
    stop = text[30:39]  # begins and ends inside a token
    stopped = script(ignore_eos=True, parameters=Parameters(stop=("never there", stop)))
    assert shown(stopped) == text[: text.index(stop)]
    assert stopped.finish == "stop"
    generated = "".join(whole.texts[: len(stopped.texts)])
    assert stop in generated
    assert stop not in "".join(whole.texts[: len(stopped.texts) - 1])


@given(st.integers(0, 400), st.integers(1, 40), st.integers(1, 60))
def test_whatever_the_stop_the_text_is_what_stands_before_it(at, length, cap):
    whole = script(ignore_eos=True, max_output_tokens=cap)
    text = shown(whole)
    stop = text[at : at + length] or "no such words"
    stopped = script(ignore_eos=True, max_output_tokens=cap, parameters=Parameters(stop=(stop,)))
    before, found, _ = text.partition(stop)
    assert shown(stopped) == (before if found else text)
    assert stopped.finish == ("stop" if found else "length")
    assert len(stopped.texts) <= cap


def test_an_answer_under_a_schema_is_valid_under_it():
    answer = script(schema=SCHEMA)
    assert matches_schema(shown(answer), SCHEMA)
    assert answer.finish == "stop"
    assert script(schema=SCHEMA, max_output_tokens=2).finish == "length"


@pytest.mark.parametrize(
    ("choice", "called"),
    [
        (None, "weigh"),
        ('"auto"', "weigh"),
        ('"required"', "weigh"),
        ('{"type":"function","function":{"name":"gate"}}', "gate"),
        ('"none"', None),
    ],
)
def test_a_tool_is_called_as_the_choice_says_with_arguments_that_fit_it(choice, called):
    answer = script(tools_json=TOOLS, parameters=Parameters(tool_choice_json=choice))
    assert answer.function == called
    assert answer.finish == ("stop" if called is None else "tool_calls")
    if called == "weigh":
        assert matches_schema(shown(answer), accepted_schema(SCHEMA))
    if called is not None:
        assert isinstance(json.loads(shown(answer)), dict)
        first, *rest = [answer.piece(index) for index in range(len(answer.texts))]
        assert (first.text, first.tool_calls[0].name) == ("", called)
        assert first.tool_calls[0].call_id.startswith("call_simulated_")
        assert all(each.tool_calls[0].name is None for each in rest)


def test_after_a_tools_result_the_answer_is_words_unless_a_call_is_required():
    calls = '[{"id":"c1","type":"function","function":{"name":"weigh","arguments":"{}"}}]'
    messages = (
        Message(role="user", content="Weigh it."),
        Message(role="assistant", content="", tool_calls_json=calls),
        Message(role="tool", content="12 t", tool_call_id="c1"),
    )
    assert script(tools_json=TOOLS, messages=messages).function is None
    required = Parameters(tool_choice_json='"required"')
    assert script(tools_json=TOOLS, messages=messages, parameters=required).function == "weigh"


def test_a_call_that_is_cut_off_says_length():
    cut = script(tools_json=TOOLS, max_output_tokens=2)
    assert (cut.function, cut.finish, len(cut.texts)) == ("weigh", "length", 2)


def calling(schema, **fields):
    tool = {"type": "function", "function": {"name": "weigh", "parameters": schema}}
    return script(tools_json=json.dumps([tool]), **fields)


def test_each_call_has_an_id_of_its_own_that_is_the_same_when_it_is_made_again():
    ids = [script(tools_json=TOOLS, attempt_id=f"req_{n}.0").call_id for n in range(50)]
    assert len(set(ids)) == 50
    assert ids[7] == script(tools_json=TOOLS, attempt_id="req_7.0").call_id
    assert all(re.fullmatch("call_simulated_[0-9a-f]{16}", each) for each in ids)


@pytest.mark.parametrize(
    ("parameters", "arguments"),
    [
        (None, {}),
        ({"type": "object", "properties": {"n": {"pattern": "^[A-Z]{3}$", "type": "string"}},
          "required": ["n"]}, {"n": "AAA"}),
        ({"properties": {"n": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}}, "required": ["n"]},
         {"n": {"n": None}}),
        ({"type": ["object", "null"], "required": ["a"], "additionalProperties": {"const": 1}},
         {"a": 1}),
    ],
)  # fmt: skip
def test_arguments_keep_patterns_and_end_a_schema_that_refers_to_itself(parameters, arguments):
    answer = calling(parameters)
    assert (answer.function, answer.finish) == ("weigh", "tool_calls")
    assert json.loads(shown(answer)) == arguments


@pytest.mark.parametrize(
    ("parameters", "why"),
    [
        ({"required": ["n"], "properties": {"n": {"type": "string", "pattern": "(?=a)b"}}},
         "pattern is not of a simple kind"),
        ({"patternProperties": {"a": {}}},
         "the JSON schema uses patternProperties, which is not supported"),
        ({"$ref": "#"}, "the JSON schema has a $ref that comes back to itself"),
        ({"type": "strin"}, "the JSON schema is not valid at type"),
        ({"type": "string"}, "a call's arguments are an object, and its type is another"),
        ({"required": ["a"], "additionalProperties": False},
         "false, or a $ref that never ends, allows no value"),
    ],
)  # fmt: skip
def test_where_no_arguments_can_be_made_nothing_is_called_and_the_words_say_why(parameters, why):
    answer = calling(parameters, parameters=Parameters(tool_choice_json='"required"'))
    assert (answer.function, answer.finish) == (None, "stop")
    assert shown(answer) == (f"Simulated answer: no JSON was found that fits the schema: {why}.")
