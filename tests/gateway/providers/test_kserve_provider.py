"""PRV-1, PRV-2: what becomes of an attempt on a server of the Open Inference Protocol."""

import asyncio
import json

import pytest

from gateway.providers.outcomes import Cancelled, Completed, Failed, Rejected, Unknown
from gateway.submission import Message, Parameters
from gateway.tokenizers import tokenizer
from ledger.rates import Usage
from tests.faults.plan import Plan, body_of
from tests.gateway.providers.upstream import BRIEF, TEXT, against, ended, events_of

COUNTED = tokenizer("o200k_base/chat-1").count_text(TEXT)


def plan(**fields):
    return Plan(protocol="kserve", **fields)


def kserve(given, **options):
    return ended(given, kind="kserve", **options)


def test_prv_1_an_answer_streams_and_its_output_is_counted_by_the_routes_tokenizer():
    text, outcome = kserve(plan())
    assert isinstance(outcome, Completed)
    assert (text, outcome.finish_reason) == (TEXT, "stop")
    assert outcome.usage == Usage(input_tokens=11, output_tokens=COUNTED)
    assert (outcome.usage_source, outcome.usage_convention) == ("counted", None)


@pytest.mark.parametrize(("usage", "counts"), [("deltas", "deltas"), ("running", "totals")])
@pytest.mark.parametrize("ends", ["done", "details", "top"])
def test_counts_that_the_server_tells_are_its_own_in_either_way_of_telling(usage, counts, ends):
    text, outcome = kserve(plan(usage=usage, ends=ends), counts=counts)
    assert (text, type(outcome)) == (TEXT, Completed)
    assert outcome.usage == Usage(input_tokens=11, output_tokens=8)
    assert (outcome.usage_source, outcome.usage_convention) == ("provider", "triton-generate")


def test_the_request_is_one_text_with_parameters_to_the_declared_version():
    async def scenario(upstream):
        await upstream.outcome(
            plan(),
            seed=7,
            messages=(
                Message(role="system", content="Be brief."),
                Message(role="user", content="Weigh."),
            ),
            parameters=Parameters(temperature=0.5, top_p=0.9, stop=("\n",)),
            traceparent="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        )
        exchange = upstream.server.exchanges[0]
        return exchange.request, exchange.headers, upstream.provider._backends["kserve-1"].post_url

    sent, headers, url = against(scenario, kind="kserve", version="1")
    assert sent == {
        "text_input": "system: Be brief.\nuser: Weigh.\nassistant:",
        "parameters": {
            "max_tokens": 64, "temperature": 0.5, "top_p": 0.9, "stop": ["\n"], "seed": 7,
        },
    }  # fmt: skip
    assert headers["x-request-id"] == "req_1.0"
    assert headers["traceparent"].startswith("00-0af7651916cd43dd8448eb211c80319c-")
    assert url.endswith("/v2/models/faulty/versions/1/generate_stream")


def test_prv_4_an_answer_of_another_version_than_the_declared_one_is_a_failure():
    _, changed = kserve(plan(model_version="2"), version="1")
    assert (type(changed), changed.reason, changed.retryable) == (
        Failed,
        "PROVIDER_MODEL_CHANGED",
        False,
    )
    for version in ("1", None):  # the declared one, and a server that doesn't say
        assert type(kserve(plan(model_version=version), version="1")[1]) is Completed
    assert type(kserve(plan(model_version="2"))[1]) is Completed


def test_prv_4_the_models_identity_can_be_its_version():
    given = plan(model_version="identity-of-kserve-1")
    assert type(kserve(given, version="@identity")[1]) is Completed


def test_a_server_without_streams_is_asked_for_the_whole_answer():
    async def scenario(upstream):
        text, outcome = await upstream.outcome(plan(whole=True))
        return text, outcome, upstream.provider._backends["kserve-1"].post_url

    text, outcome, url = against(scenario, kind="kserve", stream="0")
    assert (text, type(outcome), outcome.finish_reason) == (TEXT, Completed, "stop")
    assert outcome.usage.output_tokens == COUNTED
    assert url.endswith("/generate")


def test_a_stream_that_ends_without_a_finish_has_failed_and_what_came_is_counted():
    text, outcome = kserve(plan(end_after=3))
    assert (type(outcome), outcome.reason) == (Failed, "PROVIDER_STREAM_WITHOUT_FINISH")
    tokens = tokenizer("o200k_base/chat-1").count_text(text)
    assert (outcome.usage.output_tokens, outcome.usage_source) == (tokens, "counted")


@pytest.mark.parametrize("shape", range(4))
def test_an_error_inside_a_stream_is_a_failure(shape):
    _, late = kserve(plan(error_after=2, error_shape=shape))
    _, early = kserve(plan(error_after=0, error_shape=shape))
    assert [type(late), late.reason, late.retryable] == [Failed, "PROVIDER_STREAM_ERROR", False]
    assert [type(early), early.retryable] == [Failed, True]


def test_garbage_and_a_body_without_any_text_are_failures():
    assert kserve(plan(garbage_after=1))[1].reason == "PROVIDER_SENT_GARBAGE"
    _, foreign = kserve(Plan())  # chunks of another protocol
    assert (type(foreign), foreign.reason) == (Failed, "PROVIDER_SENT_GARBAGE")


def test_a_lost_connection_and_silence_are_unknown():
    _, lost = kserve(plan(die_after=4))
    _, silent = kserve(plan(stall_after=2), patience=BRIEF)
    assert (type(lost), lost.reason) == (Unknown, "PROVIDER_CONNECTION_LOST")
    assert (type(silent), silent.reason) == (Unknown, "PROVIDER_SILENT")


def test_cut_at_any_of_its_bytes_a_stream_is_unknown_until_its_finish_came():
    stream = body_of(plan())
    finish_at = stream.index(b'"done": true')

    async def scenario(upstream):
        kinds = {}
        for at in range(0, len(stream), 11):
            text, outcome = await upstream.outcome(plan(cut_at_byte=at))
            assert TEXT.startswith(text)
            kinds[at] = type(outcome)
        return kinds

    kinds = against(scenario, kind="kserve")
    assert set(kinds.values()) == {Unknown}
    assert max(kinds) > finish_at


@pytest.mark.parametrize(
    ("status", "kind", "reason"),
    [
        (422, Rejected, "PROVIDER_REFUSED"),
        (424, Rejected, "PROVIDER_REFUSED"),
        (429, Rejected, "PROVIDER_RATE_LIMITED"),
        (500, Failed, "PROVIDER_INTERNAL_ERROR"),
        (504, Unknown, "PROVIDER_LOST_BEHIND_GATEWAY"),
    ],
)
def test_a_status_means_what_it_means_for_every_provider(status, kind, reason):
    _, outcome = kserve(plan(status=status))
    assert (type(outcome), outcome.reason) == (kind, reason)


@pytest.mark.parametrize(("close_cancels", "kind"), [("1", Cancelled), ("0", Unknown)])
def test_a_cancel_closes_the_connection_and_is_acknowledged_where_that_is_declared(
    close_cancels, kind
):
    async def scenario(upstream):
        upstream.server.plan = plan(stall_after=2)
        attempt = upstream.start()
        pieces = events_of(attempt)
        await anext(pieces)
        attempt.cancel("CLIENT_GONE")
        rest = [event async for event in pieces]
        await upstream.server.exchanges[0].disconnected.wait()
        return rest[-1]

    assert type(against(scenario, kind="kserve", close_cancels=close_cancels)) is kind


def test_sch_2_a_snapshot_is_taken_only_while_the_model_and_its_version_are_ready():
    async def scenario(upstream):
        server, provider = upstream.server, upstream.provider
        server.stored["/v2/models/faulty/versions/1"] = json.dumps(
            {"name": "faulty", "versions": ["1"], "platform": "any", "inputs": [], "outputs": []}
        ).encode()
        while (snapshot := provider.snapshot(upstream.route)) is None:
            await asyncio.sleep(0.01)
        return snapshot, server.asked

    snapshot, asked = against(scenario, kind="kserve", version="1", kv_tokens=1_000)
    assert (snapshot.revision, snapshot.waiting_requests, snapshot.free_kv_tokens) == (1, 2, 750)
    assert snapshot.observed_at_us > 0
    assert asked[:2] == ["/v2/models/faulty/versions/1/ready", "/v2/models/faulty/versions/1"]


def test_sch_2_a_model_that_is_not_ready_or_has_not_the_version_has_no_snapshot():
    async def scenario(upstream, *, ready, versions):
        server, provider = upstream.server, upstream.provider
        server.is_ready = ready
        server.stored["/v2/models/faulty/versions/1"] = json.dumps(
            {"name": "faulty", "versions": versions}
        ).encode()
        backend, pool = provider._backends["kserve-1"], provider._pools["kserve-1"]
        return await provider._is_ready(backend, None, pool)

    for ready, versions, expected in (
        (True, ["1"], True), (True, ["2"], False), (False, ["1"], False), (True, None, True),
    ):  # fmt: skip
        seen = against(
            lambda upstream, r=ready, v=versions: scenario(upstream, ready=r, versions=v),
            kind="kserve",
            version="1",
        )
        assert seen is expected
