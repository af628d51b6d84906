"""`python -m tests.faults [--injections 500] [--seed S]`: every kind of fault, again and again.

Prints its seed, what became of each injection, and the counts by kind; exit 1 where anything was
found. `--kinds a,b` does only those.
"""

import argparse
import asyncio
import math
import os
import resource
import secrets
import sys
import tempfile
import time
from pathlib import Path
from random import Random

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "gateway.settings")
import django

django.setup()

from tests.faults.disk import NoCompiler, library  # noqa: E402 - Django has to be set up first
from tests.faults.injections import KINDS, NEED_DISK  # noqa: E402
from tests.faults.injections.clients import idle_limit  # noqa: E402
from tests.faults.storm import Report, order, storm  # noqa: E402
from tests.ledger_fixtures import migrate_ledger, without_log  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.faults",
        description="Every kind of fault, again and again. " + __doc__.partition("\n\n")[2],
        epilog=f"kinds: {', '.join(KINDS)}; with a C compiler: {', '.join(sorted(NEED_DISK))}",
    )
    parser.add_argument(
        "--injections", type=int, default=500, metavar="N", help="how many in all (%(default)s)"
    )
    parser.add_argument(
        "--seed", type=int, metavar="S", help="an earlier run's, for the same order (a fresh one)"
    )
    parser.add_argument("--kinds", metavar="A,B", help="only these, with commas (every kind)")
    parser.add_argument(
        "--minutes", type=float, default=math.inf, metavar="M", help="stop after so many (never)"
    )
    parser.add_argument(
        "--directory", type=Path, help="where the ledger is; memory is fastest (the system's own)"
    )
    options = parser.parse_args()
    kinds = options.kinds.split(",") if options.kinds else list(KINDS)
    for name in kinds:
        if name not in KINDS:
            parser.error(f"--kinds: {name} is none of {', '.join(KINDS)}")
    seed = secrets.randbits(32) if options.seed is None else options.seed
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    print(f"seed {seed}; {idle_limit():,} idle connections (descriptor limit {hard:,})", flush=True)
    disk = True
    try:
        library()
    except NoCompiler as problem:
        disk = False
        kinds = [name for name in kinds if name not in NEED_DISK]
        print(f"no failing disk, no jumping clock: {problem}", flush=True)
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(dir=options.directory) as directory:
        folder = Path(directory)
        migrate_ledger(folder / "template.sqlite3")
        without_log(folder / "template.sqlite3")
        report = asyncio.run(
            storm(
                folder / "template.sqlite3", folder, order(kinds, options.injections, Random(seed)),
                seed=seed, disk=disk, seconds=60 * options.minutes,
                tell=lambda line: print(line, flush=True), strict=False,
            )
        )  # fmt: skip
    say(report, time.monotonic() - begun)
    return 1 if report.findings else 0


def say(report: Report, seconds: float) -> None:
    total = sum(len(times) for times in report.back_s.values())
    print(f"\nseed {report.seed}: {total} injections in {seconds:.0f} s, {report.starts} starts")
    for name, times in sorted(report.back_s.items()):
        ordered = sorted(times)
        print(
            f"{name:32} {len(times):4}  back after {ordered[len(ordered) // 2]:.2f} s (median), "
            f"{ordered[-1]:.2f} s (longest)"
        )
    statuses = ", ".join(
        f"{status}: {count:,}" for status, count in sorted(report.statuses.items())
    )
    print(
        f"{report.requests:,} requests, {report.receipts_told:,} receipts told, "
        f"{report.broken_off:,} broken off, the longest exchange {report.longest_s:.1f} s; "
        f"{statuses}"
    )
    for what, count in sorted(report.notes.items()):
        print(f"{what}: {count:,}")
    print(f"{report.rows:,} rows in the chain")
    for finding in report.findings:
        print(f"FOUND {finding}")
    print("nothing found" if not report.findings else f"{len(report.findings)} findings")


if __name__ == "__main__":
    sys.exit(main())
