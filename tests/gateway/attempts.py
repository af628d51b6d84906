"""Attempts that follow a plan each, over a fleet whose policy has rules for them."""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from gateway.demo.fleet import policy as demo_policy
from gateway.policy.values import AttemptRules, RetryRule
from gateway.providers.base import Call
from gateway.providers.outcomes import Cancelled, Completed, Failed, Rejected, Timings, Unknown
from gateway.replaying import Replayer, tally
from gateway.submission import Delta
from ledger.invariants import audit
from ledger.queries.dossier import Dossier, dossier
from ledger.rates import Usage
from ledger.reading import connect_read_only
from ledger.records import RoutePolicyRecord
from ledger.store import Store
from ledger.verify import verify
from tests.gateway.scripted import ScriptedAttempt, ScriptedProvider, Stage, Step, stage

PIECES = (Delta(text="Sim", tokens=1), Delta(text="ulated", tokens=2))
QUICK = RetryRule(backoff_us=1_000, backoff_most_us=1_000)
RETRIES = AttemptRules(limit=3, retry=QUICK)
FAST, OTHER, LONG = "fast-v2", "fast-us-v2", "long-context-v4"


def used(call: Call, output_tokens: int = 3) -> Usage:
    return Usage(input_tokens=call.input_tokens, output_tokens=output_tokens)


def completing(call: Call) -> list[Step]:
    return [*PIECES, Completed(usage=used(call), finish_reason="stop")]


def refusing(reason: str = "PROVIDER_OVERLOADED", **more: Any) -> Callable[[Call], list[Step]]:
    return lambda call: [Rejected(usage=used(call, 0), reason=reason, **more)]


def failing(call: Call) -> list[Step]:
    return [Failed(usage=used(call, 0), reason="PROVIDER_INTERNAL_ERROR", retryable=True)]


def losing_sight(call: Call) -> list[Step]:
    return [Unknown(usage=used(call, 0), reason="PROVIDER_CONNECTION_LOST")]


def cancelled_after(pieces: int) -> Callable[[Call], list[Step]]:
    """Acknowledges its cancel after so many pieces; see `Plan.waits_at`."""
    timings = Timings(cancel_ack_us=0)
    return lambda call: [
        *PIECES[:pieces],
        Cancelled(
            usage=used(call, sum(each.tokens for each in PIECES[:pieces])),
            timings=timings,
            reason="HEDGE_LOST",
        ),
    ]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What one attempt does. `waits_at`: the step before which it waits for its cancel."""

    script: Callable[[Call], Sequence[Step]]
    waits_at: int | None = None
    deaf: bool = False
    waits_for: asyncio.Event | None = None  # before its first step


@dataclass(kw_only=True)
class PlannedAttempt(ScriptedAttempt):
    waits_for: asyncio.Event | None = None

    async def events(self):
        if self.waits_for is not None:
            await self.waits_for.wait()
        async for event in super().events():
            yield event


@dataclass(kw_only=True)
class PlannedProvider(ScriptedProvider):
    """The attempts follow the plans, one each, in the order in which they are sent."""

    plans: list[Plan] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)

    def start(self, call: Call) -> ScriptedAttempt:
        plan = self.plans[len(self.calls)]
        self.calls.append(call)
        made = PlannedAttempt(
            steps=plan.script(call), waits_at=plan.waits_at, deaf=plan.deaf,
            waits_for=plan.waits_for,
        )  # fmt: skip
        self.attempts.append(made)
        return made


def planned(*plans: Plan | Callable[[Call], Sequence[Step]]) -> PlannedProvider:
    made = [plan if isinstance(plan, Plan) else Plan(script=plan) for plan in plans]
    return PlannedProvider(script=completing, plans=made)


def with_rules(ledger: Path, rules: AttemptRules, *primaries: str, **changed: Any) -> None:
    """Publish the demonstration's policy with rules, `assist` on these primaries, no canary."""
    policy = demo_policy()
    models = tuple(
        msgspec.structs.replace(model, primary_routes=primaries or (FAST,), canary=None)
        if model.name == "assist"
        else model
        for model in policy.models
    )
    policy = msgspec.structs.replace(
        policy, revision="route-policy-attempts", models=models, attempts=rules, **changed
    )
    with Store.open(ledger) as store:
        store.append(
            (
                RoutePolicyRecord(
                    revision=policy.revision,
                    body_json=msgspec.json.encode(policy).decode(),
                    published_at_us=1,
                    published_by="tests",
                ),
            )
        ).result()


@dataclass(kw_only=True)
class Played:
    """A request's end: its text, what is filed, what is held afterwards."""

    text: str
    filed: Dossier
    held: tuple[int, int, int]
    provider: PlannedProvider

    @property
    def receipt(self):
        return self.filed.current.record

    def attempts(self) -> list[tuple[str, str, str | None]]:
        """(kind, route, outcome) of each attempt."""
        ends = {
            each.record.attempt_id: each.record.outcome
            for each in self.filed.attempt_events
            if each.record.event == "ended"
        }
        return [
            (each.record.kind, each.record.route_id, ends.get(each.record.attempt_id))
            for each in self.filed.attempts
        ]

    def costs(self) -> list[int]:
        return [
            each.record.cost_pico or 0
            for each in self.filed.attempt_events
            if each.record.event == "ended"
        ]

    def settled(self) -> list[tuple[str, str, int]]:
        return [
            (each.record.reservation_id.partition(".")[2], each.record.kind, each.record.cost_pico)
            for each in self.filed.settlements
        ]


def played(fleet, provider: PlannedProvider, rules=RETRIES, primaries=(FAST,), **asked) -> Played:
    """Carry one request, then prove what every end has to keep: the chain, the sums, the replay."""
    with_rules(fleet.ledger, rules, *primaries)

    async def play(on: Stage):
        run = await on.admitted(**asked)
        return run, (await on.pieces(run))[0]

    with stage(fleet.ledger, provider) as on:
        run, text = asyncio.run(play(on))
        held = on.held()
    return proved(fleet.ledger, run.request_id, text, held, provider)


def proved(ledger: Path, request_id: str, text: str, held, provider) -> Played:
    with contextlib.closing(connect_read_only(ledger)) as reader:
        filed = dossier(reader, request_id)
        assert filed is not None
        assert verify(reader, at_rest=True).faults == ()
        for result in (
            tally(Replayer(reader).all(), keep=1),
            tally(Replayer(reader).steps(), keep=1),
        ):
            assert (result.different, result.not_comparable) == (0, 0), result.first_different
    end = Played(text=text, filed=filed, held=held, provider=provider)
    with contextlib.closing(connect_read_only(ledger)) as reader:
        broken = [each for each in audit(reader, at_rest=True, quick=True) if not each.holds]
        assert not broken, [(r.code, [str(f) for f in r.findings]) for r in broken]
    receipt = end.receipt
    assert receipt.attempts == len(filed.attempts) == len(end.costs())
    assert receipt.cost_total_pico == sum(end.costs())
    open_pico = sum(
        each.record.cost_pico
        for each in filed.reservations
        if each.record.reservation_id not in {s.record.reservation_id for s in filed.settlements}
    )
    assert held[2] == open_pico
    return end
