"""`manage.py serve` as an operator runs it, in a process of its own."""

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path

from tests import forked
from tests.server import Server, environment_of
from tests.server_fixtures import Fleet
from tests.system.watching import until

SERVE = ("manage.py", "serve", "--port", "0")
_ADDRESS = re.compile(r"Uvicorn running on (http://127\.0\.0\.1:[0-9]+)")


def refused_serve(ledger: Path) -> tuple[int, str]:
    """(exit status, all that it said) of a server that can't start."""
    done = forked.run(SERVE, env=environment_of(ledger))
    return done.returncode, done.stdout + done.stderr


@contextlib.contextmanager
def operated(fleet: Fleet, time_scale: float) -> Iterator[Server]:
    """Serve with the operator's command, on a port that it chooses and tells."""
    log = fleet.ledger.with_suffix(".log")
    with log.open("ab") as output:
        environment = environment_of(fleet.ledger, time_scale)
        process = forked.start(SERVE, env=environment, stdout=output, stderr=output)
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
