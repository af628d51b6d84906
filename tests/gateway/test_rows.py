"""What one request through the gateway leaves in the ledger's file: as few rows as can say it."""

import asyncio

from tests.gateway.scripted import ScriptedProvider, stage, submission
from tests.gateway.test_journey import completing

ALONE = ("reservation", "attempt", "attempt_event", "settlement", "trace_event")


def test_a_request_of_one_attempt_is_its_decision_and_its_receipt(fleet):
    async def play(on):
        (run,) = await on.journey.admit_together((submission(),))
        return await on.pieces(run)

    with stage(fleet.ledger, ScriptedProvider(script=completing)) as on:
        asyncio.run(play(on))
        rows = {table: on.rows(f"SELECT count(*) FROM {table}")[0][0] for table in ALONE}
        carried = on.rows(
            "SELECT d.hold_kv_tokens > 0, d.attempt_kind, d.trace_reasons, r.closes, r.status "
            "FROM route_decision AS d JOIN receipt AS r ON r.request_id = d.request_id"
        )
    assert set(rows.values()) == {0}, rows
    ((held, kind, reasons, closes, status),) = carried
    assert (held, kind, closes, status) == (1, "primary", 1, "completed")
    assert reasons
