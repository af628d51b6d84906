"""Mixed traffic while something breaks: clients that note all that they were told."""

import asyncio
import contextlib
import json
import random
import time
from dataclasses import dataclass, field

import aiohttp

from tests.faults.rig import TENANTS, Rig
from tests.system.crowd import PROMPT

CLIENTS = 12
PAUSE_S = 0.03  # of a client between two exchanges, on average
PATIENCE_S = 180.0  # no exchange may take longer, whatever breaks and however busy the machine is
DEADLINES_MS = (800, 2_000, 8_000)


@dataclass(slots=True, kw_only=True)
class Told:
    """What clients saw of one stretch of traffic."""

    ids: set[str] = field(default_factory=set)
    receipts: dict[str, dict] = field(default_factory=dict)
    statuses: dict[int, int] = field(default_factory=dict)
    lost: int = 0  # exchanges that were broken off
    hung: int = 0  # exchanges that took longer than PATIENCE_S
    longest_s: float = 0.0  # of an exchange
    bits: int = 0


class Load:
    """CLIENTS at once from `async with` until it ends, or until `rounds` exchanges each."""

    def __init__(self, rig: Rig, seed: int, *, clients: int = CLIENTS, pause_s: float = PAUSE_S):
        self.told = Told()
        self._rig, self._pause_s = rig, pause_s
        self._stop = asyncio.Event()
        self._chances = [random.Random(seed * 1_000 + number) for number in range(clients)]
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> "Load":
        self._tasks = [asyncio.create_task(self._client(chance)) for chance in self._chances]
        return self

    async def __aexit__(self, *_: object) -> None:
        self.stop()
        await asyncio.gather(*self._tasks)

    def stop(self) -> None:
        """Begin no further exchange."""
        self._stop.set()

    async def seen(self, bits: int, limit_s: float = 10.0) -> None:
        """Return once clients have seen so much, in the middle of their answers."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                while self.told.bits < bits:
                    await asyncio.sleep(0.002)

    async def _client(self, chance: random.Random) -> None:
        while not self._stop.is_set():
            begun = time.monotonic()
            try:
                async with asyncio.timeout(PATIENCE_S):
                    await one(self._rig, chance, self.told)
            except TimeoutError:
                self.told.hung += 1
            self.told.longest_s = max(self.told.longest_s, time.monotonic() - begun)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(chance.random() * 2 * self._pause_s):
                    await self._stop.wait()


async def one(rig: Rig, chance: random.Random, told: Told, *, twice: bool = True) -> None:
    """One exchange of any kind: whole or streamed, cancelled, left early, asked twice, refused.

    `twice`: some under an Idempotency-Key, whose answers the server then retains for minutes.
    """
    body = {
        "model": chance.choice(("assist", "real")),
        "messages": [{"role": "user", "content": PROMPT}],
        "max_tokens": chance.choice((0, 4, 16, 48, 48, 200)) if chance.random() < 0.3 else 16,
        "stream": chance.random() < 0.6,
        "ignore_eos": True,
    }
    headers = {
        "authorization": f"Bearer {rig.keys[chance.choice(TENANTS)]}",
        "x-deadline-ms": str(chance.choice(DEADLINES_MS)),
    }
    kind = chance.random()
    if twice and kind < 0.08:
        headers["idempotency-key"] = f"key-{chance.getrandbits(64):x}"
        await asyncio.gather(*(_exchange(rig, body, headers, told) for _ in range(2)))
    elif kind < 0.18:
        await _exchange(rig, {**body, "stream": True}, headers, told, leave_after=1)
    elif kind < 0.23:
        await _exchange(rig, {**body, "stream": True}, headers, told, cancel=True)
    else:
        await _exchange(rig, body, headers, told)


async def _exchange(
    rig: Rig, body: dict, headers: dict[str, str], told: Told, *, leave_after: int = 0,
    cancel: bool = False,
) -> None:  # fmt: skip
    try:
        async with rig.session.post(
            f"{rig.base_url}/v1/chat/completions", json=body, headers=headers
        ) as answer:
            request_id = answer.headers["x-request-id"]
            if request_id.startswith("req_"):
                told.ids.add(request_id)
            told.statuses[answer.status] = told.statuses.get(answer.status, 0) + 1
            told.bits += 1
            if answer.status == 200 and body["stream"]:
                if cancel:
                    await _cancelled(rig, request_id, headers)
                async for line in answer.content:
                    told.bits += 1
                    if b'"receipt":{' in line:
                        receipt = json.loads(line.removeprefix(b"data: "))["receipt"]
                        told.receipts[request_id] = receipt
                    if leave_after and told.bits % 4 == 0:
                        return
            else:
                whole = await answer.json()
                if "receipt" in whole:
                    told.receipts[whole["receipt"]["request_id"]] = whole["receipt"]
    except (aiohttp.ClientError, OSError, ValueError):
        told.lost += 1


async def _cancelled(rig: Rig, request_id: str, headers: dict[str, str]) -> None:
    url = f"{rig.base_url}/api/v1/requests/{request_id}/cancel"
    async with rig.session.post(url, json={}, headers=headers) as answer:
        await answer.read()
