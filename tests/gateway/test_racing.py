"""ADM-7: requests that race for one budget, slot or minute: as many are accepted as fit."""

import asyncio
from collections import Counter

import msgspec
import pytest

from gateway.demo.fleet import rate_table
from gateway.providers.outcomes import Completed
from gateway.quota import Quota
from gateway.submission import Refusal
from ledger.rates import Usage
from ledger.records import RateTableRecord
from ledger.store import Store
from tests.gateway.scripted import START_US, ScriptedProvider, stage, submission
from tests.policy_factories import PICO, snapshot
from tests.server_fixtures import Fleet

RACING, TENANT = 1_000, "support-desk"
A_TENTH_PICO = PICO // 10


def completing(call):
    usage = Usage(input_tokens=call.input_tokens, output_tokens=1)
    return [Completed(usage=usage, finish_reason="stop")]


def price_each_at_a_tenth(fleet: Fleet) -> None:
    """Publish a table by which a request costs 0.10 units, whatever its tokens."""
    table = rate_table(START_US)
    rates = tuple(
        msgspec.structs.replace(
            rate, input_micro_per_mtok=0, output_micro_per_mtok=0, cached_input_micro_per_mtok=0,
            fixed_pico=A_TENTH_PICO,
        )
        for rate in table.rates
    )  # fmt: skip
    table = msgspec.structs.replace(table, version="rates-tenth", rates=rates)
    with Store.open(fleet.ledger) as store:
        store.append(
            (
                RateTableRecord(
                    version=table.version,
                    effective_from_us=START_US,
                    currency=table.currency,
                    body_json=msgspec.json.encode(table).decode(),
                    published_at_us=START_US,
                    published_by="tests",
                ),
            )
        ).result()


def raced(fleet: Fleet, quota: Quota) -> tuple[Counter[str], tuple[int, int, int], list]:
    """(outcomes by code, what is held at the end, receipts by status) of all at once."""
    price_each_at_a_tenth(fleet)

    async def race(on):
        book = on.journey.desk.book
        book.set_quota(TENANT, quota, now_us=START_US, spent_pico=0)
        for route_id in on.journey.desk.configuration.routes:
            book.observe(snapshot(route_id, observed_at_us=START_US, free_kv_tokens=10**9))
        found = await asyncio.gather(
            *[on.journey.admit(submission(max_output_tokens=40)) for _ in range(RACING)]
        )
        await on.journey.drain(30)
        return Counter(
            each.reason_code if isinstance(each, Refusal) else "accepted" for each in found
        )

    with stage(fleet.ledger, ScriptedProvider(script=completing)) as on:
        codes = asyncio.run(race(on))
        statuses = on.rows("SELECT status, count(*) FROM receipt GROUP BY status ORDER BY status")
        return codes, on.held(), statuses


@pytest.mark.parametrize("budget", ["budget_pico", "day_budget_pico"])
def test_of_a_thousand_at_once_of_0_10_each_exactly_fifty_fit_a_budget_of_5_00(
    fleet: Fleet, budget: str
):
    quota = msgspec.structs.replace(Quota(in_flight_limit=RACING), **{budget: 5 * PICO})
    codes, held, statuses = raced(fleet, quota)
    assert codes == {"accepted": 50, "TENANT_BUDGET_EXHAUSTED": 950}
    assert held == (0, 0, 0)
    assert statuses == [("completed", 50), ("rejected", 950)]


def test_of_a_thousand_at_once_exactly_as_many_pass_as_the_minute_has_requests_left(fleet: Fleet):
    codes, _, _ = raced(fleet, Quota(in_flight_limit=RACING, requests_per_minute=37))
    assert codes == {"accepted": 37, "TENANT_RATE_LIMIT": 963}
