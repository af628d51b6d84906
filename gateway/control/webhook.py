"""Control actions told to a webhook: signed, retried, each delivered or given up on record.

The body is JSON. `X-Weighbridge-Signature` is `t=<seconds>,v1=<hex>`, the HMAC-SHA256 of
`<seconds>.<body>` with the shared secret: a receiver checks it and the time. A delivery may come
twice after a crash; `id` is the action's place in the chain, by which it is known again.
"""

import asyncio
import hashlib
import hmac
import logging
import sqlite3
from collections.abc import Callable
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import msgspec

from gateway.clock import Clock
from ledger.queries.notices import untold
from ledger.records import ControlAction, Notification
from ledger.rows import Stored
from ledger.store import LedgerUnavailable, RecordRefused, Store

if TYPE_CHECKING:
    import aiohttp

log = logging.getLogger(__name__)

ATTEMPTS_LIMIT = 6
FIRST_WAIT_S = 1.0  # then twice as long each time: half a minute in all
TIMEOUT_S = 10.0
POLL_S = 5.0
LOOK_BACK_US = 86_400_000_000  # an action that is older is no news any more
BATCH_LIMIT = 50
GIVEN_UP = "given_up"


class Webhook:
    """Tells one address of what was done."""

    def __init__(
        self,
        *,
        url: str,
        secret: str,
        store: Store,
        reader: Callable[[], sqlite3.Connection],
        clock: Clock,
        first_wait_s: float = FIRST_WAIT_S,
    ) -> None:
        self._url, self._secret = url, secret.encode()
        self._target = urlsplit(url).netloc.rpartition("@")[2]  # without credentials
        self._store, self._reader, self._clock = store, reader, clock
        self._first_wait_s = first_wait_s

    async def tell_for_ever(self) -> None:
        """Deliver what was not told yet, for as long as the server runs."""
        import aiohttp  # 0.1 s of a start: only a server that tells somebody pays for it

        timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
        async with aiohttp.ClientSession(timeout=timeout) as session:
            while True:
                await self.tell(session)
                await asyncio.sleep(POLL_S)

    async def tell(self, session: "aiohttp.ClientSession") -> int:
        """Return how many actions were delivered or given up; each is then on record.

        After one that was given up the others wait for the next round, in which what came
        meanwhile has its place: a receiver that hangs takes a minute and a half for each.
        """
        since_us = self._clock.now_us() - LOOK_BACK_US
        waiting = await asyncio.to_thread(
            lambda: untold(self._reader(), self._target, since_us, limit=BATCH_LIMIT)
        )
        for told, action in enumerate(waiting, 1):
            outcome, attempts = await self._delivered(session, action)
            row = Notification(
                action_seq=action.seq,
                target=self._target,
                outcome=outcome,
                attempts=attempts,
                ended_at_us=self._clock.now_us(),
            )
            try:
                await self._store.commit((row,))
            except (LedgerUnavailable, RecordRefused) as problem:
                log.warning("a notification could not be recorded: %s", problem)
                return 0
            if outcome == GIVEN_UP:
                return told
        return len(waiting)

    async def _delivered(
        self, session: "aiohttp.ClientSession", action: Stored[ControlAction]
    ) -> tuple[str, int]:
        body = body_of(action)
        wait_s = self._first_wait_s
        for attempt in range(1, ATTEMPTS_LIMIT + 1):
            if await self._posted(session, body):
                return "delivered", attempt
            if attempt < ATTEMPTS_LIMIT:
                await asyncio.sleep(wait_s)
                wait_s *= 2
        log.warning("the webhook at %s was not reached; action %d", self._target, action.seq)
        return GIVEN_UP, ATTEMPTS_LIMIT

    async def _posted(self, session: "aiohttp.ClientSession", body: bytes) -> bool:
        import aiohttp

        headers = {
            "Content-Type": "application/json",
            "X-Weighbridge-Signature": signature(
                self._secret, body, self._clock.now_us() // 1_000_000
            ),
        }
        try:
            async with session.post(
                self._url, data=body, headers=headers, allow_redirects=False
            ) as answer:
                return 200 <= answer.status < 300
        except (aiohttp.ClientError, TimeoutError, OSError):
            return False


def body_of(action: Stored[ControlAction]) -> bytes:
    """What is sent of an action: its record, and its place in the chain as `id`."""
    record = action.record
    return msgspec.json.encode(
        {
            "id": action.seq,
            "action": record.action,
            "subject": record.subject,
            "actor": record.actor,
            "acted_at_us": record.acted_at_us,
            "reason": record.reason,
            "before": msgspec.Raw(record.before_json.encode()),
            "after": msgspec.Raw(record.after_json.encode()),
            "evidence": record.evidence,
            "episode": record.episode,
            "phase": record.phase,
        }
    )


def signature(secret: bytes, body: bytes, at_s: int) -> str:
    """The header's value for a body that is sent at a time."""
    digest = hmac.new(secret, f"{at_s}.".encode() + body, hashlib.sha256).hexdigest()
    return f"t={at_s},v1={digest}"
