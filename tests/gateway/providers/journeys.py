"""The whole data plane over one backend, in this process: a request in, what is filed out.

One tenant, one route of the kind that its address names; 2 units a million tokens in and 8 out,
cached input at half a unit.
"""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec

from gateway.clock import SystemClock
from gateway.policy.values import LogicalModel, Route, RoutePolicy
from gateway.quota import Quota
from gateway.runtime import Runtime
from gateway.submission import Caller, Delta, Ended, Message, Submission
from ledger import records as r
from ledger.queries.dossier import Dossier, dossier
from ledger.rates import Rate, RateTable
from ledger.reading import connect_read_only
from ledger.store import Store
from tests import factories
from tests import policy_factories as make

KINDS: dict[str, Any] = {"sim": "simulator", "openai": "openai", "kserve": "kserve"}
LIMIT_S = 120  # that a test hangs, not how fast it is
CANARY = "canary-7d11"
PROMPT = f"{CANARY} weighs how much?"
AT_ONCE = 4
OUTPUT_TOKENS = 16
RATES = RateTable(
    version="rates-real",
    effective_from_us=0,
    currency="units",
    rates=(
        Rate(
            key="real-1",
            input_micro_per_mtok=2_000_000,
            output_micro_per_mtok=8_000_000,
            cached_input_micro_per_mtok=500_000,
        ),
    ),
)


def cost(input_tokens: int, output_tokens: int) -> int:
    return 2_000_000 * input_tokens + 8_000_000 * output_tokens


def fleet(address: str) -> list[r.Record]:
    """A policy whose one route is a real backend without snapshots, four requests at a time."""
    return [
        *published(address),
        factories.rate_table(RATES),
        factories.tenant(body_json=msgspec.json.encode(Quota(in_flight_limit=AT_ONCE)).decode()),
    ]


def published(
    address: str,
    *,
    revision: str = "policy-real",
    identity_id: str = "mid_a",
    tokenizer_revision: str = "o200k_base/chat-1",
) -> list[r.Record]:
    """A model's identity, and a policy whose one route leads to it."""
    real = Route(
        route_id="real-1",
        identity_id=identity_id,
        tokenizer_revision=tokenizer_revision,
        provider_kind=KINDS[address.partition(":")[0]],
        address=address,
        region="eu",
        capabilities=(),
        max_input_tokens=4_096,
        max_output_tokens=2_048,
        max_total_tokens=4_096,
        prediction=make.prediction(queue_us=0, prefill_base_us=1_000, inter_token_us=1_000),
    )
    assist = LogicalModel(
        name="assist",
        primary_routes=("real-1",),
        max_input_tokens=4_096,
        max_output_tokens=2_048,
        max_total_tokens=4_096,
        default_output_tokens=OUTPUT_TOKENS,
        default_deadline_us=60_000_000,
    )
    policy = RoutePolicy(
        revision=revision, models=(assist,), routes=(real,), probe_allowance=AT_ONCE
    )
    return [
        factories.model_identity(
            identity_id=identity_id, logical_model="assist", tokenizer_revision=tokenizer_revision
        ),
        factories.route_policy(
            revision=policy.revision, body_json=msgspec.json.encode(policy).decode()
        ),
    ]


class MovableClock(SystemClock):
    """The real time, which a test can move on."""

    moved_us = 0

    def now_us(self) -> int:
        return super().now_us() + self.moved_us


class Gateway:
    """The running data plane, and what its ledger has."""

    def __init__(self, runtime: Runtime, ledger: Path, clock: MovableClock) -> None:
        self.runtime, self.ledger, self.clock = runtime, ledger, clock

    async def run(
        self,
        *,
        after: tuple[int, Callable[[], Awaitable[None]]] | None = None,
        cancel_after: int | None = None,
        **asked: Any,
    ) -> tuple[str, Dossier]:
        """Carry one request to its end; returns its text and what is filed of it.

        `after`: what to do once so many pieces came. Further keywords are the submission's.
        """
        journey = self.runtime.journey
        run = await journey.admit(
            Submission(
                caller=Caller(tenant_id="acme", key_id="key_1", scopes=frozenset({"inference"})),
                logical_model="assist",
                **{"messages": (Message(role="user", content=PROMPT),), **asked},
            )
        )
        assert not hasattr(run, "reason_code"), run
        text, pieces = "", 0
        async for piece in journey.deliver(run):
            if isinstance(piece, Ended):
                break
            assert isinstance(piece, Delta)
            text, pieces = text + piece.text, pieces + 1
            if pieces == cancel_after:
                await journey.cancel(run)
            if after is not None and pieces == after[0]:
                await after[1]()
        connection = connect_read_only(self.ledger)
        filed = dossier(connection, run.request_id)
        connection.close()
        assert filed is not None
        return text, filed

    def held(self) -> tuple[int, int, int]:
        """(slots, KV tokens, pending money) of the book."""
        book = self.runtime.journey.desk.book
        book.give_back_due(self.clock.now_us())
        return book.in_flight(), book.kv_held_tokens(), book.pending_pico()


async def carried(ledger: Path, scenario: Callable[[Gateway], Awaitable[Any]]) -> Any:
    """Run a scenario on the data plane over a ledger that has a fleet."""
    clock = MovableClock()
    runtime = Runtime(ledger=ledger, clock=clock, secret="test")
    await runtime.start()
    try:
        async with asyncio.timeout(LIMIT_S):
            return await scenario(Gateway(runtime, ledger, clock))
    finally:
        await runtime.stop()


def load(ledger: Path, address: str) -> None:
    with Store.open(ledger) as store:
        store.append(fleet(address)).result()


def shown(filed: Dossier) -> tuple[Any, ...]:
    """(status, code, input, output, source, total cost) of the current receipt."""
    receipt = filed.current.record
    return (
        receipt.status,
        receipt.terminal_error_code,
        receipt.input_tokens,
        receipt.output_tokens,
        receipt.usage_source,
        receipt.cost_total_pico,
    )


def settled(filed: Dossier) -> list[tuple[str, int]]:
    return [(each.record.kind, each.record.cost_pico) for each in filed.settlements]
