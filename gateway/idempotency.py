"""Idempotency-Key: the same key and request is the same run and receipt (LED-5).

A claim is durable in the commit that records the decision, so it survives a restart. Outputs are
kept in memory alone, for minutes and within a named size: within them concurrent and later callers
join the request and read its answer from the first piece; after them they get 410 and the receipt.
A refusal frees its key: nothing ran under it, so it may be sent again later or corrected.
"""

import asyncio
import hmac
import sqlite3
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from gateway.clock import Clock
from gateway.submission import Claim
from ledger.errors import LedgerUnavailable
from ledger.queries.idempotency import claim_of
from ledger.reading import READ_FAULTS

RETAINED_US = 600_000_000
RETAINED_CHARS = 16_777_216
RETAINED_CLAIMS = 65_536
KEY_LIMIT_CHARS = 255
LOOK_US = 1_000_000
LOOK_SHARE = 16  # of the kept claims, and one more is claimed: then all are looked at again


@dataclass(frozen=True, slots=True, kw_only=True)
class Conflict:
    """The key was used with another body or other budget headers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """The key's request is over and its output is not kept; its receipt is in the ledger."""

    request_id: str


@dataclass(slots=True, kw_only=True, eq=False)
class Claimed:
    """A key in use. `admitted` is set by the first caller, and awaited by those who join it."""

    claim: Claim
    claimed_at_us: int
    first: bool
    admitted: "asyncio.Future[Any]" = field(repr=False)  # a journey's Run or Refusal
    output: Callable[[], tuple[bool, int]] = field(repr=False)  # (over, characters kept)


class Claims:
    """The keys of the last minutes. Owned by the event loop: claiming never awaits."""

    def __init__(self, clock: Clock, secret: str, reader: Callable[[], sqlite3.Connection]) -> None:
        self._clock = clock
        self._secret = secret.encode()
        self._reader = reader
        self._claimed: OrderedDict[tuple[str, bytes], Claimed] = OrderedDict()
        self._looked_at_us, self._claimed_since = 0, 0

    def claim(self, tenant_id: str, key: str, body: bytes) -> Claimed | Conflict | Past:
        """Return the claim, new or joined; or why the key can't be claimed.

        `body` is all that must be the same under the key: the body and the budget headers. Raises
        LedgerUnavailable where the ledger can't say whether the key was used.
        """
        self._forget_old()
        claim = Claim(key_mac=self._mac("key", key.encode()), body_mac=self._mac("body", body))
        found = self._claimed.get((tenant_id, claim.key_mac))
        if found is not None:
            if not hmac.compare_digest(found.claim.body_mac, claim.body_mac):
                return Conflict()
            return Claimed(
                claim=claim, claimed_at_us=found.claimed_at_us, first=False,
                admitted=found.admitted, output=found.output,
            )  # fmt: skip
        try:
            recorded = claim_of(self._reader(), tenant_id, claim.key_mac)
        except READ_FAULTS as fault:
            raise LedgerUnavailable("the ledger can't be read") from fault
        if recorded is not None:
            same = hmac.compare_digest(recorded.body_mac, claim.body_mac)
            return Past(request_id=recorded.request_id) if same else Conflict()
        fresh = Claimed(
            claim=claim, claimed_at_us=self._clock.now_us(), first=True,
            admitted=asyncio.get_running_loop().create_future(), output=lambda: (False, 0),
        )  # fmt: skip
        self._claimed[(tenant_id, claim.key_mac)] = fresh
        return fresh

    def settle(
        self, tenant_id: str, claimed: Claimed, admitted: object,
        output: Callable[[], tuple[bool, int]], *, keep: bool,
    ) -> None:  # fmt: skip
        """Tell who joined what became of the request; `keep` it for later ones, or free the key."""
        claimed.output = output
        claimed.admitted.set_result(admitted)
        if not keep:
            self._claimed.pop((tenant_id, claimed.claim.key_mac), None)

    def abandon(self, tenant_id: str, claimed: Claimed, fault: BaseException) -> None:
        """Free the key of a request that could not be recorded; who joined gets the same fault."""
        self._claimed.pop((tenant_id, claimed.claim.key_mac), None)
        claimed.admitted.set_exception(fault)
        claimed.admitted.exception()  # seen: nobody may have joined

    def _mac(self, purpose: str, value: bytes) -> bytes:
        return hmac.digest(self._secret, purpose.encode() + b"\x00" + value, "sha256")

    def _forget_old(self) -> None:
        """Drop what is over: all that is too old, then the oldest until the rest fits.

        All are looked at once a sixteenth more are claimed, or a second later: a claim costs a few
        looks however many are kept, and between two looks memory holds no more than that share.
        """
        now_us = self._clock.now_us()
        self._claimed_since += 1
        due = self._claimed_since * LOOK_SHARE >= len(self._claimed)
        if not due and now_us - self._looked_at_us < LOOK_US:
            return
        self._looked_at_us, self._claimed_since = now_us, 0
        over = [(k, c, c.output()[1]) for k, c in self._claimed.items() if c.output()[0]]
        kept_chars = sum(chars for _, _, chars in over)
        for key, claimed, chars in over:
            if (
                claimed.claimed_at_us > now_us - RETAINED_US
                and kept_chars <= RETAINED_CHARS
                and len(self._claimed) <= RETAINED_CLAIMS
            ):
                break
            kept_chars -= chars
            del self._claimed[key]
