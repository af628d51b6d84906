"""Open unknowns: listed with their money, settled on evidence or by a person, each once (PRV-3)."""

import asyncio
import contextlib
import dataclasses
import sqlite3

import msgspec
import pytest

from gateway.configuration import load
from gateway.demo.fleet import policy as demo_policy
from gateway.enquiries import Enquiries, operation_of
from gateway.operations import anywhere
from gateway.operations.base import Actor, Done, Refused
from gateway.operations.executor import Executor
from gateway.operations.planner import Planner
from gateway.operations.unknowns import ResolveUnknown
from gateway.providers.outcomes import Completed, Failed, Outcome, Rejected, Unknown
from gateway.resolving import Found as Became
from gateway.resolving import resolution
from ledger.invariants import audit
from ledger.queries.dossier import dossier
from ledger.queries.holds import reservation
from ledger.queries.unknowns import at_risk, open_unknown, open_unknowns
from ledger.rates import Rate, RateTable, Usage
from ledger.reading import connect_read_only
from ledger.records import RoutePolicyRecord, Settlement
from ledger.rollups.rebuild import first_difference, rebuild
from ledger.store import Store
from tests.gateway.attempts import completing, losing_sight, planned, played
from tests.gateway.scripted import ScriptedProvider, stage
from tests.system.watching import assert_sound

ADMIN = Actor(name="ada", role="admin", via="console")


def resolve(fleet, attempt_id, became, **fields) -> Done | Refused:
    asked = ResolveUnknown(
        attempt_id=attempt_id, became=became, reason="the provider says", **fields
    )
    return anywhere.perform(fleet.ledger, asked, ADMIN)


def unknowns(fleet):
    with contextlib.closing(connect_read_only(fleet.ledger)) as reader:
        return open_unknowns(reader)


def found(fleet, request_id):
    with contextlib.closing(connect_read_only(fleet.ledger)) as reader:
        assert_sound(reader)
        # The stage keeps no rollups: the quick checks are those that don't read them.
        results = audit(reader, at_rest=True, quick=True)
        assert [result.code for result in results if result.findings] == []
        return dossier(reader, request_id)


def lost(fleet):
    """One request whose only attempt was lost sight of."""
    end = played(fleet, planned(losing_sight), side_effects=True)
    assert end.receipt.status == "unknown"
    return end


def test_an_open_unknown_is_listed_with_its_money_and_its_age(fleet):
    end = lost(fleet)
    (one,) = unknowns(fleet)
    assert one.attempt_id == f"{end.receipt.request_id}.0"
    assert one.request_status == "unknown"
    with contextlib.closing(connect_read_only(fleet.ledger)) as reader:
        assert at_risk(reader) == (1, end.receipt.cost_estimated_pico)
        assert at_risk(reader, "somebody-else") == (0, 0)
    assert one.since_us == end.receipt.ended_at_us


def test_LED_6_what_turned_out_completed_is_priced_posted_and_resolved_by_a_new_receipt(fleet):
    end = lost(fleet)
    request_id = end.receipt.request_id
    done = resolve(
        fleet, f"{request_id}.0", "completed", evidence="invoice line 7", input_tokens=100,
        output_tokens=50, provider_request_id="chatcmpl-1",
    )  # fmt: skip
    assert isinstance(done, Done)
    after = found(fleet, request_id)
    receipt = after.current.record
    assert (receipt.revision, receipt.status, receipt.terminal_error_code) == (1, "completed", None)
    assert receipt.resolves_hash == after.receipts[0].entry_hash
    # The demonstration's prices: 2 and 8 units per million tokens.
    assert receipt.cost_total_pico == 100 * 2 * 10**6 + 50 * 8 * 10**6
    (settled,) = [row.record for row in after.settlements]
    assert (settled.kind, settled.cost_pico) == ("posted", receipt.cost_total_pico)
    assert settled.settled_by == "console:ada"
    assert unknowns(fleet) == []


def test_what_never_ran_is_voided_and_failed_and_costs_nothing(fleet):
    request_id = lost(fleet).receipt.request_id
    assert isinstance(resolve(fleet, f"{request_id}.0", "not_run"), Done)
    after = found(fleet, request_id)
    assert (after.current.record.status, after.current.record.cost_total_pico) == ("failed", 0)
    assert after.current.record.terminal_error_code == "NOT_RUN"
    assert [row.record.kind for row in after.settlements] == ["voided"]


def test_a_write_off_gives_the_money_back_and_leaves_the_request_unknown(fleet):
    request_id = lost(fleet).receipt.request_id
    assert isinstance(resolve(fleet, f"{request_id}.0", "written_off"), Done)
    after = found(fleet, request_id)
    assert (after.current.record.revision, after.current.record.status) == (0, "unknown")
    assert [row.record.kind for row in after.settlements] == ["written_off"]
    assert unknowns(fleet) == []


def test_more_than_was_reserved_is_posted_in_full_with_its_overrun(fleet):
    end = lost(fleet)
    request_id = end.receipt.request_id
    done = resolve(
        fleet, f"{request_id}.0", "failed", evidence="log", input_tokens=10**6, output_tokens=0
    )
    assert isinstance(done, Done)
    (settled,) = [row.record for row in found(fleet, request_id).settlements]
    assert settled.cost_pico == 2 * 10**12
    assert settled.overrun_pico == settled.cost_pico - end.receipt.cost_estimated_pico


def test_an_unknown_beside_an_answer_corrects_what_the_answer_cost_beside_it(fleet):
    """HDG-1, CST-8: the request's own end and components stay, its retries' cost is known now."""
    end = played(fleet, planned(losing_sight, completing))
    assert end.receipt.status == "completed"
    (one,) = unknowns(fleet)
    assert one.request_status == "completed"
    request_id = end.receipt.request_id
    assert isinstance(
        resolve(fleet, one.attempt_id, "failed", evidence="log", input_tokens=10, output_tokens=5),
        Done,
    )
    receipt = found(fleet, request_id).current.record
    assert (receipt.revision, receipt.status) == (1, "completed")
    assert receipt.cost_retry_and_hedge_pico > 0
    own = end.receipt.cost_total_pico - end.receipt.cost_retry_and_hedge_pico
    assert receipt.cost_total_pico - receipt.cost_retry_and_hedge_pico == own


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"became": "completed", "output_tokens": 1}, "EVIDENCE_MISSING"),
        ({"became": "completed", "evidence": "line"}, "USAGE_MISSING"),
        ({"became": "failed", "evidence": "line", "input_tokens": -1}, "UNUSABLE_USAGE"),
        (
            {"became": "failed", "evidence": "l", "input_tokens": 1, "cached_input_tokens": 2},
            "UNUSABLE_USAGE",
        ),
        ({"became": "not_run", "output_tokens": 5}, "UNUSABLE_USAGE"),
        ({"became": "written_off", "input_tokens": 5}, "UNUSABLE_USAGE"),
        ({"became": "not_run", "error_code": "lower case"}, "INVALID_REQUEST"),
        ({"became": "not_run", "evidence": "x" * 501}, "INVALID_REQUEST"),
        ({"became": "not_run", "evidence": "two\nlines"}, "INVALID_REQUEST"),
    ],
)
def test_a_resolution_without_what_it_needs_is_refused_and_nothing_changes(fleet, fields, code):
    request_id = lost(fleet).receipt.request_id
    refused = resolve(fleet, f"{request_id}.0", **fields)
    assert isinstance(refused, Refused)
    assert refused.code == code
    assert len(unknowns(fleet)) == 1


def test_an_unknown_is_settled_once_and_what_is_none_is_refused(fleet):
    request_id = lost(fleet).receipt.request_id
    assert isinstance(resolve(fleet, f"{request_id}.0", "not_run"), Done)
    for attempt_id in (f"{request_id}.0", "req_none.0"):
        again = resolve(fleet, attempt_id, "written_off")
        assert isinstance(again, Refused)
        assert again.code == "NO_OPEN_UNKNOWN"


def test_the_rollups_follow_a_resolution(fleet):
    request_id = lost(fleet).receipt.request_id
    resolve(fleet, f"{request_id}.0", "completed", evidence="l", input_tokens=9, output_tokens=9)
    with contextlib.closing(sqlite3.connect(fleet.ledger, isolation_level=None)) as connection:
        rebuild(connection)
        assert first_difference(connection) is None


class Answering(ScriptedProvider):
    """A provider that gives one answer to every enquiry, and notes what it was asked."""

    def __init__(self, answer: Outcome | Exception | None) -> None:
        super().__init__(script=losing_sight)
        self.answer, self.asked = answer, list[tuple[str, str]]()

    async def ask(self, route, provider_request_id):
        self.asked.append((route.route_id, provider_request_id))
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


USED = Usage(input_tokens=7, output_tokens=3)


async def asked_once(fleet, on, provider):
    """(settled by a first pass, by one at the same time, the settlements that were applied)."""
    followed = []

    async def apply(records):
        followed.extend(records)

    reader = connect_read_only(fleet.ledger)
    executor = Executor(
        store=on.store, reader=lambda: reader, clock=on.clock, apply=apply,
        planner=Planner(fleet.ledger),
    )  # fmt: skip
    enquiries = Enquiries(
        executor=executor, providers={"simulator": provider}, reader=lambda: reader,
        route_of=load(reader).routes.get, clock=on.clock,
    )  # fmt: skip
    first, second = await enquiries.ask_once(), await enquiries.ask_once()
    reader.close()
    return first, second, [row for row in followed if isinstance(row, Settlement)]


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        (Completed(usage=USED, finish_reason="stop"), "completed"),
        (Failed(usage=USED, reason="PROVIDER_INTERNAL_ERROR"), "failed"),
        (Failed(usage=Usage(input_tokens=0, output_tokens=0), reason="GONE"), "failed"),
        (Rejected(usage=USED, reason="PROVIDER_OVERLOADED"), "failed"),
        (Unknown(usage=USED, reason="PROVIDER_SILENT"), None),
        (None, None),
        (OSError("unreachable"), None),
    ],
)
def test_PRV_3_what_a_provider_says_settles_an_unknown_and_nothing_else_does(fleet, answer, status):
    request_id = lost(fleet).receipt.request_id
    provider = Answering(answer)

    with stage(fleet.ledger, planned(losing_sight)) as on:
        first, second, settled = asyncio.run(asked_once(fleet, on, provider))
    assert len(provider.asked) == 1  # not again before its wait is over
    assert provider.asked[0][1] == f"{request_id}.0"
    assert (first, second, len(settled)) == ((1, 0, 1) if status else (0, 0, 0))
    assert found(fleet, request_id).current.record.status == (status or "unknown")


def test_no_answer_of_a_provider_resolves_to_a_person_s_write_off(fleet):
    lost(fleet)
    (one,) = unknowns(fleet)
    for outcome in (Completed(usage=USED, finish_reason="stop"), Failed(usage=USED, reason="x")):
        operation = operation_of(one, outcome)
        assert operation is not None
        assert operation.became != "written_off"


def test_a_backend_that_took_the_route_s_place_is_not_asked(fleet):
    """PRV-3: its word about another's request would be no evidence."""
    request_id = lost(fleet).receipt.request_id
    body = demo_policy()
    moved = msgspec.structs.replace(
        body,
        revision="policy-moved",
        routes=tuple(
            msgspec.structs.replace(route, address="sim:llama-3.1-8b-rtx4090?kv_blocks=3000")
            for route in body.routes
        ),
    )
    with Store.open(fleet.ledger) as store:
        record = RoutePolicyRecord(
            revision=moved.revision, body_json=msgspec.json.encode(moved).decode(),
            published_at_us=1, published_by="tests",
        )  # fmt: skip
        store.append((record,)).result()
    provider = Answering(Completed(usage=USED, finish_reason="stop"))
    with stage(fleet.ledger, planned(losing_sight)) as on:
        assert asyncio.run(asked_once(fleet, on, provider))[0] == 0
    assert provider.asked == []
    assert found(fleet, request_id).current.record.status == "unknown"


def test_an_answer_with_fewer_tokens_than_were_seen_speaks_of_something_else(fleet):
    lost(fleet)
    (one,) = unknowns(fleet)
    seen = dataclasses.replace(one, output_tokens=4)
    assert operation_of(seen, Completed(usage=USED, finish_reason="stop")) is None
    assert operation_of(one, Completed(usage=USED, finish_reason="stop")) is not None


async def one_lost(on):
    """What is delivered of a request of a week whose attempt is lost, and its end."""
    run = await on.admitted(side_effects=True, deadline_ms=604_800_000)
    return await on.pieces(run)


def test_LED_6_a_settled_unknown_gives_back_its_slot_and_kv_at_once(fleet):
    """However far away the bound of its hold is."""
    with stage(fleet.ledger, planned(losing_sight)) as on:
        _, end = asyncio.run(one_lost(on))
        receipt, book = end.filed.receipt, on.journey.desk.book
        held = on.held()
        assert (held[0], held[2]) == (1, receipt.cost_estimated_pico)
        with contextlib.closing(connect_read_only(fleet.ledger)) as reader:
            reserved = reservation(reader, receipt.request_id)
        book.settle_unknown(
            receipt.request_id, reserved.tenant_id, reserved.cost_pico, 7, at_us=on.clock.now_us()
        )
        assert on.held() == (0, 0, 0)


def test_LED_6_a_lost_attempt_of_a_patient_caller_is_bound_by_what_it_was_predicted_to_take(fleet):
    with stage(fleet.ledger, planned(losing_sight)) as on:
        asyncio.run(one_lost(on))
        book = on.journey.desk.book
        book.give_back_due(on.clock.now_us() + 3_600_000_000)
        assert on.held()[:2] == (0, 0)


def test_LED_6_a_resolution_is_priced_by_the_rate_of_its_provider(fleet):
    """A rate may be for one provider alone: it holds for what is settled later, too."""
    request_id = lost(fleet).receipt.request_id
    with contextlib.closing(connect_read_only(fleet.ledger)) as reader:
        one = open_unknown(reader, f"{request_id}.0")
    assert one is not None
    rate = Rate(
        key=one.attempt.route_id, provider=one.attempt.provider_kind, fixed_pico=10**11,
        input_micro_per_mtok=0, output_micro_per_mtok=0, cached_input_micro_per_mtok=0,
    )  # fmt: skip
    table = RateTable(version="r", effective_from_us=0, currency="units", rates=(rate,))
    rows, receipt = resolution(one, Became(became="completed", usage=USED), table, "", 1, "tests")
    assert receipt.cost_total_pico == 10**11
    assert [row.cost_pico for row in rows if isinstance(row, Settlement)] == [10**11]
