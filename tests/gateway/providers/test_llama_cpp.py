"""A real llama.cpp server behind the gateway: streamed, cancelled, killed, started again."""

import asyncio
import urllib.request

import pytest

from gateway.submission import Parameters
from ledger.reading import connect_read_only
from ledger.verify import verify
from tests.gateway.providers.journeys import carried, cost, load, settled, shown
from tests.llama_server import llama_server, write_model

LONG = 1_500  # tokens: long enough to be stopped in the middle
UNKNOWN_BOUND_US = 60_000_000  # past the deadline, then an unknown's slot returns


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("llama") / "tiny.gguf"
    write_model(path)
    return path


def address(base_url: str) -> str:
    return f"openai:{base_url}/v1?model=tiny&close_cancels=1"


def metric(base_url: str, name: str) -> float:
    with urllib.request.urlopen(f"{base_url}/metrics", timeout=10) as response:  # noqa: S310 - ours
        for line in response.read().decode().splitlines():
            if line.startswith(f"llamacpp:{name} "):
                return float(line.split()[1])
    raise LookupError(name)


def test_an_answer_streams_and_is_priced_by_the_usage_that_llama_cpp_reports(model, ledger_path):
    with llama_server(model) as (base_url, _):
        load(ledger_path, address(base_url))

        async def scenario(running):
            return [
                await running.run(max_output_tokens=24, ignore_eos=True, seed=5) for _ in range(2)
            ], running.held()

        answers, held = asyncio.run(carried(ledger_path, scenario))
    (text, first), (_, second) = answers
    assert text != ""
    receipt, again = first.current.record, second.current.record
    assert (receipt.status, receipt.usage_source, receipt.output_tokens) == (
        "completed",
        "provider",
        24,
    )
    assert receipt.cached_input_tokens == 0
    assert receipt.cost_total_pico == cost(receipt.input_tokens, 24)
    assert 0 < again.cached_input_tokens < again.input_tokens == receipt.input_tokens
    assert again.cost_total_pico < receipt.cost_total_pico  # its prompt was in the cache
    assert first.attempt_events[-1].record.provider_request_id.startswith("chatcmpl-")
    assert held == (0, 0, 0)


def test_sampling_and_stop_sequences_reach_llama_cpp(model, ledger_path):
    """PRV-4: what is claimed of an openai route holds with a real server too."""
    warm = {"max_output_tokens": 24, "ignore_eos": True}

    async def scenario(running):
        async def text(seed, temperature, stop=()):
            parameters = Parameters(temperature=temperature, stop=stop)
            return await running.run(seed=seed, parameters=parameters, **warm)

        greedy, _ = await text(1, 0.0)
        greedy_again, _ = await text(2, 0.0)
        hot, _ = await text(1, 2.0)
        hot_again, _ = await text(1, 2.0)
        hotter, _ = await text(2, 2.0)
        stop = next(c for c in greedy[4:] if c.isascii() and c.isalnum() and c not in greedy[:4])
        stopped, filed = await text(1, 0.0, stop=(stop,))
        return (greedy, greedy_again), (hot, hot_again, hotter), stopped, filed, running.held()

    with llama_server(model) as (base_url, _):
        load(ledger_path, address(base_url))
        cold, hot, stopped, filed, held = asyncio.run(carried(ledger_path, scenario))
    assert cold[0] == cold[1] != ""  # without heat the seed is nothing
    assert hot[0] == hot[1] != hot[2]  # with it the same seed is the same answer
    assert cold[0].startswith(stopped) and len(stopped) < len(cold[0])
    receipt = filed.current.record
    assert (receipt.status, receipt.usage_source) == ("completed", "provider")
    assert receipt.usage_convention == "openai-chat"
    assert receipt.output_tokens < 24
    assert held == (0, 0, 0)


def test_a_cancel_stops_llama_cpp_and_the_receipt_says_cancelled(model, ledger_path):
    with llama_server(model) as (base_url, _):
        load(ledger_path, address(base_url))

        async def scenario(running):
            _, filed = await running.run(
                max_output_tokens=LONG, ignore_eos=True, stream=True, cancel_after=5
            )
            while await asyncio.to_thread(metric, base_url, "requests_processing"):
                await asyncio.sleep(0.01)
            return filed, running.held()

        filed, held = asyncio.run(carried(ledger_path, scenario))
        generated = metric(base_url, "tokens_predicted_total")
    receipt = filed.current.record
    assert (receipt.status, receipt.terminal_error_code) == ("cancelled", "CLIENT_GONE")
    assert receipt.cancel_ack_us <= 500_000
    assert 5 <= receipt.output_tokens < LONG
    assert generated < LONG  # it really stopped
    assert settled(filed) == [("posted", receipt.cost_total_pico)]
    assert held == (0, 0, 0)


def test_killed_in_the_middle_each_receipt_says_what_its_request_was_and_at_rest_nothing_is_held(
    model, ledger_path
):
    """kill -9: what ran is unknown, what comes then failed; restarted: cancelled and completed."""

    async def scenario(running, base_url, process):
        async def kill():
            process.kill()
            await asyncio.to_thread(process.wait)

        port = int(base_url.rpartition(":")[2])
        _, lost = await running.run(max_output_tokens=LONG, ignore_eos=True, after=(5, kill))
        _, refused = await running.run()
        with llama_server(model, port) as (again, _):
            assert again == base_url
            _, cancelled = await running.run(
                max_output_tokens=LONG, ignore_eos=True, cancel_after=5
            )
            _, completed = await running.run(max_output_tokens=8, ignore_eos=True)
        before = running.held()
        running.clock.moved_us += 60_000_000 + UNKNOWN_BOUND_US
        return lost, refused, cancelled, completed, before, running.held()

    with llama_server(model) as (base_url, process):
        load(ledger_path, address(base_url))
        lost, refused, cancelled, completed, before, after = asyncio.run(
            carried(ledger_path, lambda running: scenario(running, base_url, process))
        )
    assert shown(lost)[:2] == ("unknown", "PROVIDER_CONNECTION_LOST")
    assert lost.current.record.output_tokens >= 5
    assert shown(refused)[:2] == ("failed", "PROVIDER_UNREACHABLE")
    assert shown(cancelled)[:2] == ("cancelled", "CLIENT_GONE")
    assert 5 <= cancelled.current.record.output_tokens < LONG
    assert shown(completed)[:2] == ("completed", None)
    assert (settled(lost), settled(refused)) == ([], [("voided", 0)])
    reserved = lost.reservations[0].record
    assert before == (1, reserved.kv_tokens, reserved.cost_pico)
    assert after == (0, 0, reserved.cost_pico)  # at rest: the money of the open unknown alone
    connection = connect_read_only(ledger_path)
    assert verify(connection, at_rest=True).sound
    connection.close()
