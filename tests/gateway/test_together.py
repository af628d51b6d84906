"""Several answers of one prompt: each a request of its own, admitted all or none (ADM-7)."""

import asyncio

from ledger.carrying import every
from ledger.records import Reservation
from tests.gateway.scripted import ScriptedProvider, stage, submission
from tests.gateway.test_journey import completing

TENANT = "support-desk"


def test_several_answers_are_taken_together_and_a_refusal_takes_nothing(fleet):
    async def play(on):
        book = on.journey.desk.book
        limit = book.quota(TENANT).in_flight_limit
        refused = await on.journey.admit_together((submission(),) * (limit + 1))
        minute = book.tenant_state(TENANT, on.clock.now_us())
        held = (minute.requests_in_minute, minute.tokens_in_minute, *on.held())
        rows = on.rows("SELECT status FROM receipt"), on.rows(every(Reservation))
        runs = await on.journey.admit_together((submission(),) * limit)
        return refused, held, rows, [await on.pieces(run) for run in runs], on.held()

    with stage(fleet.ledger, ScriptedProvider(script=completing)) as on:
        refused, held, rows, ends, after = asyncio.run(play(on))
        snapshots = on.rows("SELECT count(*) FROM capacity_snapshot")
    assert refused.reason_code == "TENANT_CONCURRENCY_LIMIT"
    assert held == (0, 0, 0, 0, 0)
    assert rows == ([("rejected",)], [])
    receipts = [end.filed.receipt for _, end in ends]
    assert len({receipt.request_id for receipt in receipts}) == len(receipts) > 1
    assert {receipt.status for receipt in receipts} == {"completed"}
    assert after == (0, 0, 0)
    assert snapshots[0][0] > 0  # what the withdrawn ones saw is filed with the refusal
