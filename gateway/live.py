"""The running server's state as a page may see it: a copy, taken on its event loop.

Only the process that serves has it. Elsewhere `look` returns None, and a page says what the ledger
says instead.
"""

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import TimeoutError as TookTooLong
from dataclasses import dataclass
from pathlib import Path

from gateway.policy.breaking import Breaker
from gateway.policy.values import CapacitySnapshot
from ledger.store import StoreStatus

WAIT_SECONDS = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveRoute:
    """One route now: its last snapshot, what is held on it, its breaker, when it may be asked."""

    route_id: str
    snapshot: CapacitySnapshot | None
    in_flight: int
    kv_held_tokens: int
    breaker: Breaker
    cooldown_until_us: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Live:
    """The server at one moment. `problems`: why it isn't ready, each a sentence."""

    at_us: int
    routes: Mapping[str, LiveRoute]
    writer: StoreStatus
    problems: tuple[str, ...]


_Take = Callable[[], Live]
_shown: dict[Path, tuple[asyncio.AbstractEventLoop, _Take]] = {}  # of this process, by ledger


def show(ledger: Path, take: _Take) -> None:
    """Let this process's pages look at the server that owns `ledger`. Called on its event loop."""
    _shown[ledger.resolve()] = (asyncio.get_running_loop(), take)


def hide(ledger: Path) -> None:
    _shown.pop(ledger.resolve(), None)


def look(ledger: Path) -> Live | None:
    """The server's state now; None where none runs in this process, or it doesn't answer in time.

    Not to be called on the event loop.
    """
    found = _shown.get(ledger.resolve())
    if found is None:
        return None
    loop, take = found

    async def taken() -> Live:
        return take()

    asked = asyncio.run_coroutine_threadsafe(taken(), loop)
    try:
        return asked.result(WAIT_SECONDS)
    except TookTooLong:
        asked.cancel()
        return None
