"""PRV-2, DLV-5: attempts on a real socket, each way they can end as exactly one outcome."""

import asyncio

import msgspec
import pytest

from gateway.providers.openai import Patience
from gateway.providers.outcomes import Completed, Failed, Rejected, Unknown
from ledger.rates import Usage
from tests import policy_factories as make
from tests.faults.plan import Plan, body_of
from tests.gateway.providers.upstream import BRIEF, TEXT, WHOLE, against, ended, until_idle, whole


def test_a_stream_becomes_text_usage_and_the_providers_id():
    text, outcome = ended(Plan(headers={"x-request-id": "up-7"}, cached_tokens=4))
    assert text == TEXT
    assert isinstance(outcome, Completed)
    assert outcome.usage == Usage(input_tokens=11, output_tokens=8, cached_input_tokens=4)
    assert (outcome.usage_source, outcome.finish_reason) == ("provider", "stop")
    assert outcome.provider_request_id == "up-7"
    assert outcome.timings.itl is not None
    assert (outcome.timings.decode_us or 0) >= outcome.timings.itl.max_us >= 0


def test_the_request_carries_model_cap_our_id_and_the_named_credential():
    async def scenario(upstream):
        await upstream.outcome(Plan(), seed=3)
        return upstream.server.exchanges[0]

    exchange = against(scenario, key_env="EXAMPLE_KEY", credential="sk-value")
    assert (exchange.request["model"], exchange.request["max_tokens"]) == ("tiny", 64)
    assert exchange.request["stream_options"] == {"include_usage": True}
    assert exchange.headers["x-request-id"] == "req_1.0"
    assert exchange.headers["authorization"] == "Bearer sk-value"


def test_without_the_named_credential_nothing_is_sent():
    async def scenario(upstream):
        outcome = await upstream.outcome(Plan())
        return outcome, upstream.server.exchanges

    (text, outcome), exchanges = against(scenario, key_env="EXAMPLE_KEY")
    assert (text, outcome.reason, exchanges) == ("", "PROVIDER_CREDENTIAL_MISSING", [])
    assert isinstance(outcome, Rejected)


def test_our_own_id_given_back_is_no_id_of_the_providers():
    _, outcome = ended(Plan(headers={"x-request-id": "req_1.0"}))
    assert outcome.provider_request_id == "chatcmpl-fault"


@pytest.mark.parametrize(
    "shape",
    [
        {"split_bytes": 1, "newline": "\r\n", "comments": True},
        {"split_bytes": 1, "newline": "\r"},
        {"split_bytes": 7},
        {"usage": "finish"},
        {"usage": "running"},
        {"done": False},
        {"framing": "close"},
        {"framing": "close", "done": False},
        {"usage": "finish", "done": False},
    ],
    ids=str,
)
def test_however_a_stream_is_cut_and_shaped_its_text_and_counts_are_the_same(shape):
    text, outcome = ended(Plan(**shape))
    assert isinstance(outcome, Completed)
    assert (text, outcome.usage) == (TEXT, WHOLE)


def test_missing_usage_is_estimated_and_a_reported_zero_is_a_zero():
    _, missing = ended(Plan(usage="missing"))
    _, running = ended(Plan(usage="running"))
    _, zero = ended(Plan(usage="zero"))
    assert (missing.usage, missing.usage_source) == (WHOLE, "estimated")
    assert (running.usage, running.usage_source) == (WHOLE, "estimated")
    assert (zero.usage.input_tokens, zero.usage.output_tokens, zero.usage_source) == (
        0,
        0,
        "provider",
    )


def test_wrong_usage_is_what_the_provider_reported():
    _, outcome = ended(Plan(usage="wrong"))
    assert (outcome.usage.input_tokens, outcome.usage.output_tokens) == (77, 24)


def test_duplicate_chunks_leave_the_reported_usage_as_it_is():
    text, outcome = ended(Plan(duplicate=True))
    assert (len(text), outcome.usage) == (2 * len(TEXT), WHOLE)


def test_a_server_that_ignores_stream_is_understood():
    text, outcome = ended(Plan(whole=True))
    assert (text, outcome.usage, outcome.usage_source) == (TEXT, WHOLE, "provider")


@pytest.mark.parametrize(
    ("finish", "kind", "reason"),
    [
        ("length", Completed, "length"),
        ("eos_token", Completed, "stop"),
        ("content_filter", Failed, "PROVIDER_CONTENT_FILTER"),
        ("abort", Failed, "PROVIDER_ABORTED"),
        ("tired", Failed, "PROVIDER_FINISH_UNKNOWN"),
    ],
)
def test_a_finish_reason_says_whether_the_answer_is_whole(finish, kind, reason):
    _, outcome = ended(Plan(finish_reason=finish))
    assert type(outcome) is kind
    assert (outcome.finish_reason if kind is Completed else outcome.reason) == reason


def test_an_answer_to_a_schema_is_judged_by_it():
    for schema, valid in (({"type": "object"}, False), ({"type": "string"}, False)):
        _, outcome = ended(Plan(), call_fields={"schema": schema})
        assert outcome.schema_valid is valid
    assert ended(Plan())[1].schema_valid is None


def test_a_stream_that_ends_without_a_finish_reason_has_failed():
    text, outcome = ended(Plan(end_after=3))
    assert isinstance(outcome, Failed)
    assert (outcome.reason, outcome.retryable) == ("PROVIDER_STREAM_WITHOUT_FINISH", False)
    assert text == "Weigh the lörry"
    assert (outcome.usage, outcome.usage_source) == (
        Usage(input_tokens=11, output_tokens=3),
        "estimated",
    )


def test_a_route_that_is_gone_is_let_go_once_its_attempts_have_ended():
    """PRV-1: nobody polls it with its credential any more; what runs there runs to its end."""

    async def scenario(upstream):
        provider, declared = upstream.provider, upstream.route
        pool, (watching,) = provider._pools["real-1"], provider.tasks
        upstream.server.plan = Plan()
        running = upstream.start()
        provider.reconfigure([])
        text, outcome = await whole(running)
        late = await whole(upstream.start())  # accepted before, sent after
        await asyncio.gather(watching, return_exceptions=True)
        while not pool.closed:
            await asyncio.sleep(0)
        return (
            (text, type(outcome), type(late[1])),
            (pool.closed, watching.cancelled(), provider.tasks, provider.snapshot(declared)),
            (provider._pools, provider._backends, provider._running),
        )

    ends, gone, left = against(scenario, kv_tokens=1_000)
    assert ends == (TEXT, Completed, Completed)
    assert gone == (True, True, [], None)
    assert left == ({}, {}, set())


def test_a_changed_address_makes_no_second_pool_and_no_second_reader():
    async def scenario(upstream):
        provider, before = upstream.provider, dict(upstream.provider._pools)
        changed = msgspec.structs.replace(
            upstream.route, address=upstream.route.address + "&close_cancels=1"
        )
        (old,), (new,) = provider.tasks, provider.reconfigure([changed])
        await asyncio.gather(old, return_exceptions=True)
        return before == provider._pools, old.cancelled(), provider.tasks == [new]

    assert against(scenario, kv_tokens=1_000) == (True, True, True)


def test_done_without_a_finish_reason_has_failed_too():
    _, outcome = ended(Plan(finish_reason=None))
    assert (type(outcome), outcome.reason) == (Failed, "PROVIDER_STREAM_WITHOUT_FINISH")


@pytest.mark.parametrize("shape", range(4))
def test_an_error_inside_a_stream_is_a_failure_and_before_the_first_text_another_may_pass(shape):
    _, late = ended(Plan(error_after=2, error_shape=shape))
    text, early = ended(Plan(error_after=0, error_shape=shape))
    assert [type(late), late.reason, late.retryable] == [Failed, "PROVIDER_STREAM_ERROR", False]
    assert [type(early), early.retryable, text] == [Failed, True, ""]


def test_garbage_in_a_stream_is_a_failure_and_its_connection_is_closed():
    async def scenario(upstream):
        ending = await upstream.outcome(Plan(garbage_after=2))
        await upstream.server.exchanges[0].disconnected.wait()
        return ending

    text, outcome = against(scenario)
    assert (text, type(outcome), outcome.reason) == ("Weigh the", Failed, "PROVIDER_SENT_GARBAGE")


def test_a_connection_lost_in_the_middle_is_unknown_with_what_came_counted():
    text, outcome = ended(Plan(die_after=4))
    assert isinstance(outcome, Unknown)
    assert (outcome.reason, outcome.usage.output_tokens) == ("PROVIDER_CONNECTION_LOST", 4)
    assert outcome.provider_request_id == "chatcmpl-fault"
    assert len(text) == len("Weigh the lörry 🚚")


def test_cut_at_any_of_its_bytes_a_stream_is_unknown_until_its_finish_reason_came():
    stream = body_of(Plan())
    finish_at = stream.index(b"\n\n", stream.index(b'"finish_reason": "stop"'))

    async def scenario(upstream):
        kinds = {}
        for at in range(0, len(stream), 13):
            text, outcome = await upstream.outcome(Plan(cut_at_byte=at))
            assert TEXT.startswith(text)
            kinds[at] = type(outcome)
        return kinds

    kinds = against(scenario)
    assert set(kinds.values()) == {Unknown, Completed}
    for at, kind in kinds.items():
        assert kind is (Completed if at >= finish_at + 2 else Unknown), f"cut at byte {at}"


def test_an_unframed_body_that_ends_early_may_have_been_lost_so_it_is_unknown():
    _, outcome = ended(Plan(framing="close", end_after=2))
    assert (type(outcome), outcome.reason) == (Unknown, "PROVIDER_CONNECTION_LOST")


def test_done_without_a_finish_reason_is_a_clean_end_on_any_connection():
    """DLV-5: the server said that it was over, so nothing was lost sight of."""
    for framing in ("close", "chunked"):
        _, outcome = ended(Plan(framing=framing, finish_reason=None))
        assert (type(outcome), outcome.reason) == (Failed, "PROVIDER_STREAM_WITHOUT_FINISH")


def test_a_request_that_was_written_and_never_answered_is_unknown():
    _, outcome = ended(Plan(close_before_head=True))
    assert (type(outcome), outcome.reason) == (Unknown, "PROVIDER_CONNECTION_LOST")


@pytest.mark.parametrize("plan", [Plan(stall_after=0), Plan(stall_after=2), Plan(head_delay_s=60)])
def test_silence_is_unknown_and_never_failed(plan):
    _, outcome = ended(plan, patience=BRIEF)
    assert (type(outcome), outcome.reason) == (Unknown, "PROVIDER_SILENT")


def test_silence_after_the_finish_reason_is_a_whole_answer_with_estimated_usage():
    text, outcome = ended(Plan(stall_at_tail=True), patience=Patience(tail_s=0.05))
    assert (text, type(outcome), outcome.usage_source) == (TEXT, Completed, "estimated")


def test_a_refused_connection_is_a_rejection_since_nothing_ran():
    async def scenario(upstream):
        await upstream.server.__aexit__()
        return await upstream.outcome(Plan())

    text, outcome = against(scenario)
    assert (text, type(outcome), outcome.reason) == ("", Rejected, "PROVIDER_UNREACHABLE")


@pytest.mark.parametrize(
    ("status", "headers", "kind", "reason", "retry_after_ms"),
    [
        (429, {"Retry-After": "3"}, Rejected, "PROVIDER_RATE_LIMITED", 3_000),
        (429, {"Retry-After": "0"}, Rejected, "PROVIDER_RATE_LIMITED", 0),
        (503, {"Retry-After": "Thu, 01 Jan 1970 00:00:00 GMT"}, Rejected, "PROVIDER_OVERLOADED", 0),
        (503, {"Retry-After": "later"}, Rejected, "PROVIDER_OVERLOADED", 1_000),
        (422, {}, Rejected, "PROVIDER_REFUSED", None),
        (302, {"Location": "http://127.0.0.1:9/"}, Rejected, "PROVIDER_REDIRECTED", None),
    ],
)
def test_a_status_that_says_not_taken_is_a_rejection(status, headers, kind, reason, retry_after_ms):
    _, outcome = ended(Plan(status=status, headers=headers))
    assert [type(outcome), outcome.reason, outcome.retry_after_ms] == [kind, reason, retry_after_ms]


def test_a_500_is_a_failure_and_a_gateways_504_is_unknown():
    _, failed = ended(Plan(status=500))
    _, lost = ended(Plan(status=504))
    assert (type(failed), failed.reason) == (Failed, "PROVIDER_INTERNAL_ERROR")
    assert (type(lost), lost.reason) == (Unknown, "PROVIDER_LOST_BEHIND_GATEWAY")


def test_a_connection_is_used_again_after_a_whole_answer_and_after_a_refusal():
    async def scenario(upstream):
        for plan in (Plan(), Plan(status=429), Plan(done=False), Plan(whole=True)):
            await upstream.outcome(plan)
            await until_idle(upstream)
        return [exchange.connection for exchange in upstream.server.exchanges]

    assert against(scenario) == [1, 1, 1, 1]


def test_a_pooled_connection_that_is_gone_when_it_is_written_to_costs_no_request():
    async def scenario(upstream):
        outcomes = []
        for _ in range(2):
            outcomes.append((await upstream.outcome(Plan()))[1])
            await until_idle(upstream)
            for connection in upstream.provider._pools["real-1"]._origins:
                connection._transport.abort()
        return [type(each) for each in outcomes], [e.connection for e in upstream.server.exchanges]

    assert against(scenario) == ([Completed, Completed], [1, 2])


def test_a_route_without_readable_metrics_has_no_snapshot():
    async def scenario(upstream):
        return upstream.provider.tasks, upstream.provider.snapshot(upstream.route)

    assert against(scenario) == ([], None)


def test_a_route_that_declares_its_kv_pool_has_the_snapshot_of_its_metrics():
    async def scenario(upstream):
        while (snapshot := upstream.provider.snapshot(upstream.route)) is None:
            await asyncio.sleep(0.01)
        return snapshot

    snapshot = against(scenario, kv_tokens=1_000)
    assert (snapshot.revision, snapshot.waiting_requests, snapshot.free_kv_tokens) == (1, 2, 750)


def test_adm_6_a_snapshot_that_is_asked_for_is_read_at_once_and_none_where_it_cannot_be():
    async def scenario(upstream):
        (watching,) = upstream.provider.tasks
        watching.cancel()  # only what is asked for is read
        fresh = await upstream.provider.refresh(upstream.route)
        upstream.server.metrics = "nothing of use"
        same = await upstream.provider.refresh(upstream.route)
        return fresh, same, await upstream.provider.refresh(make.route("another"))

    fresh, same, unknown = against(scenario, kv_tokens=1_000)
    assert (fresh.revision, fresh.free_kv_tokens) == (1, 750)
    assert same == fresh  # what says nothing new leaves the age as it is
    assert unknown is None


def test_many_attempts_at_once_each_get_their_own_answer():
    async def scenario(upstream):
        upstream.server.plan = Plan(split_bytes=31)
        attempts = [upstream.start(attempt_id=f"req_{n}.0") for n in range(40)]
        return await asyncio.gather(*(whole(attempt) for attempt in attempts))

    outcomes = against(scenario)
    assert {(text, type(outcome)) for text, outcome in outcomes} == {(TEXT, Completed)}
