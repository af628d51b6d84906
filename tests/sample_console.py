"""A small, varied ledger and a running console over it, for browser tests and screenshots.

The receipts are seeded and end now, so that relative times show them. Kept under its own folder;
nothing here touches `var/`.
"""

import json
import os
import random
import socket
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from gateway.policy.values import Candidate, Decision, Limit
from ledger import records as r
from ledger.rate_lookup import rate_of
from ledger.rates import Rate, RateTable, Usage, cost_of
from ledger.rollups.projection import Rollups
from ledger.store import Store
from tests import factories, forked
from tests.sample_control import control_records

ROOT = Path(__file__).resolve().parents[1]
SEED = 20_231_116
START_LIMIT_S = 120.0
FILLED_LIMIT_S = 600.0
RELEASE = "rel-assistant-v3"
LOGINS = "logins.json"

TABLE = RateTable(
    version="rates-2025-11",
    effective_from_us=0,
    currency="units",
    rates=tuple(
        Rate(
            key=key,
            input_micro_per_mtok=input_price,
            output_micro_per_mtok=output_price,
            cached_input_micro_per_mtok=input_price // 4,
        )
        for key, input_price, output_price in (
            ("fast-v2", 2_000_000, 8_000_000),
            ("fast-v3", 2_000_000, 8_000_000),
            ("long-context-v4", 4_000_000, 16_000_000),
            ("compact-v1", 250_000, 1_250_000),
        )
    ),
)
_IDENTITIES = {
    "fast-v2": ("mid_7c1f", "assistant"),
    "fast-v3": ("mid_b04e", "assistant"),
    "long-context-v4": ("mid_19ad", "assistant"),
    "compact-v1": ("mid_e552", "assistant-mini"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Console:
    """A running console: where it is, and one login of each role."""

    base_url: str
    passwords: dict[str, str]  # username (the role's name) -> password
    sessions: dict[str, str]  # likewise -> the cookie of a login, which a test then need not do
    folder: Path

    def receipt(self, condition: str) -> str:
        """The path of the newest receipt of which the SQL holds."""
        connection = sqlite3.connect(self.folder / "ledger.sqlite3")
        (found,) = connection.execute(
            f"SELECT request_id FROM receipt WHERE {condition} ORDER BY accepted_at_us DESC LIMIT 1"
        ).fetchone()
        connection.close()
        return f"/receipts/{found}"

    def run(self, provider: str = "openai") -> str:
        """The path of the newest run of a provider's reconciliation."""
        connection = sqlite3.connect(self.folder / "ledger.sqlite3")
        (found,) = connection.execute(
            "SELECT run_id FROM reconciliation WHERE provider = ? ORDER BY ran_at_us DESC LIMIT 1",
            (provider,),
        ).fetchone()
        connection.close()
        return f"/reconciliation/{found}"


def sample_records(number: int, at_us: int, dice: random.Random) -> list[r.Record]:
    """The records of the number-th request, accepted at at_us: most complete, some don't."""
    tenant = dice.choices(("acme", "borealis", "cobalt-labs"), (6, 3, 2))[0]
    mini = dice.random() < 0.3
    canary = not mini and dice.random() < 0.35
    route = "compact-v1" if mini else ("fast-v3" if canary else "fast-v2")
    identity, model = _IDENTITIES[route]
    tokens_in, tokens_out = dice.randint(80, 3_800), dice.randint(12, 420)
    shared: dict[str, Any] = {
        "request_id": f"req_{at_us // 1000:012x}{number:014x}",
        "tenant_id": tenant,
        "key_id": f"key_{tenant}",
        "priority": dice.choices(("interactive", "normal", "batch"), (6, 3, 1))[0],
        "logical_model": model,
        "policy_revision": "policy-7",
        "rate_table_version": TABLE.version,
        "input_tokens": tokens_in,
        "accepted_at_us": at_us,
        "counted_by": "trace",
        "release_id": None if mini else RELEASE,
        "arm": None if mini else ("canary" if canary else "baseline"),
        "deadline_us": 12_000_000,
        "max_output_tokens": 512,
    }
    draw = dice.random()
    if draw < 0.07:
        return _rejected(number, at_us, shared, dice)
    queue_us = int(dice.lognormvariate(9.5, 1.3)) + (
        300_000 if at_us // 60_000_000 % 17 == 0 else 0
    )
    prefill_us = 90_000 + tokens_in * (88 if canary else 120)
    decode_us = tokens_out * int(dice.gauss(9_500 if canary else 11_000, 600))
    if canary and dice.random() < 0.04:
        queue_us += 1_900_000
    first_us = queue_us + prefill_us + 60_000
    cost = cost_of(_rate(route), Usage(input_tokens=tokens_in, output_tokens=tokens_out))
    status = "completed" if draw < 0.965 else ("cancelled" if draw < 0.985 else "failed")
    receipt = factories.receipt(
        number,
        **shared
        | {
            "status": status,
            "identity_id": identity,
            "route_id": route,
            "rate_key": route,
            "route_reason": "CAPABILITY_MATCH KV_CAPACITY_AVAILABLE DEADLINE_FIT FIRST_BY_E2E",
            "degraded_from": "long-context-v4" if dice.random() < 0.03 else None,
            "output_tokens": tokens_out,
            "queue_us": queue_us,
            "prefill_us": prefill_us,
            "first_decode_us": 40_000,
            "first_byte_network_us": 20_000,
            "decode_us": decode_us,
            "first_token_us": first_us,
            "itl_mean_us": decode_us // tokens_out,
            "itl_p50_us": 10_400,
            "itl_p95_us": 14_900,
            "itl_max_us": 41_000,
            "e2e_us": first_us + decode_us,
            "ttft_objective_us": 500_000 if shared["priority"] == "interactive" else None,
            "tpot_objective_us": 15_000 if shared["priority"] == "interactive" else None,
            "ended_at_us": at_us + first_us + decode_us,
            "cost_input_pico": cost.input_pico,
            "cost_output_pico": cost.output_pico,
            "cost_total_pico": cost.total_pico,
            "cost_estimated_pico": tokens_in * 2_000_000 + 512 * 8_000_000,
            "terminal_error_code": "UPSTREAM_RESET" if status == "failed" else None,
        },
    )
    return [_decision(number, at_us, receipt), *_paper(number, at_us, receipt), receipt]


def _rate(route: str) -> Rate:
    found = rate_of(TABLE, route)
    if found is None:
        raise KeyError(route)
    return found


def _rejected(
    number: int, at_us: int, shared: dict[str, Any], dice: random.Random
) -> list[r.Record]:
    code = dice.choices(
        ("CAPACITY_SHED", "DEADLINE_INSUFFICIENT", "TENANT_CONCURRENCY_LIMIT"), (5, 3, 2)
    )[0]
    receipt = factories.rejected_receipt(
        number, **shared | {"terminal_error_code": code, "ended_at_us": at_us + 400}
    )
    looked_at = code != "TENANT_CONCURRENCY_LIMIT"
    fell_at = "deadline" if code == "DEADLINE_INSUFFICIENT" else "queue_length"
    decision = Decision(
        request_id=receipt.request_id,
        status="rejected",
        candidates=tuple(
            _candidate(route, receipt.input_tokens, fell_at) for route in ("fast-v2", "fast-v3")
        )
        if looked_at
        else (),
        reason_code=code,
        limits=(
            Limit(name="tenant.in_flight", limit=4, observed=4)
            if not looked_at
            else Limit(name="deadline_us", limit=12_000_000, observed=13_440_000),
        ),
        http_status={"CAPACITY_SHED": 503, "DEADLINE_INSUFFICIENT": 422}.get(code, 429),
        retry_after_ms=None if code == "DEADLINE_INSUFFICIENT" else 1_000,
        input_tokens=receipt.input_tokens,
    )
    row = factories.route_decision(
        number,
        request_id=receipt.request_id,
        decided_at_us=at_us,
        status="rejected",
        reason_code=code,
        route_id=None,
        tenant_id=receipt.tenant_id,
        decision_json=msgspec.json.encode(decision).decode(),
    )
    return [row, receipt]


def _candidate(route: str, tokens: int, fell_at: str | None = None) -> Candidate:
    queue_us, prefill_us = 120_000, 100_000 + tokens * 150
    return Candidate(
        route_id=route,
        role="primary",
        fell_at=fell_at,
        input_tokens=tokens,
        queue_us=queue_us,
        prefill_us=prefill_us,
        ttft_us=queue_us + prefill_us + 60_000,
        e2e_us=queue_us + prefill_us + 60_000 + 511 * 14_000,
        cost_pico=tokens * _rate(route).input_micro_per_mtok
        + 512 * _rate(route).output_micro_per_mtok,
    )


def _decision(number: int, at_us: int, receipt: r.Receipt) -> r.RouteDecision:
    tokens, route = receipt.input_tokens, receipt.route_id or ""
    chosen = _candidate(route, tokens)
    others = [_candidate("long-context-v4", tokens, "cost")]
    if route != "fast-v2":
        others.insert(0, _candidate("fast-v2", tokens, "health"))
    decision = Decision(
        request_id=receipt.request_id,
        status="accepted",
        candidates=(chosen, *others),
        reasons=tuple(receipt.route_reason.split()),
        route_id=route,
        identity_id=receipt.identity_id,
        input_tokens=tokens,
        ttft_us=chosen.ttft_us,
        e2e_us=chosen.e2e_us,
        cost_pico=chosen.cost_pico,
        release_id=receipt.release_id,
        arm=receipt.arm,
        degraded_from=receipt.degraded_from,
    )
    return factories.route_decision(
        number,
        request_id=receipt.request_id,
        decided_at_us=at_us,
        route_id=route,
        tenant_id=receipt.tenant_id,
        decision_json=msgspec.json.encode(decision).decode(),
    )


def _paper(number: int, at_us: int, receipt: r.Receipt) -> list[r.Record]:
    named = {"request_id": receipt.request_id}
    return [
        factories.trace_event(
            number,
            **named | {"event": "inference.route.selected", "observed_at_us": at_us},
            route_id=receipt.route_id,
            reasons=receipt.route_reason,
        ),
        factories.reservation(
            number,
            **named,
            tenant_id=receipt.tenant_id,
            route_id=receipt.route_id,
            reserved_at_us=at_us,
            bound_at_us=at_us + 60_000_000,
            cost_pico=max(receipt.cost_estimated_pico or 0, receipt.cost_total_pico),
        ),
        factories.attempt(number, **named, started_at_us=at_us, route_id=receipt.route_id),
        factories.attempt_event(
            number,
            **named,
            at_us=receipt.ended_at_us,
            outcome=receipt.status,
            input_tokens=receipt.input_tokens,
            output_tokens=receipt.output_tokens,
            cost_pico=receipt.cost_total_pico,
        ),
        factories.settlement(
            number, **named, settled_at_us=receipt.ended_at_us, cost_pico=receipt.cost_total_pico
        ),
    ]


def base_records() -> list[r.Record]:
    """Identities, the rate table, and one resolved unknown."""
    identities = [
        factories.model_identity(
            identity_id=identity,
            logical_model=model,
            tokenizer_revision="o200k_base/chat-1",
            weights_revision=f"{route}-weights",
            runtime_name="simulated engine",
            quantization="fp8" if route == "fast-v3" else "bf16",
        )
        for route, (identity, model) in _IDENTITIES.items()
    ]
    return [*identities, factories.rate_table(TABLE)]


def fill(path: Path, *, count: int, end_us: int, span_us: int, seed: int = SEED) -> None:
    """Write `count` requests, spread over the span before end_us, through the store."""
    dice = random.Random(seed)
    with Store.open(path, projections=(Rollups(),)) as store:
        store.append(base_records()).result()
        store.append(control_records(end_us, RELEASE)).result()
        for number in range(1, count + 1):
            at_us = end_us - span_us + span_us * number // count
            last = store.append(sample_records(number, at_us, dice))
        last.result()


def environment(folder: Path) -> dict[str, str]:
    return {
        **os.environ,
        "WEIGHBRIDGE_VAR": str(folder),
        "WEIGHBRIDGE_DB": str(folder / "ledger.sqlite3"),
        "WEIGHBRIDGE_CONSOLE_DB": str(folder / "console.sqlite3"),
        "DJANGO_SETTINGS_MODULE": "tests.console_settings",
    }


def manage(folder: Path, *arguments: str) -> str:
    """Run a command of manage.py on the folder's files and return what it printed."""
    return python(folder, "manage.py", *arguments, "--skip-checks")


def python(folder: Path, *arguments: str) -> str:
    """Run Python on the folder's files and return what it printed."""
    env = environment(folder)
    return forked.run(arguments, env=env, timeout=FILLED_LIMIT_S, check=True).stdout


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def running_console(folder: Path, *, count: int = 1_200) -> Iterator[Console]:
    """Migrate, fill and serve the console of `folder`; stops it at the end."""
    fill_console(folder, count=count)
    with serving(folder) as console:
        yield console


def fill_console(folder: Path, *, count: int) -> None:
    """Migrate and fill the console of `folder`, which then can be copied; its logins are beside."""
    folder.mkdir(parents=True, exist_ok=True)
    logins = python(folder, "-m", "tests.sample_books", str(count))
    (folder / LOGINS).write_text(logins)


@contextmanager
def serving(folder: Path) -> Iterator[Console]:
    """The running console of a folder that was filled."""
    logins = json.loads((folder / LOGINS).read_text())
    with served(folder) as base_url:
        yield Console(base_url=base_url, folder=folder, **logins)


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The console over existing files; yields its address."""
    port = _free_port()
    with (folder / "server.log").open("w") as log:
        command = ("manage.py", "runserver", "--noreload", f"127.0.0.1:{port}")
        server = forked.start(command, env=environment(folder), stderr=log)
    try:
        _await_port(port, server)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait(timeout=10)


def _await_port(port: int, server: forked.Forked) -> None:
    deadline = time.monotonic() + START_LIMIT_S
    while time.monotonic() < deadline:
        if server.poll() is not None:
            raise RuntimeError("the console stopped while starting; see server.log beside it")
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise RuntimeError(f"the console did not listen within {START_LIMIT_S:g} s")
