"""Learns routes' speed from the ledger's receipts and files a new revision where it moved (ADM-5).

The server runs `Learner.run` and supervises it. What is learned is in force once it is durable,
and only where the policy in force says that predictions are learned.
"""

import asyncio
import logging
import sqlite3
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import msgspec

from gateway.clock import Clock
from gateway.configuration import Configuration
from gateway.policy.learning import Observed, differs, learn
from gateway.policy.values import LearningRule, Route
from ledger.errors import LedgerUnavailable
from ledger.queries import predictions
from ledger.records import PredictionRevision, Record
from ledger.store import Store

log = logging.getLogger(__name__)

IDLE_US: Final = 60_000_000
"""How often a policy that learns nothing is looked at again."""
KEPT_PER_ROUTE: Final = 20_000
"""Observations of a route that are kept in memory, over all buckets."""

Apply = Callable[[Sequence[Record]], Awaitable[None]]


class Learner:
    """Reads what was served since the last time, and learns of it."""

    def __init__(self, reader: Callable[[], sqlite3.Connection], clock: Clock) -> None:
        self._reader, self._clock = reader, clock
        self._read_to: int | None = None
        self._observed: dict[tuple[str, str], list[Observed]] = {}  # route, model identity

    async def run(
        self, configuration: Callable[[], Configuration], store: Store, apply: Apply
    ) -> None:
        """Learn for ever, as often as the policy in force says; file and apply what is new."""
        while True:
            rule = configuration().policy.learning
            await asyncio.sleep((IDLE_US if rule is None else rule.every_us) / 1e6)
            in_force = configuration()
            if in_force.policy.learning is None:
                continue
            rows = await asyncio.to_thread(self.revisions, in_force, in_force.policy.learning)
            if not rows:
                continue
            try:
                await store.commit(rows)
            except LedgerUnavailable:
                log.warning("what was learned could not be filed; it is learned again")
                continue
            await apply(rows)
            log.info("learned of %s", ", ".join(row.route_id for row in rows))

    def revisions(
        self, configuration: Configuration, rule: LearningRule
    ) -> tuple[PredictionRevision, ...]:
        """Return a revision for each route whose receipts say something else than what is known."""
        self._read()
        found = []
        for route in configuration.candidates:
            observed = self._observed.get((route.route_id, route.identity_id), [])
            learned = learn(observed, rule)
            if learned and differs(route.prediction.buckets, learned, rule):
                found.append(self._record(route, configuration.policy.revision, observed, learned))
        return tuple(found)

    def _read(self) -> None:
        connection = self._reader()
        if self._read_to is None:
            self._read_to = predictions.place_of_recent(connection)
        while True:
            served, read_to = predictions.served_after(connection, self._read_to)
            for each in served:
                kept = self._observed.setdefault((each.route_id, each.identity_id), [])
                kept.append(observed_of(each))
                if len(kept) > 2 * KEPT_PER_ROUTE:
                    del kept[:KEPT_PER_ROUTE]
            if read_to == self._read_to:
                return
            self._read_to = read_to

    def _record(
        self,
        route: Route,
        policy_revision: str,
        observed: Sequence[Observed],
        learned: Sequence[msgspec.Struct],
    ) -> PredictionRevision:
        last_seq = observed[-1].seq
        return PredictionRevision(
            route_id=route.route_id,
            revision=f"learned-{last_seq}",
            identity_id=route.identity_id,
            policy_revision=policy_revision,
            body_json=msgspec.json.encode(learned).decode(),
            receipts=len(observed),
            first_seq=observed[0].seq,
            last_seq=last_seq,
            learned_at_us=self._clock.now_us(),
        )


def observed_of(served: predictions.Served) -> Observed:
    """Return a receipt as it teaches; the time between tokens is rounded up."""
    gaps = served.output_tokens - 1
    spaced = gaps > 0 and served.decode_us is not None
    return Observed(
        seq=served.seq,
        input_tokens=served.input_tokens,
        prefill_us=served.prefill_us,
        inter_token_us=-(-(served.decode_us or 0) // gaps) if spaced else None,
    )
