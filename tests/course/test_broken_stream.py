"""The source's second extension (section 15): a stream is broken off in the middle, the cancel goes
all the way, and whether it was acknowledged is on record."""

import asyncio

import pytest

from tests.faults.plan import Plan
from tests.faults.server import FaultServer
from tests.gateway.providers.journeys import carried, load, settled


@pytest.mark.parametrize("kind", ["openai", "kserve"])
@pytest.mark.parametrize(("close_cancels", "status"), [("1", "cancelled"), ("0", "unknown")])
def test_extension_two_a_broken_stream_cancels_the_backend_and_records_its_acknowledgement(
    ledger_path, kind, close_cancels, status
):
    async def running():
        async with FaultServer() as upstream:
            base_url = upstream.base_url if kind == "openai" else upstream.origin
            load(ledger_path, f"{kind}:{base_url}?model=tiny&close_cancels={close_cancels}")
            upstream.plan = Plan(protocol=kind, stall_after=4, keep_generating=close_cancels == "0")

            async def scenario(gateway):
                _, filed = await gateway.run(stream=True, cancel_after=4)
                await upstream.exchanges[0].disconnected.wait()
                await upstream.exchanges[0].ended.wait()
                return filed, gateway.held(), upstream.exchanges[0].tokens_after_disconnect

            return await carried(ledger_path, scenario)

    filed, (slots, kv_tokens, pending_pico), generated_for_nobody = asyncio.run(running())
    receipt = filed.current.record
    events = [row.record.event for row in filed.attempt_events]
    assert receipt.status == status
    assert receipt.output_tokens >= 4
    if status == "cancelled":
        assert events == ["cancel_sent", "cancel_acknowledged", "ended"]
        assert generated_for_nobody == 0
        assert settled(filed) == [("posted", receipt.cost_total_pico)]
        assert (slots, kv_tokens, pending_pico) == (0, 0, 0)
    else:
        assert receipt.terminal_error_code == "CANCEL_NOT_ACKNOWLEDGED"
        assert "cancel_acknowledged" not in events
        assert generated_for_nobody > 0  # the backend went on, as nobody can know from here
        assert settled(filed) == []
        assert pending_pico == filed.reservations[0].record.cost_pico > 0
