"""PRV-4: every claim of the capability matrix held against what a backend gets and gives."""

import asyncio
import json
from typing import Any

import pytest

from gateway.providers.capabilities import KINDS, OF_KIND, capabilities_of
from gateway.providers.outcomes import Cancelled, Completed, Failed, Rejected, Unknown
from gateway.schemas import matches_schema
from gateway.submission import Parameters
from tests.faults.plan import Plan
from tests.gateway.providers.calls import call, kserve_route, route
from tests.gateway.providers.upstream import BRIEF, against, ended, events_of, simulated, whole

OVER_HTTP = ("openai", "kserve")
TOOLS = json.dumps([{"type": "function", "function": {"name": "weigh"}}])
ASKED = {
    "tools_json": TOOLS,
    "schema": {"type": "object"},
    "seed": 7,
    "ignore_eos": True,
    "parameters": Parameters(
        temperature=0.5, top_p=0.9, presence_penalty=1, frequency_penalty=-1, stop=("END",),
        logit_bias_json='{"7":1}', reasoning_effort="low", logprobs=True, top_logprobs=1,
        tool_choice_json='"auto"', parallel_tool_calls=True,
    ),
}  # fmt: skip
SAMPLING = (
    "temperature", "top_p", "presence_penalty", "frequency_penalty", "seed", "ignore_eos",
    "logit_bias", "reasoning_effort",
)  # fmt: skip
FAULTS: dict[str, Any] = {
    "credential_refused": {"status": 401},
    "request_refused": {"status": 400},
    "parameter_refused": {"refuses": ("temperature",)},
    "overloaded": {"status": 503},
    "internal_error": {"status": 500},
    "error_in_stream": {"error_after": 2},
    "stream_without_finish": {"end_after": 2},
    "garbage": {"garbage_after": 2},
    "connection_lost": {"die_after": 2},
    "silent": {"stall_after": 2},
    "lost_behind_gateway": {"status": 504},
    "model_changed": {"model_version": "2"},
}


def plan(kind, **fields):
    return Plan(protocol=kind, **fields)


def sent_by(kind):
    async def scenario(upstream):
        await upstream.outcome(plan(kind), **ASKED)
        sent = upstream.server.exchanges[0].request
        return {**sent, **sent.get("parameters", {})}

    return against(scenario, kind=kind)


@pytest.mark.parametrize("kind", OVER_HTTP)
def test_prv_4_a_parameter_reaches_the_backend_if_and_only_if_the_matrix_says_so(kind):
    claimed, sent = OF_KIND[kind], sent_by(kind)
    assert set(claimed.sampling) == set(SAMPLING) & sent.keys()
    assert claimed.stop is ("stop" in sent)
    assert claimed.tools is ("tools" in sent) is ("tool_choice" in sent)
    assert claimed.json_schema is ("response_format" in sent)
    assert claimed.logprobs is ("logprobs" in sent)


@pytest.mark.parametrize(
    ("kind", "error_class", "end"),
    [(kind, *each) for kind in OVER_HTTP for each in OF_KIND[kind].error_classes],
)
def test_prv_4_each_class_of_error_ends_as_the_matrix_says(kind, error_class, end):
    async def unreachable(upstream):
        await upstream.server.__aexit__()
        return await upstream.outcome(Plan())

    settings: dict[str, Any] = {"version": "1"} if error_class == "model_changed" else {}
    if error_class == "unreachable":
        _, outcome = against(unreachable, kind=kind)
    else:
        _, outcome = ended(
            plan(kind, **FAULTS[error_class]), kind=kind, patience=BRIEF, call_fields=ASKED,
            **settings,
        )  # fmt: skip
    assert outcome.status == end
    assert isinstance(outcome, Rejected | Failed | Unknown)
    assert (error_class == "parameter_refused") is (
        isinstance(outcome, Rejected) and outcome.refused_parameters != ()
    )


@pytest.mark.parametrize("kind", OVER_HTTP)
@pytest.mark.parametrize("close_cancels", [0, 1])
def test_prv_4_a_cancel_is_what_the_matrix_says_of_the_route(kind, close_cancels):
    async def scenario(upstream):
        upstream.server.plan = plan(kind, stall_after=2)
        attempt = upstream.start()
        events = events_of(attempt)
        await anext(events)
        attempt.cancel("CLIENT_GONE")
        outcome = [event async for event in events][-1]
        return upstream.provider.capabilities(upstream.route), outcome

    claimed, outcome = against(scenario, kind=kind, close_cancels=close_cancels)
    assert {"closing_acknowledges": Cancelled, "not_acknowledged": Unknown}[
        claimed.cancellation
    ] is type(outcome)


@pytest.mark.parametrize(
    ("kind", "settings", "told", "untold"),
    [
        ("openai", {}, "own", "missing"),
        ("kserve", {}, "running", "missing"),
        ("kserve", {"counts": "totals"}, "running", "missing"),
    ],
)
def test_prv_4_usage_is_told_and_stood_in_for_as_the_matrix_says(kind, settings, told, untold):
    declared = (route if kind == "openai" else kserve_route)(**settings)
    claimed = capabilities_of(declared)
    _, outcome = ended(plan(kind, usage=told), kind=kind, **settings)
    source = "counted" if claimed.usage_timing == "not_told" else "provider"
    assert outcome.usage_source == source
    assert claimed.tokenizer == ("route_revision" if source == "counted" else "backend")
    _, missing = ended(plan(kind, usage=untold), kind=kind, **settings)
    assert missing.usage_source == claimed.usage_missing


@pytest.mark.parametrize(
    ("kind", "settings"),
    [("openai", {}), ("openai", {"asks": "chat"}), ("openai", {"asks": "responses"}),
     ("kserve", {})],
)  # fmt: skip
def test_prv_4_an_enquiry_is_made_where_the_matrix_says_that_it_can_be(kind, settings):
    async def scenario(upstream):
        await upstream.provider.ask(upstream.route, "id-1")
        return upstream.provider.capabilities(upstream.route), upstream.server.asked

    claimed, asked = against(scenario, kind=kind, **settings)
    assert (claimed.status_enquiry == "by_provider_id") is (len(asked) == 1)


@pytest.mark.parametrize("kind", OVER_HTTP)
def test_prv_4_a_route_has_snapshots_where_the_matrix_says_so(kind):
    async def scenario(upstream):
        path = "/v2/models/faulty"
        upstream.server.stored[path] = b'{"name": "faulty"}'
        claimed = upstream.provider.capabilities(upstream.route)
        if claimed.snapshots == "none":
            return claimed, upstream.provider.snapshot(upstream.route)
        while (seen := upstream.provider.snapshot(upstream.route)) is None:
            await asyncio.sleep(0.01)
        return claimed, seen

    bare, nothing = against(scenario, kind=kind)
    watched, seen = against(scenario, kind=kind, kv_tokens=1_000)
    assert (bare.snapshots, nothing) == ("none", None)
    assert watched.snapshots == "with_age" and seen.observed_at_us > 0


def test_prv_4_the_simulator_is_as_its_row_says():
    async def scenario(provider, declared):
        async def answered(**fields):
            return await whole(provider.start(call(declared, max_output_tokens=64, **fields)))

        plain = await answered(attempt_id="req_1.0", ignore_eos=True, seed=7)
        again = await answered(attempt_id="req_2.0", ignore_eos=True, seed=7)
        warm = await answered(
            attempt_id="req_3.0", ignore_eos=True, seed=7, parameters=Parameters(temperature=2.0)
        )
        other = await answered(attempt_id="req_4.0", ignore_eos=True, seed=8)
        stop = Parameters(stop=(" answer",))
        stopped = await answered(attempt_id="req_5.0", parameters=stop)
        called = await answered(attempt_id="req_6.0", tools_json=TOOLS)
        formed = await answered(attempt_id="req_7.0", schema={"type": "object"})
        attempt = provider.start(
            call(declared, attempt_id="req_8.0", max_output_tokens=8_000, ignore_eos=True)
        )
        attempt.cancel("CLIENT_GONE")
        too_long = await answered(attempt_id="req_9.0", input_tokens=10**7)
        return (
            (plain, again, warm, other), stopped, called, formed, (await whole(attempt))[1],
            too_long[1], await provider.ask(declared, "req_1.0"), provider.snapshot(declared),
            provider.capabilities(declared),
        )  # fmt: skip

    runs, stopped, called, formed, cancelled, refused, asked, seen, claimed = simulated(
        scenario, 50.0
    )
    plain, again, warm, other = runs
    assert claimed == OF_KIND["simulator"]
    assert claimed.sampling == ("seed", "ignore_eos")
    assert plain[0] == again[0] == warm[0] != other[0]  # the seed counts, the temperature doesn't
    assert plain[1].usage.output_tokens == 64  # it ignored its natural end
    assert claimed.stop and stopped[0] == "Simulated"
    assert claimed.tools and called[1].finish_reason == "tool_calls"
    assert claimed.json_schema and matches_schema(formed[0], {"type": "object"})
    assert claimed.cancellation == "acknowledged" and type(cancelled) is Cancelled
    assert cancelled.timings.cancel_ack_us is not None
    assert claimed.error_classes == (("request_refused", refused.status),)
    assert claimed.status_enquiry == "any_request" and type(asked) is Completed
    assert claimed.snapshots == "with_age" and seen.observed_at_us > 0
    assert (claimed.usage_missing, plain[1].usage_source) == ("never", "provider")


def test_prv_1_there_is_a_row_for_each_kind_of_provider_and_no_other():
    assert set(OF_KIND) == set(KINDS) == {"simulator", "openai", "kserve"}
