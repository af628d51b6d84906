"""What a fault run is done to: a server on a disk that fails on command, with a real backend.

The backend is the fault server, a process of its own. The listening socket is held here, so that a
server which is killed comes back under the same address, as behind a load balancer; its processes
are forked from `tests.faults.spring`.
"""

import asyncio
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import msgspec

from gateway.api.auth import ALL_SCOPES, KEY_RANDOM_BYTES, mint_key
from gateway.demo.fleet import SUITE, identity
from gateway.policy.values import (
    AttemptRules,
    BreakerRule,
    FallbackEdge,
    HedgeRule,
    LogicalModel,
    RetryRule,
    Route,
    RoutePolicy,
)
from gateway.quota import Quota
from ledger import records as r
from ledger.rates import Rate, RateTable
from ledger.reading import connect_read_only
from ledger.store import Store
from tests import factories
from tests import policy_factories as make
from tests.faults.disk import Disk
from tests.server import ROOT, environment_of

TENANTS = ("acme", "globex")
TIME_SCALE = 20.0
BACK_WITHIN_S = 5.0
START_LIMIT_S = 240.0
STEP_S = 0.05
TOKENIZER = "o200k_base/chat-1"
SIMULATED = identity("assist", "w-sim", TOKENIZER, "sim-1", "bf16", "assist-1")
REAL = identity("real", "w-real", TOKENIZER, "any-1", "bf16", "real-1")

RATES = RateTable(
    version="rates-1",
    effective_from_us=0,
    currency="units",
    rates=tuple(
        Rate(
            key=who.identity_id,
            input_micro_per_mtok=2_000_000,
            output_micro_per_mtok=8_000_000,
            cached_input_micro_per_mtok=500_000,
        )
        for who in (SIMULATED, REAL)
    ),
)


def fleet(upstream_url: str) -> list[r.Record]:
    """Two models: one simulated, one on the backend with the simulator as its fallback."""
    policy = RoutePolicy(
        revision="faults-1",
        models=(_model("assist", "sim-1", "sim-2"), _model("real", "real-1")),
        routes=(
            _route("sim-1", SIMULATED, "simulator", "sim:llama-3.1-8b-rtx4090"),
            _route("sim-2", SIMULATED, "simulator", "sim:llama-3.1-8b-rtx4090"),
            _route(
                "real-1", REAL, "openai",
                f"openai:{upstream_url}?model=faulty&close_cancels=1&kv_tokens=1000000",
            ),
        ),
        edges=(
            FallbackEdge(
                from_route="real-1", to_route="sim-1",
                allowed_reasons=("overloaded", "unhealthy", "deadline_risk"),
                required_evaluation_suite=SUITE, quality_floor_milli=800,
            ),
        ),
        attempts=AttemptRules(
            limit=3,
            retry=RetryRule(budget_permille=300),
            hedge=HedgeRule(delay_us=700_000, budget_permille=200),
            breaker=BreakerRule(failures=8, window_us=2_000_000, open_us=500_000),
        ),
    )  # fmt: skip
    quota = msgspec.json.encode(Quota(in_flight_limit=512)).decode()
    return [
        SIMULATED,
        REAL,
        factories.rate_table(RATES, published_at_us=0),
        r.EvaluationResult(
            evaluation_id=f"{SUITE}/assist-1", suite=SUITE, identity_id=SIMULATED.identity_id,
            score_milli=912, passed=1, measured_at_us=0, evidence="declared by the fault run",
        ),
        r.RoutePolicyRecord(
            revision=policy.revision, body_json=msgspec.json.encode(policy).decode(),
            published_at_us=0, published_by="tests",
        ),
        *(factories.tenant(tenant_id=name, body_json=quota, changed_at_us=0) for name in TENANTS),
    ]  # fmt: skip


def _model(name: str, *routes: str) -> LogicalModel:
    return LogicalModel(
        name=name, primary_routes=routes, max_input_tokens=8_192, max_output_tokens=1_024,
        max_total_tokens=8_192, default_output_tokens=64, default_deadline_us=30_000_000,
    )  # fmt: skip


def _route(route_id: str, who: r.ModelIdentity, kind, address: str) -> Route:
    return Route(
        route_id=route_id, identity_id=who.identity_id, tokenizer_revision=TOKENIZER,
        provider_kind=kind, address=address, region="eu", capabilities=("json_schema", "tools"),
        max_input_tokens=8_192, max_output_tokens=1_024, max_total_tokens=8_192,
        prediction=make.prediction(queue_us=0, prefill_base_us=1_000, inter_token_us=1_000),
        quality_milli=900,
    )  # fmt: skip


@dataclass(slots=True, kw_only=True)
class Rig:
    """The server, its disk and its backend. `faulty` None: no compiler, so no failing disk."""

    ledger: Path
    keys: dict[str, str]
    disk: Disk | None
    listening: socket.socket
    session: aiohttp.ClientSession
    cache_kib: int | None = None  # of the writer's pages; None: as many as it has by itself
    upstream_port: int = 0
    spring: "subprocess.Popen[str] | None" = None
    pid: int = 0
    status: int | None = 0  # of the last server that ended; None: it runs
    upstream: "subprocess.Popen[str] | None" = None
    starts: int = 0
    most_connections: int = 0  # that an injection opens; 0: as many as its kind says
    clients: int = 0  # of the load; 0: as many as it has by itself
    notes: dict[str, int] = field(default_factory=dict)  # what injections count of their own

    @property
    def port(self) -> int:
        return self.listening.getsockname()[1]

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def log(self) -> Path:
        return self.ledger.with_suffix(".log")

    def reader(self):
        return connect_read_only(self.ledger)

    def note(self, what: str, count: int = 1) -> None:
        self.notes[what] = self.notes.get(what, 0) + count

    # The server's process.

    def open_spring(self) -> None:
        """Have everything imported from which servers are forked."""
        environment = environment_of(self.ledger, TIME_SCALE)
        if self.disk is not None:
            environment |= self.disk.environment()
        with self.log.open("ab") as output:
            self.spring = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "tests.faults.spring",
                    str(self.listening.fileno()),
                    *([] if self.cache_kib is None else [str(self.cache_kib)]),
                ],
                cwd=ROOT,
                env=environment,
                pass_fds=(self.listening.fileno(),),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                text=True,
            )
        assert self.spring.stdout.readline().strip() == "ready", self.log.read_text()[-2_000:]

    def start(self) -> None:
        """Start the server; it takes what has waited in the socket."""
        self.pid, self.status = int(self._asked("start")), None
        self.starts += 1

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Send the server a signal, and wait for its end where that is what the signal means."""
        if self.status is None:
            os.kill(self.pid, number)
        if number in (signal.SIGKILL, signal.SIGTERM) and self.status is None:
            self.status = int(self._asked(f"wait {self.pid}"))

    def _asked(self, line: str) -> str:
        assert self.spring is not None
        self.spring.stdin.write(line + "\n")
        self.spring.stdin.flush()
        return self.spring.stdout.readline().strip()

    def alive(self) -> bool:
        if self.status is None:
            said = self._asked(f"poll {self.pid}")
            self.status = None if said == "None" else int(said)
        return self.status is None

    def waited_s(self) -> float:
        """Seconds in which the server could have run and had no processor: the machine's fault."""
        with contextlib.suppress(OSError):
            _, waited_ns, _ = Path(f"/proc/{self.pid}/schedstat").read_text().split()
            return int(waited_ns) / 1e9
        return 0.0

    async def back(self) -> float:
        """Seconds until the server says that it is ready and a request completes.

        Without those in which its main thread waited for a processor that others had.
        """
        begun, waited_s = time.monotonic(), self.waited_s()
        while time.monotonic() - begun < START_LIMIT_S:
            assert self.alive(), f"the server has ended: {self.log.read_text()[-2_000:]}"
            if await self._served():
                waited_s = max(0.0, self.waited_s() - waited_s)
                return max(0.0, time.monotonic() - begun - waited_s)
            await asyncio.sleep(STEP_S)
        raise AssertionError(f"not served within {START_LIMIT_S} s")

    async def _served(self) -> bool:
        limit = aiohttp.ClientTimeout(total=BACK_WITHIN_S)
        body = {"model": "assist", "messages": [{"role": "user", "content": "?"}], "max_tokens": 1}
        try:
            async with self.session.get(f"{self.base_url}/readyz", timeout=limit) as answer:
                if answer.status != 200:
                    return False
            async with self.session.post(
                f"{self.base_url}/v1/chat/completions",
                json=body,
                headers={"authorization": f"Bearer {self.keys['globex']}"},
                timeout=limit,
            ) as answer:
                await answer.read()
                return answer.status == 200
        except (aiohttp.ClientError, OSError, TimeoutError):
            return False

    def close(self) -> None:
        """End every process that was started."""
        if self.spring is not None and self.spring.poll() is None:
            self.kill()
        for process in (self.spring, self.upstream):
            if process is not None:
                process.kill()
                process.communicate()

    # The backend's.

    def start_upstream(self) -> None:
        self.upstream = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.server", str(self.upstream_port)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        line = self.upstream.stdout.readline().strip()
        self.upstream_port = int(line.rpartition(":")[2].removesuffix("/v1"))

    def kill_upstream(self) -> None:
        assert self.upstream is not None
        self.upstream.kill()
        self.upstream.communicate()

    async def plan(self, **fields: object) -> None:
        """Have the backend answer so from now on."""
        url = f"http://127.0.0.1:{self.upstream_port}/plan"
        async with self.session.put(url, data=json.dumps(fields).encode()) as answer:
            assert answer.status == 200

    async def metrics(self) -> dict[str, float]:
        async with self.session.get(f"{self.base_url}/metrics") as answer:
            lines = (await answer.text()).splitlines()
        pairs = (line.rsplit(" ", 1) for line in lines if line.startswith(("weighbridge_", "proc")))
        return {name: float(value) for name, value in pairs}


@contextlib.asynccontextmanager
async def rigged(
    template: Path, folder: Path, *, disk: bool = True, keep_alive: bool = False,
    cache_kib: int | None = None,
) -> AsyncIterator[Rig]:  # fmt: skip
    """A running rig over a copy of a migrated ledger.

    `disk`: one that can be made to fail. `keep_alive`: clients use their connections again.
    """
    ledger = folder / "ledger.sqlite3"
    shutil.copyfile(template, ledger)
    listening = socket.create_server(("127.0.0.1", 0), backlog=2_048)
    connector = aiohttp.TCPConnector(limit=0, force_close=not keep_alive)
    async with aiohttp.ClientSession(connector=connector) as session:
        rig = Rig(
            ledger=ledger, keys={}, disk=Disk(ledger) if disk else None,
            listening=listening, session=session, cache_kib=cache_kib,
        )  # fmt: skip
        try:
            rig.start_upstream()
            rig.keys = _write(ledger, fleet(f"http://127.0.0.1:{rig.upstream_port}/v1"))
            rig.open_spring()
            rig.start()
            await rig.back()
            yield rig
        finally:
            listening.close()
            rig.close()


def _write(ledger: Path, rows: list[r.Record]) -> dict[str, str]:
    keys = {}
    for tenant_id in TENANTS:
        keys[tenant_id], record = mint_key(
            os.urandom(KEY_RANDOM_BYTES), tenant_id=tenant_id, created_at_us=0,
            created_by="tests", scopes=ALL_SCOPES,
        )  # fmt: skip
        rows.append(record)
    with Store.open(ledger) as store:
        store.append(rows).result()
    return keys
