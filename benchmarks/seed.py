"""A ledger of many receipts, made fast: `python -m benchmarks.seed --receipts N --to DIR`.

Writes DIR/ledger.sqlite3 with 30 days of varied receipts over the writer that the server has, so
that chain, rollups and costs are whole and `verify_ledger` finds no fault. While it is filled the
file keeps its keys alone: triggers and the other indexes are made at the end, from sorted rows,
which takes a third of the time that keeping them would. Nobody may read it meanwhile; a run that
was interrupted leaves a `.part` file, which the next one removes.
"""

import argparse
import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import numpy as np

from ledger.reading import fetch
from ledger.records import Receipt
from ledger.rollups.projection import Rollups
from ledger.triggers import install_statements
from ledger.writer import Writer
from tests import factories

DAY_US = 86_400_000_000
DAYS = 30
COMMIT_ROWS = 2_048
CHECKPOINT_COMMITS = 50
END_US = 1_764_000_000_000_000  # 2025-11-24T16:00:00Z
VERSION = "rates-seed"
INPUT_MICRO, OUTPUT_MICRO = 2_000_000, 8_000_000
SUFFIXES = ("", "-wal", "-shm", ".lock")

Drawn = dict[str, list[int]]


class Filled(msgspec.Struct, frozen=True, kw_only=True):
    """What a fill took: by the clock, of CPU, in the writer's commits alone, and in bytes."""

    receipts: int
    seconds: float
    cpu_s: float
    commit_cpu_s: float
    bytes_each: float


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--receipts", type=int, default=10_000_000)
    parser.add_argument("--to", type=Path, required=True, metavar="DIR")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--until-now", action="store_true", help="the newest receipt is of now")
    options = parser.parse_args()
    path = options.to / "ledger.sqlite3"
    if path.exists():
        parser.error(f"{path} is there already: remove it, or name another folder")
    end_us = time.time_ns() // 1_000 if options.until_now else END_US
    print(told(make(path, options.receipts, seed=options.seed, end_us=end_us)))


def told(filled: Filled) -> str:
    each = filled.cpu_s / filled.receipts * 1e6
    return (
        f"{filled.receipts:,} receipts in {filled.seconds:.0f} s: "
        f"{filled.receipts / filled.seconds:,.0f}/s, {each:.1f} µs of CPU "
        f"({filled.commit_cpu_s / filled.receipts * 1e6:.1f} of them in commits) "
        f"and {filled.bytes_each:.0f} B each"
    )


def make(path: Path, count: int, *, seed: int = 1, end_us: int = END_US) -> Filled:
    """A new, migrated ledger at `path` with `count` receipts; there whole, or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    for suffix in SUFFIXES:
        part.with_name(part.name + suffix).unlink(missing_ok=True)
    migrate(part)
    filled = fill(part, count, seed=seed, end_us=end_us)
    part.replace(path)
    part.with_name(part.name + ".lock").unlink(missing_ok=True)
    return filled


def migrate(path: Path) -> None:
    environment = {**os.environ, "WEIGHBRIDGE_VAR": str(path.parent), "WEIGHBRIDGE_DB": str(path)}
    command = [sys.executable, "manage.py", "migrate", "--database", "ledger", "--skip-checks"]
    root = Path(__file__).resolve().parents[1]
    subprocess.run(command, cwd=root, env=environment, check=True, capture_output=True)


def fill(path: Path, count: int, *, seed: int = 1, end_us: int = END_US) -> Filled:
    """Adds `count` receipts to a migrated ledger that nobody has open, and its statistics."""
    started, cpu = time.perf_counter(), time.process_time()
    commit_cpu_s, batch = 0.0, list[Receipt]()
    writer = Writer(path, (Rollups(),))
    try:
        rates = msgspec.structs.replace(factories.RATE_TABLE, version=VERSION)
        writer.commit([[factories.rate_table(rates)]])
        with _keys_alone(writer._connected()):
            for number, one in enumerate(receipts(count, seed=seed, end_us=end_us), start=1):
                batch.append(one)
                if len(batch) == COMMIT_ROWS or number == count:
                    before = time.process_time()
                    writer.commit([batch])
                    if number // COMMIT_ROWS % CHECKPOINT_COMMITS == 0:
                        writer.checkpoint()
                    commit_cpu_s += time.process_time() - before
                    batch = []
                    if sys.stderr.isatty():
                        print(f"\r{number:,} of {count:,}", end="", file=sys.stderr)
    finally:
        writer.close()
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA analysis_limit=1000")
    connection.execute("ANALYZE")
    connection.close()
    return Filled(
        receipts=count,
        seconds=time.perf_counter() - started,
        cpu_s=time.process_time() - cpu,
        commit_cpu_s=commit_cpu_s,
        bytes_each=path.stat().st_size / count,
    )


@contextmanager
def _keys_alone(connection: sqlite3.Connection) -> Iterator[None]:
    """No trigger, no index but the keys, no waiting for the disk; all of them again at the end."""
    indexes = fetch(
        connection,
        "SELECT name, sql FROM sqlite_master WHERE type = 'index' AND tbl_name = 'receipt' "
        "AND sql IS NOT NULL",
    )
    triggers = fetch(connection, "SELECT name FROM sqlite_master WHERE type = 'trigger'")
    connection.execute("PRAGMA synchronous=OFF")
    for (name,) in triggers:
        connection.execute(f'DROP TRIGGER "{name}"')
    for name, _ in indexes:
        connection.execute(f'DROP INDEX "{name}"')
    yield
    for _, sql in indexes:
        connection.execute(sql)
    for statement in install_statements(()):
        connection.execute(statement)
    connection.execute("PRAGMA synchronous=FULL")


def receipts(count: int, *, seed: int = 1, end_us: int = END_US) -> Iterator[Receipt]:
    """Receipts over 30 days up to `end_us`, in order: 3 tenants, 2 models of 2 identities each.

    Each costs what its tokens cost at 2 and 8 per million; the same seed gives the same receipts.
    """
    random = np.random.default_rng(seed)
    start_us = end_us - DAYS * DAY_US
    for first in range(0, count, COMMIT_ROWS):
        length = min(COMMIT_ROWS, count - first)
        drawn = _drawn(random, length)
        columns = list(drawn.values())
        for place, row in enumerate(zip(*columns, strict=True)):
            number = first + place
            yield _receipt(number, start_us + number * DAYS * DAY_US // count, row)


def _drawn(random: np.random.Generator, count: int) -> Drawn:
    """What chance decides of each receipt, column by column: choices as places, times in µs."""

    def choice(*shares: int) -> list[int]:
        chosen: list[int] = random.choice(len(shares), count, p=np.array(shares) / 100).tolist()
        return chosen

    def lognormal(mean: float, sigma: float) -> list[int]:
        drawn: list[int] = random.lognormal(mean, sigma, count).astype(np.int64).tolist()
        return drawn

    return {
        "status": choice(92, 5, 2, 1),
        "tenant": choice(60, 30, 10),
        "priority": choice(60, 25, 15),
        "path": choice(80, 20),
        "model": choice(40, 60),
        "arm": choice(70, 30),
        "input": lognormal(6.8, 0.8),
        "output": lognormal(5.0, 0.7),
        "ttft": lognormal(12.6, 0.7),
        "queue": lognormal(10.5, 1.2),
        "itl": lognormal(9.6, 0.25),
        "e2e": lognormal(15.2, 0.6),
    }


_BASE = factories.receipt()
_REFUSED = factories.rejected_receipt(terminal_error_code="CAPACITY_SHED")
_STATUSES = ("completed", "rejected", "cancelled", "failed")
_TENANTS = ("acme", "globex", "initech")
_PRIORITIES = ("interactive", "normal", "batch")
_PATHS = ("interactive", "background")
_MODELS = ("assistant-large", "assistant-small")
_ARMS = ("stable", "canary")
_REPLACE = msgspec.structs.replace


def _receipt(number: int, accepted_at_us: int, row: tuple[int, ...]) -> Receipt:
    status, tenant, priority, path, model, arm, tokens_in, tokens_out, ttft, queue, itl, e2e = row
    if status == 1:
        return _REPLACE(
            _REFUSED, request_id=f"req_{number:026}", rate_table_version=VERSION,
            tenant_id=_TENANTS[tenant], priority=_PRIORITIES[priority], user_path=_PATHS[path],
            logical_model=_MODELS[model], input_tokens=tokens_in,
            accepted_at_us=accepted_at_us, ended_at_us=accepted_at_us + 400,
        )  # fmt: skip
    in_pico, out_pico = tokens_in * INPUT_MICRO, tokens_out * OUTPUT_MICRO
    if arm:
        ttft = ttft * 7 // 5
    return _REPLACE(
        _BASE, request_id=f"req_{number:026}", rate_table_version=VERSION,
        tenant_id=_TENANTS[tenant], priority=_PRIORITIES[priority], user_path=_PATHS[path],
        logical_model=_MODELS[model], status=_STATUSES[status],
        identity_id=f"mid_{_MODELS[model]}_{_ARMS[arm]}", route_id=f"{_MODELS[model]}-{_ARMS[arm]}",
        release_id="release-1", arm=_ARMS[arm], input_tokens=tokens_in, output_tokens=tokens_out,
        queue_us=queue, first_token_us=ttft, itl_mean_us=itl, e2e_us=e2e,
        cost_input_pico=in_pico, cost_output_pico=out_pico, cost_total_pico=in_pico + out_pico,
        terminal_error_code=None if status != 3 else "ENGINE_FAULT",
        accepted_at_us=accepted_at_us, ended_at_us=accepted_at_us + e2e,
    )  # fmt: skip


if __name__ == "__main__":
    main()
