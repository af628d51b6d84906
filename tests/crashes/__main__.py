"""`python -m tests.crashes [--steps 10000] [--seed N]`: the long form of the crash simulation."""

import argparse
import os
import secrets
import tempfile
import time
from pathlib import Path

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "gateway.settings")
import django

django.setup()

from tests.crashes.world import run  # noqa: E402 - Django has to be set up first
from tests.ledger_fixtures import migrate_ledger, without_log  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--seed", type=int, help="that of an earlier run does the same again")
    parser.add_argument("--directory", type=Path, help="where the ledgers are; memory is fastest")
    options = parser.parse_args()
    seed = secrets.randbits(32) if options.seed is None else options.seed
    print(f"seed {seed}", flush=True)
    with tempfile.TemporaryDirectory(dir=options.directory) as directory:
        template = Path(directory) / "template.sqlite3"
        migrate_ledger(template)
        without_log(template)
        started = time.perf_counter()
        world = run(template, Path(directory) / "lives", seed=seed, steps=options.steps)
        seconds = time.perf_counter() - started
        world.close()
    happened = ", ".join(f"{name} {count:,}" for name, count in sorted(world.happened.items()))
    print(f"{options.steps:,} steps in {seconds:.0f} s, {world.lives:,} lives, {happened}")
    print(f"{world.rows:,} rows; every rule held after every step")


if __name__ == "__main__":
    main()
