"""A real server in a process of its own: uvicorn over a ledger file with the demonstration's fleet.

The listening socket is opened here and handed over, so that there is no port to guess and no time
to wait: a first request waits in the socket until the server takes it.
"""

import contextlib
import http.client
import json
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from gateway.api.auth import ALL_SCOPES, KEY_RANDOM_BYTES, mint_key
from gateway.demo.fleet import TENANTS, fleet_records
from ledger.records import Record
from ledger.store import Store
from tests import forked

ROOT = forked.ROOT
START_SECONDS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A running server: where it is, its tenants' keys, its process, its ledger and its log."""

    base_url: str
    keys: dict[str, str]
    process: forked.Forked
    ledger: Path
    log: Path

    def call(self, path, *, key=None, body=None, headers=None):
        """(status, headers, body) of one exchange; a body makes it a POST."""
        sent = {"authorization": f"Bearer {key}"} if key else {}
        connection = http.client.HTTPConnection(
            self.base_url.removeprefix("http://"), timeout=START_SECONDS
        )
        with contextlib.closing(connection):
            connection.request(
                "GET" if body is None else "POST", path, body=body, headers=sent | (headers or {})
            )
            response = connection.getresponse()
            return response.status, response.headers, response.read()

    def chat(self, text, *, key, headers=None, **fields):
        body = {"model": "assist", "messages": [{"role": "user", "content": text}], **fields}
        return self.call(
            "/v1/chat/completions", key=key, body=json.dumps(body).encode(), headers=headers
        )

    def stop(self) -> None:
        """Ask it to stop, as an operator would, and wait until it has."""
        self.process.terminate()
        self.process.wait(timeout=START_SECONDS)


def load_fleet(ledger: Path, *, tenants=tuple(TENANTS), more: tuple[Record, ...] = ()):
    """Write the demonstration's fleet into an empty ledger; returns each tenant's key."""
    now_us = time.time_ns() // 1_000
    rows, keys = fleet_records(now_us - 3_600_000_000), {}
    for tenant in tenants:
        keys[tenant], record = mint_key(
            os.urandom(KEY_RANDOM_BYTES),
            tenant_id=tenant,
            created_at_us=now_us,
            created_by="tests",
            scopes=ALL_SCOPES,
        )
        rows.append(record)
    with Store.open(ledger) as store:
        store.append((*rows, *more)).result()
    return keys


def environment_of(ledger: Path, time_scale: float = 20.0) -> dict[str, str]:
    return {
        **os.environ,
        "WEIGHBRIDGE_VAR": str(ledger.parent),
        "WEIGHBRIDGE_DB": str(ledger),
        "WEIGHBRIDGE_CONSOLE_DB": str(ledger.with_name("console.sqlite3")),
        "WEIGHBRIDGE_TIME_SCALE": str(time_scale),
        "DJANGO_SETTINGS_MODULE": "gateway.settings",
    }


@contextlib.contextmanager
def serving(ledger: Path, keys: dict[str, str], time_scale: float = 20.0) -> Iterator[Server]:
    """Serve a ledger for as long as the context lasts; simulated time runs `time_scale` as fast.

    Yields once the server takes requests or has ended.
    """
    listening = socket.create_server(("127.0.0.1", 0))
    log = ledger.with_suffix(".log")
    with log.open("ab") as output:
        process = forked.start(
            ("-m", "tests.serve_socket", "3"),
            env=environment_of(ledger, time_scale),
            stdout=output,
            stderr=output,
            more=(listening.fileno(),),
        )
    port = listening.getsockname()[1]
    listening.close()
    server = Server(
        base_url=f"http://127.0.0.1:{port}", keys=keys, process=process, ledger=ledger, log=log
    )
    try:
        # From here on the ledger is its own; one that can't start has said why in its log.
        with contextlib.suppress(OSError, http.client.HTTPException):
            server.call("/healthz")
        yield server
    finally:
        with contextlib.suppress(subprocess.TimeoutExpired):
            server.stop()
        process.kill()
        process.wait()
