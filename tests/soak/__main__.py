"""`python -m tests.soak [--minutes 10] [--seed S]`: an hour in virtual time, then minutes for real.

Prints its seed and what it saw; exit 1, with what is wrong, where memory grows by a MB or more in
ten minutes, descriptors or the write-ahead log grow, or anything of the ledger doesn't hold.
"""

import argparse
import asyncio
import os
import resource
import secrets
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "gateway.settings")
import django

django.setup()

from tests.ledger_fixtures import migrate_ledger, without_log  # noqa: E402 - Django comes first
from tests.soak.judging import problems, said  # noqa: E402
from tests.soak.real import for_seconds, soak  # noqa: E402
from tests.soak.virtual import hour  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.soak",
        description="An hour in virtual time, then minutes for real. "
        + __doc__.partition("\n\n")[2],
    )
    parser.add_argument(
        "--minutes", type=float, default=10.0, metavar="M",
        help="how long it is watched for real (%(default)g)",
    )  # fmt: skip
    parser.add_argument(
        "--warm-up", type=float, default=240.0, metavar="SECONDS",
        help="the same load before it is watched (%(default)g)",
    )  # fmt: skip
    parser.add_argument("--no-virtual", action="store_true", help="leave the virtual hour out")
    parser.add_argument(
        "--seed", type=int, metavar="S", help="an earlier run's, for the same load (a fresh one)"
    )
    parser.add_argument(
        "--directory", type=Path, help="where the ledgers are; memory is fastest (the system's own)"
    )
    options = parser.parse_args()
    seed = secrets.randbits(32) if options.seed is None else options.seed
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    print(f"seed {seed}", flush=True)
    with tempfile.TemporaryDirectory(dir=options.directory) as directory:
        folder = Path(directory)
        template = folder / "template.sqlite3"
        migrate_ledger(template)
        without_log(template)
        if not options.no_virtual:
            tell_hour(template, folder / "virtual.sqlite3", seed)
        soaked = asyncio.run(
            soak(
                template, folder, seed=seed, capacity=for_seconds(20.0),
                warm_up=for_seconds(options.warm_up), watched=for_seconds(60 * options.minutes),
                tell=lambda line: print(line, flush=True),
            )
        )  # fmt: skip
    print("\n".join(said(soaked)))
    wrong = problems(soaked)
    print("\n".join(f"FOUND {line}" for line in wrong) or "nothing found")
    return 1 if wrong else 0


def tell_hour(template: Path, ledger: Path, seed: int) -> None:
    ledger.write_bytes(template.read_bytes())
    begun = time.monotonic()
    found = hour(ledger, seed)
    seconds = time.monotonic() - begun
    ledger.unlink()
    print(
        f"an hour of {found.arrivals:,} arrivals in {seconds:.0f} s: {found.statuses}; "
        f"{found.rows:,} rows, chain valid, nothing held",
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main())
