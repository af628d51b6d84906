"""PRV-3: a provider that can be asked what became of a request says it, and nothing is assumed."""

import json

import pytest

from gateway.providers import simulator as module
from gateway.providers.openai_status import chat_outcome, response_outcome
from gateway.providers.outcomes import Cancelled, Completed, Failed, Unknown
from ledger.rates import Usage
from ledger.usage import convention_of
from tests.faults.plan import Plan
from tests.gateway.providers.calls import call
from tests.gateway.providers.upstream import against, simulated, whole

CHAT = convention_of("openai-chat")


def stored_chat(finish="stop", usage=(11, 8), **fields):
    return json.dumps(
        {
            "id": "chatcmpl-fault",
            "choices": [{"index": 0, "message": {"content": "no"}, "finish_reason": finish}],
            "usage": {"prompt_tokens": usage[0], "completion_tokens": usage[1]},
            **fields,
        }
    ).encode()


def stored_response(status, reason=None, usage=(11, 8)):
    told = {
        "id": "resp_1",
        "status": status,
        "incomplete_details": {"reason": reason} if reason else None,
        "usage": {
            "input_tokens": usage[0],
            "output_tokens": usage[1],
            "input_tokens_details": {"cached_tokens": 4},
        },
    }
    return json.dumps(told).encode()


def test_prv_3_a_request_that_was_lost_is_asked_for_by_the_id_in_its_body():
    async def scenario(upstream):
        _, lost = await upstream.outcome(Plan(die_after=3, headers={"x-request-id": "req-edge-7"}))
        upstream.server.stored["/v1/chat/completions/chatcmpl-fault"] = stored_chat()
        told = await upstream.provider.ask(upstream.route, lost.provider_request_id)
        return lost, told, upstream.server.exchanges[0].request, upstream.server.asked

    lost, told, sent, asked = against(scenario, asks="chat")
    assert (type(lost), lost.provider_request_id) == (Unknown, "chatcmpl-fault")
    assert sent["store"] is True  # only what is kept can be asked for
    assert (type(told), told.usage) == (Completed, Usage(input_tokens=11, output_tokens=8))
    assert told.usage_convention == "openai-chat"
    assert asked == ["/v1/chat/completions/chatcmpl-fault"]


def test_prv_3_a_provider_that_can_be_asked_for_responses_is_asked_there():
    async def scenario(upstream):
        upstream.server.stored["/v1/responses/resp_1"] = stored_response("completed")
        return (
            await upstream.provider.ask(upstream.route, "resp_1"),
            await upstream.provider.ask(upstream.route, "resp_2"),
        )

    told, unheard = against(scenario, asks="responses")
    assert told.usage == Usage(input_tokens=11, output_tokens=8, cached_input_tokens=4)
    assert unheard is None  # not found is no proof that it did not run


@pytest.mark.parametrize("kind", ["openai", "kserve"])
def test_prv_3_a_provider_that_cannot_be_asked_is_not(kind):
    async def scenario(upstream):
        await upstream.outcome(Plan(protocol=kind))
        return (
            await upstream.provider.ask(upstream.route, "chatcmpl-fault"),
            upstream.server.asked,
            upstream.server.exchanges[0].request.get("store"),
        )

    assert against(scenario, kind=kind) == (None, [], None)


@pytest.mark.parametrize("told", ["../../admin", "..", ".", "a b", "a?b=1", "%2e%2e", "ünknown"])
def test_an_id_never_changes_the_path_that_it_is_put_into(told):
    async def scenario(upstream):
        await upstream.provider.ask(upstream.route, told)
        return upstream.server.asked

    asked = against(scenario, asks="chat")
    assert len(asked) <= 1
    for path in asked:
        name = path.removeprefix("/v1/chat/completions/")
        assert not set(name) & set("/?# ") and name.strip(".")


def test_a_provider_that_does_not_answer_tells_nothing():
    async def scenario(upstream):
        await upstream.server.__aexit__()
        return await upstream.provider.ask(upstream.route, "chatcmpl-fault")

    assert against(scenario, asks="chat") is None


@pytest.mark.parametrize(
    ("body", "kind", "finish_or_reason"),
    [
        (stored_chat("length"), Completed, "length"),
        (stored_chat("content_filter"), Failed, "PROVIDER_CONTENT_FILTER"),
        (stored_chat("tired"), Failed, "PROVIDER_FINISH_UNKNOWN"),
    ],
)
def test_a_stored_chat_completion_has_the_end_that_it_states(body, kind, finish_or_reason):
    told = chat_outcome(body, CHAT)
    assert type(told) is kind
    assert (told.finish_reason if kind is Completed else told.reason) == finish_or_reason


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{}",
        stored_chat(None),
        stored_chat(usage=(11, None)),
        stored_chat(usage=(-1, 1)),
    ],
)
def test_without_an_end_and_whole_counts_a_chat_completion_stays_unknown(body):
    assert chat_outcome(body, CHAT) is None


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (stored_response("completed"), Completed),
        (stored_response("incomplete", "max_output_tokens"), Completed),
        (stored_response("incomplete", "content_filter"), Failed),
        (stored_response("failed"), Failed),
        (stored_response("cancelled"), Cancelled),
        (stored_response("in_progress"), None),
        (stored_response("queued"), None),
        (stored_response("failed", usage=(None, None)), None),
        (b"[]", None),
    ],
)
def test_a_response_has_the_end_that_its_status_states(body, kind):
    told = response_outcome(body)
    assert (None if told is None else type(told)) is kind


def test_prv_3_the_simulator_can_always_be_asked_by_its_id_or_the_attempts():
    async def scenario(provider, route):
        attempt = provider.start(call(route, max_output_tokens=5, ignore_eos=True))
        running = await provider.ask(route, "req_1.0")
        _, outcome = await whole(attempt)
        other = provider.start(
            call(route, attempt_id="req_2.0", max_output_tokens=8_000, ignore_eos=True)
        )
        other.cancel("CLIENT_GONE")
        await whole(other)
        return (
            running,
            outcome,
            await provider.ask(route, outcome.provider_request_id),
            await provider.ask(route, "req_1.0"),
            await provider.ask(route, "sim-req_2.0"),
            await provider.ask(route, "sim-req_of_an_earlier_process.0"),
        )

    running, outcome, by_id, by_attempt, cancelled, gone = simulated(scenario, 50.0)
    assert running is None  # it has no end yet
    assert by_id == by_attempt
    assert (by_id.usage, by_id.finish_reason) == (outcome.usage, outcome.finish_reason)
    assert type(cancelled) is Cancelled
    assert (type(gone), gone.reason) == (Failed, "SIMULATOR_RESTARTED")
    assert gone.usage == Usage(input_tokens=0, output_tokens=0)


def test_what_the_simulator_does_not_remember_any_more_stays_unknown(monkeypatch):
    monkeypatch.setattr(module, "REMEMBERED_JOBS", 1)

    async def scenario(provider, route):
        for number in range(2):
            await whole(provider.start(call(route, attempt_id=f"req_{number}.0")))
        return await provider.ask(route, "req_0.0"), await provider.ask(route, "req_1.0")

    forgotten, known = simulated(scenario)
    assert forgotten is None
    assert type(known) is Completed
