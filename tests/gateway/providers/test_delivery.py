"""SPEC 8: one test of each rule of delivery, through the whole data plane to a real socket."""

import asyncio

import pytest

from gateway.policy.values import EndState
from gateway.providers.http_pool import Patience
from gateway.providers.outcomes import Cancelled, Completed, Failed, Rejected, Unknown
from gateway.submission import Caller, Delta, Ended, Message, Parameters, Submission
from ledger.reading import connect_read_only
from tests.faults.plan import PIECES, Plan, text_of
from tests.faults.server import FaultServer
from tests.gateway.providers.journeys import PROMPT, carried, load, shown
from tests.gateway.providers.upstream import against, ended, events_of

CALLER = Caller(tenant_id="acme", key_id="key_1", scopes=frozenset({"inference"}))


def submission(**asked):
    return Submission(
        caller=CALLER,
        logical_model="assist",
        messages=(Message(role="user", content=PROMPT),),
        **asked,
    )


@pytest.fixture
def over(ledger_path):
    """Run a scenario of (gateway, upstream) over the fault server, in either protocol."""

    def run(scenario, kind="openai", **settings):
        async def running():
            async with FaultServer() as upstream:
                base_url = upstream.base_url if kind == "openai" else upstream.origin
                query = "".join(f"&{name}={value}" for name, value in settings.items())
                load(ledger_path, f"{kind}:{base_url}?model=tiny{query}")
                return await carried(ledger_path, lambda gateway: scenario(gateway, upstream))

        return asyncio.run(running())

    return run


def test_dlv_1_the_first_token_leaves_when_it_is_there_and_phases_are_measured_apart(over):
    async def scenario(gateway, upstream):
        upstream.plan = Plan(stall_after=3)
        journey = gateway.runtime.journey
        run = await journey.admit(submission(stream=True))
        pieces = journey.deliver(run)
        got = [(await anext(pieces)).text for _ in range(3)]
        generated = upstream.exchanges[0].tokens_generated  # and no more: it stalls
        await journey.cancel(run)
        *_, end = [piece async for piece in pieces]
        return got, generated, end.filed.receipt

    got, generated, receipt = over(scenario, close_cancels=1)
    assert (got, generated) == (list(PIECES[:3]), 3)
    assert 0 < receipt.first_token_us <= receipt.e2e_us
    assert receipt.decode_us is not None and receipt.itl_max_us >= receipt.itl_p50_us
    assert receipt.cancel_ack_us is not None
    assert receipt.queue_us is None  # a phase that the backend doesn't tell is not made up


@pytest.mark.parametrize("kind", ["openai", "kserve"])
@pytest.mark.parametrize(("close_cancels", "status"), [("1", "cancelled"), ("0", "unknown")])
def test_dlv_2_who_goes_away_cancels_upstream_and_what_was_generated_counts(
    over, kind, close_cancels, status
):
    async def scenario(gateway, upstream):
        upstream.plan = Plan(protocol=kind, stall_after=3)
        text, filed = await gateway.run(stream=True, cancel_after=3)
        await upstream.exchanges[0].disconnected.wait()
        return text, filed.current.record

    text, receipt = over(scenario, kind, close_cancels=close_cancels)
    assert text == "".join(PIECES[:3])
    assert receipt.status == status
    assert receipt.output_tokens >= 3
    assert receipt.cost_output_pico > 0


def test_dlv_3_five_end_states_are_told_apart(over):
    async def scenario(gateway, upstream):
        async def ended(plan, **asked):
            upstream.plan = plan
            return (await gateway.run(**asked))[1].current.record.status

        refusal = await gateway.runtime.journey.admit(submission(max_output_tokens=0))
        return [
            await ended(Plan()),
            refusal.filed.receipt.status,
            await ended(Plan(stall_after=2), cancel_after=2),
            await ended(Plan(end_after=2)),
            await ended(Plan(die_after=2)),
        ]

    states: list[EndState] = ["completed", "rejected", "cancelled", "failed", "unknown"]
    assert over(scenario, close_cancels=1) == states


def test_dlv_4_an_answer_under_a_schema_is_judged_and_the_receipt_says_so(over, ledger_path):
    async def judged(gateway, upstream):
        _, invalid = await gateway.run(schema={"type": "object"})
        _, unasked = await gateway.run()
        return invalid, unasked

    invalid, unasked = over(judged)
    assert (invalid.current.record.status, invalid.current.record.schema_valid) == ("completed", 0)
    assert unasked.current.record.schema_valid is None


def test_dlv_4_a_simulated_answer_under_a_schema_is_valid(ledger_path):
    load(ledger_path, "sim:llama-3.1-8b-rtx4090")
    text, filed = asyncio.run(
        carried(ledger_path, lambda gateway: gateway.run(schema={"type": "object"}))
    )
    assert (text, filed.current.record.schema_valid) == ("{}", 1)


@pytest.mark.parametrize("kind", ["openai", "kserve"])
def test_dlv_5_a_stream_without_a_finish_or_with_an_error_has_failed_whatever_its_status(
    over, kind
):
    async def scenario(gateway, upstream):
        upstream.plan = Plan(protocol=kind, end_after=2)
        _, ended = await gateway.run()
        upstream.plan = Plan(protocol=kind, error_after=2)
        return ended, (await gateway.run())[1]

    ended, error = over(scenario, kind)
    assert shown(ended)[:2] == ("failed", "PROVIDER_STREAM_WITHOUT_FINISH")
    assert shown(error)[:2] == ("failed", "PROVIDER_STREAM_ERROR")


def test_dlv_6_a_cancel_after_the_end_changes_nothing(over):
    async def scenario(gateway, upstream):
        journey = gateway.runtime.journey
        run = await journey.admit(submission(stream=True))
        pieces = [piece async for piece in journey.deliver(run)]
        await journey.cancel(run)
        return pieces

    pieces = over(scenario)
    assert isinstance(pieces[-1], Ended)
    assert pieces[-1].filed.receipt.status == "completed"


@pytest.mark.parametrize(
    ("address", "simulated"),
    [("sim:llama-3.1-8b-rtx4090", True), ("openai:http://127.0.0.1:9/v1?model=a", False)],
)
def test_dlv_7_only_a_simulated_answer_is_labelled_as_one(ledger_path, address, simulated):
    load(ledger_path, address)

    async def scenario(gateway):
        journey = gateway.runtime.journey
        run = await journey.admit(submission(ignore_eos=True))
        text = "".join([p.text async for p in journey.deliver(run) if isinstance(p, Delta)])
        return run.simulated, run.fingerprint, text

    labelled, fingerprint, text = asyncio.run(carried(ledger_path, scenario))
    assert labelled is simulated
    assert fingerprint.startswith("sim-") is simulated
    assert text.startswith("Simulated answer:") is simulated


@pytest.mark.parametrize(
    ("counts", "usage", "tokens", "source", "convention"),
    [
        (None, "missing", None, "counted", None),
        ("totals", "running", 8, "provider", "triton-generate"),
    ],
)
def test_prv_1_a_kserve_route_is_served_and_priced(
    over, ledger_path, counts, usage, tokens, source, convention
):
    async def scenario(gateway, upstream):
        upstream.plan = Plan(protocol="kserve", usage=usage)
        return *await gateway.run(), gateway.held()

    settings = {} if counts is None else {"counts": counts}
    text, filed, held = over(scenario, "kserve", **settings)
    receipt = filed.current.record
    assert text == text_of(Plan())
    assert (receipt.status, receipt.usage_source) == ("completed", source)
    assert receipt.usage_convention == convention
    assert receipt.output_tokens > 0 and tokens in (None, receipt.output_tokens)
    assert receipt.cost_total_pico == (
        2_000_000 * receipt.input_tokens + 8_000_000 * receipt.output_tokens
    )
    assert held == (0, 0, 0)
    reader = connect_read_only(ledger_path)
    assert b"canary" not in b"".join(
        str(tuple(row)).encode() for row in reader.execute("SELECT * FROM receipt")
    )
    reader.close()


@pytest.mark.parametrize("kind", ["openai", "kserve"])
def test_rty_2_a_refused_parameter_is_left_out_once_and_both_attempts_are_on_record(over, kind):
    async def scenario(gateway, upstream):
        upstream.plan = Plan(protocol=kind, refuses=("temperature",))
        text, filed = await gateway.run(parameters=Parameters(temperature=0.5), seed=7)
        return text, filed, [exchange.request for exchange in upstream.exchanges], gateway.held()

    text, filed, sent, held = over(scenario, kind)
    first, second = [request.get("parameters", request) for request in sent]
    assert (first["temperature"], first["seed"]) == (0.5, 7)
    assert "temperature" not in second and second["seed"] == 7
    assert text == text_of(Plan())
    assert filed.current.record.status == "completed"
    ends = [row.record.error_code for row in filed.attempt_events if row.record.event == "ended"]
    assert ends == ["PROVIDER_PARAMETER_REFUSED", None]
    assert held == (0, 0, 0)


@pytest.mark.parametrize("kind", ["openai", "kserve"])
def test_prv_2_what_a_provider_answers_is_one_of_five_outcomes_and_a_time_out_is_unknown(kind):
    plans = {
        Completed: Plan(protocol=kind),
        Rejected: Plan(protocol=kind, status=429, headers={"Retry-After": "7"}),
        Failed: Plan(protocol=kind, status=500),
        Unknown: Plan(protocol=kind, head_delay_s=60),
    }
    outcomes = [
        ended(plan, kind=kind, patience=Patience(silence_s=0.2))[1] for plan in plans.values()
    ]
    assert [type(outcome) for outcome in outcomes] == list(plans)
    assert outcomes[1].retry_after_ms == 7_000
    assert outcomes[3].reason == "PROVIDER_SILENT"
    assert all(outcome.usage.output_tokens == 0 for outcome in outcomes[1:])

    async def cancelled(upstream):
        upstream.server.plan = Plan(protocol=kind, stall_after=1)
        attempt = upstream.start()
        events = events_of(attempt)
        await anext(events)
        attempt.cancel("CLIENT_GONE")
        return [event async for event in events][-1]

    assert type(against(cancelled, kind=kind, close_cancels=1)) is Cancelled
