"""Whatever becomes of a request's attempts, its money and room add up (LED-6, CST-8, HDG-1)."""

import asyncio
import contextlib
import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway import driving
from gateway.policy.values import AttemptRules, HedgeRule, RetryRule
from gateway.replaying import Replayer, tally
from ledger.balances import balances
from ledger.carrying import source
from ledger.invariants import audit
from ledger.queries import holds
from ledger.reading import connect_read_only
from ledger.records import AttemptEvent
from ledger.verify import verify
from tests.gateway.attempts import (
    FAST,
    OTHER,
    Plan,
    PlannedProvider,
    cancelled_after,
    completing,
    failing,
    losing_sight,
    refusing,
    with_rules,
)
from tests.gateway.scripted import ScriptedAttempt, stage

RULES = AttemptRules(
    limit=3,
    retry=RetryRule(least_per_minute=1_000, backoff_us=100, backoff_most_us=100),
    hedge=HedgeRule(delay_us=1_000, least_per_minute=1_000),
)
KINDS = {
    "completes": Plan(script=completing),
    "refused": Plan(script=refusing()),
    "refused_by_the_client": Plan(script=refusing("PROVIDER_REFUSED")),
    "optional_refused": Plan(script=refusing("PROVIDER_REFUSED", refused_parameters=("seed",))),
    "fails": Plan(script=failing),
    "lost": Plan(script=losing_sight),
    "silent": Plan(script=cancelled_after(0), waits_at=0),
    "stalls": Plan(script=cancelled_after(1), waits_at=1),
    "deaf": Plan(script=cancelled_after(0), waits_at=0, deaf=True),
}


@dataclass(kw_only=True)
class PerRequest(PlannedProvider):
    """Each request's attempts follow its own plans; what is beyond them completes."""

    of: dict[str, list[Plan]] = field(default_factory=dict)
    ready: asyncio.Event = field(default_factory=asyncio.Event)

    def start(self, call) -> ScriptedAttempt:
        request_id, _, ordinal = call.attempt_id.rpartition(".")
        plans = self.of.get(request_id, [])
        self.plans = [*[KINDS["completes"]] * len(self.calls), KINDS["completes"]]
        if int(ordinal) < len(plans):
            self.plans[len(self.calls)] = plans[int(ordinal)]
        return super().start(call)


asked = st.tuples(
    st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=3),
    st.booleans(),  # streams
    st.booleans(),  # has side effects
)


@settings(
    max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(asked, min_size=1, max_size=12))
def test_at_rest_nothing_is_held_but_the_money_of_open_unknowns(fleet_template, monkeypatch, plans):
    """Random ends over retry, fallback and hedge: slots and KV come back, debits equal credits,
    pending is the sum of the open unknowns, each receipt the sum of its attempts, all replayed."""
    monkeypatch.setattr(driving, "LOSER_SECONDS", 0.02)
    monkeypatch.setattr(driving, "CANCEL_SECONDS", 0.02)
    with tempfile.TemporaryDirectory() as folder:
        ledger = Path(folder) / "ledger.sqlite3"
        shutil.copyfile(fleet_template.ledger, ledger)
        with_rules(ledger, RULES, FAST, OTHER)
        provider = PerRequest(script=completing)

        async def play(on):
            book = on.journey.desk.book
            quota = book.quota("support-desk")
            book.change_quota("support-desk", msgspec.structs.replace(quota, in_flight_limit=500))
            runs = []
            for kinds, stream, side_effects in plans:
                run = await on.admitted(stream=stream, side_effects=side_effects)
                # Its task begins at the next await: before it, its plans are known.
                provider.of[run.request_id] = [KINDS[kind] for kind in kinds]
                runs.append(run)
            while any(not run.ended.is_set() for run in runs):
                await asyncio.sleep(0.05)
                for run in runs:
                    if run.legs[0].wait_us == 0 and not run.ended.is_set():
                        # Who would be silent for ever is cancelled, as a deadline would.
                        await on.journey.cancel(run, "DEADLINE_EXCEEDED")
            return [(await on.pieces(run))[1].filed.receipt for run in runs]

        with stage(ledger, provider) as on:
            receipts = asyncio.run(play(on))
            on.journey.desk.book.give_back_due(on.clock.now_us() + 10**12)
            slots, kv_tokens, pending_pico = on.held()
        assert (slots, kv_tokens) == (0, 0)
        with contextlib.closing(connect_read_only(ledger)) as reader:
            open_pico = sum(each.cost_pico for each in holds.open_reservations(reader))
            unknown = {
                row[0]
                for row in reader.execute(
                    "SELECT attempt_id FROM attempt_event WHERE outcome = 'unknown'"
                )
            }
            open_ids = {
                each.reservation_id + ("" if "." in each.reservation_id else ".0")
                for each in holds.open_reservations(reader)
            }
            assert (pending_pico, open_ids) == (open_pico, unknown)
            for balance in balances(reader):
                assert balance.debits_pico == balance.credits_pico
            for receipt in receipts:
                (spent,) = reader.execute(
                    f"SELECT sum(cost_pico) FROM {source(AttemptEvent)} WHERE request_id = ?",
                    (receipt.request_id,),
                ).fetchone()
                assert receipt.cost_total_pico == spent
            assert verify(reader, at_rest=True).faults == ()
            assert [r.code for r in audit(reader, at_rest=True, quick=True) if not r.holds] == []
            steps = tally(Replayer(reader).steps(), keep=1)
            assert steps.different == steps.not_comparable == 0
