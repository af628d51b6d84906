"""Many clients at once, whole answers and streams, who note all that they were told."""

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import aiohttp

from tests.server import Server

PROMPT = "How much does the lorry in bay four weigh?"


@dataclass(slots=True, kw_only=True)
class Noted:
    """What the clients saw: ids, receipts by id, statuses; `seen` is told of each bit."""

    ids: set[str] = field(default_factory=set)
    receipts: dict[str, dict] = field(default_factory=dict)
    statuses: list[int] = field(default_factory=list)
    errors: list[tuple[Mapping[str, str], dict]] = field(default_factory=list)  # with headers
    lost: int = 0  # exchanges that the server broke off
    bits: int = 0
    seen: Callable[["Noted"], None] = lambda noted: None

    def bit(self) -> None:
        self.bits += 1
        self.seen(self)


async def ask(session: aiohttp.ClientSession, server: Server, key: str, noted: Noted, **fields):
    """One exchange; a broken connection ends it silently, as the server's end would."""
    body = {"model": "assist", "messages": [{"role": "user", "content": PROMPT}], **fields}
    try:
        async with session.post(
            f"{server.base_url}/v1/chat/completions",
            json=body,
            headers={"authorization": f"Bearer {key}"},
        ) as response:
            request_id = response.headers["x-request-id"]
            if request_id.startswith("req_"):
                noted.ids.add(request_id)
            noted.statuses.append(response.status)
            noted.bit()
            if response.status != 200:
                noted.errors.append((response.headers, (await response.json())["error"]))
            elif fields.get("stream"):
                async for line in response.content:
                    if b'"receipt":{' in line:
                        receipt = json.loads(line.removeprefix(b"data: "))["receipt"]
                        noted.receipts[request_id] = receipt
                    noted.bit()
            else:
                noted.receipts[request_id] = (await response.json())["receipt"]
    except (aiohttp.ClientError, ConnectionError):
        noted.lost += 1


def crowd(
    server: Server, key: str, noted: Noted, *, clients: int, rounds: int = 1, **fields
) -> None:
    """`clients` at once, every other one streaming, `rounds` times each or until it breaks off."""

    async def one(session: aiohttp.ClientSession, number: int) -> None:
        for _ in range(rounds):
            await ask(session, server, key, noted, **{"stream": number % 2 == 0, **fields})
            if noted.lost:
                return

    async def everyone() -> None:
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(connector=connector) as session:
            await asyncio.gather(*(one(session, number) for number in range(clients)))

    asyncio.run(everyone())
