"""RTY-2: optional parameters that a provider refuses are named, and can be left out of a retry."""

import json

import pytest

from gateway.providers.http_exchange import OPTIONAL, refused_parameters
from gateway.providers.outcomes import Completed, Rejected
from gateway.submission import Parameters
from tests.faults.plan import Plan
from tests.gateway.providers.upstream import TEXT, against, ended

ASKED = Parameters(temperature=0.5, reasoning_effort="low", stop=("END",))


@pytest.mark.parametrize("kind", ["openai", "kserve"])
@pytest.mark.parametrize("status", [400, 422])
@pytest.mark.parametrize("shape", ["param", "loc", "message", "text"])
def test_rty_2_a_refusal_names_the_optional_parameters_in_each_shape(kind, status, shape):
    plan = Plan(protocol=kind, refuses=("temperature",), refuse_status=status, refuse_shape=shape)
    text, outcome = ended(plan, kind=kind, call_fields={"parameters": ASKED})
    assert isinstance(outcome, Rejected)
    assert (text, outcome.reason) == ("", "PROVIDER_PARAMETER_REFUSED")
    assert outcome.refused_parameters == ("temperature",)


@pytest.mark.parametrize("kind", ["openai", "kserve"])
def test_rty_2_the_same_call_without_them_passes_and_sends_all_the_rest(kind):
    async def scenario(upstream):
        plan = Plan(protocol=kind, refuses=("temperature", "ignore_eos"))
        _, first = await upstream.outcome(plan, parameters=ASKED, seed=7, ignore_eos=True)
        without = frozenset(first.refused_parameters)
        _, second = await upstream.outcome(
            plan, parameters=ASKED, seed=7, ignore_eos=True, without=without | {"ignore_eos"}
        )
        sent = upstream.server.exchanges[1].request
        return second, sent.get("parameters", sent)

    outcome, sent = against(scenario, kind=kind)
    assert isinstance(outcome, Completed)
    assert not {"temperature", "ignore_eos"} & sent.keys()
    assert (sent["seed"], sent["stop"]) == (7, ["END"])


def test_without_stream_options_usage_is_missing_and_so_an_estimate():
    async def scenario(upstream):
        _, first = await upstream.outcome(Plan(refuses=("stream_options",)))
        plan = Plan(refuses=("stream_options",), usage="missing")
        text, second = await upstream.outcome(plan, without=frozenset(first.refused_parameters))
        return text, second

    text, outcome = against(scenario)
    assert (text, outcome.usage_source) == (TEXT, "estimated")


@pytest.mark.parametrize("refused", ["stop", "messages", "max_tokens", "model"])
def test_what_the_answer_depends_on_is_never_left_out(refused):
    plan = Plan(refuses=(refused,))
    _, outcome = ended(plan, call_fields={"parameters": ASKED})
    assert (outcome.reason, outcome.refused_parameters) == ("PROVIDER_REFUSED", ())
    assert refused not in OPTIONAL


def test_a_refusal_that_names_no_parameter_of_ours_is_a_plain_one():
    _, plain = ended(Plan(status=400), call_fields={"parameters": ASKED})
    _, other = ended(Plan(status=429), call_fields={"parameters": ASKED})
    assert (plain.reason, plain.refused_parameters) == ("PROVIDER_REFUSED", ())
    assert (other.reason, other.refused_parameters) == ("PROVIDER_RATE_LIMITED", ())


@pytest.mark.parametrize(
    "body",
    [
        b"", b"no JSON", b"[1]", b"null", b"{}", b'{"error": 7}', b'{"detail": [7, {"loc": 3}]}',
        b'{"error": {"param": "messages[0].seed_of_doubt", "message": 3}}',
        json.dumps({"error": {"message": "the prompt says temperatures"}}).encode(),
    ],
)  # fmt: skip
def test_what_names_nothing_refuses_nothing(body):
    assert refused_parameters(body, {"temperature", "seed"}) == ()


def test_a_parameter_named_by_its_place_counts_before_the_words_of_the_message():
    body = {"error": {"param": "seed", "message": "seed and temperature don't go together"}}
    assert refused_parameters(json.dumps(body).encode(), {"temperature", "seed"}) == ("seed",)
