"""`manage.py serve` as an operator runs it, in a process of its own."""

import contextlib
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.server import ROOT, START_SECONDS, Server, environment_of
from tests.server_fixtures import Fleet
from tests.system.watching import until

SERVE = [sys.executable, "manage.py", "serve", "--port", "0"]
_ADDRESS = re.compile(r"Uvicorn running on (http://127\.0\.0\.1:[0-9]+)")


def refused_serve(ledger: Path) -> tuple[int, str]:
    """(exit status, all that it said) of a server that can't start."""
    done = subprocess.run(
        SERVE,
        cwd=ROOT,
        env=environment_of(ledger),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=START_SECONDS,
        check=False,
    )
    return done.returncode, done.stdout


@contextlib.contextmanager
def operated(fleet: Fleet, time_scale: float) -> Iterator[Server]:
    """Serve with the operator's command, on a port that it chooses and tells."""
    log = fleet.ledger.with_suffix(".log")
    with log.open("ab") as output:
        process = subprocess.Popen(
            SERVE,
            cwd=ROOT,
            env=environment_of(fleet.ledger, time_scale),
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        until(
            lambda: process.poll() is not None or bool(_ADDRESS.search(log.read_text())),
            "the server tells its address",
        )
        address = _ADDRESS.search(log.read_text())
        assert address is not None, log.read_text()
        yield Server(
            base_url=address.group(1),
            keys=fleet.keys,
            process=process,
            ledger=fleet.ledger,
            log=log,
        )
    finally:
        process.kill()
        process.wait()
