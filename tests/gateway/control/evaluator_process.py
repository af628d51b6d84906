"""A process that evaluates a ledger at one time after another, to be killed at any point.

`python -m tests.gateway.control.evaluator_process LEDGER FROM_US STEPS`
"""

import sys
from pathlib import Path

import django

django.setup()

from gateway.operations import anywhere  # noqa: E402
from gateway.operations.base import Actor, Done  # noqa: E402
from gateway.operations.control import EvaluateSlos  # noqa: E402
from tests.gateway.clock import VirtualClock  # noqa: E402 - Django first
from tests.gateway.control.ledger_of import STEP_US, closed  # noqa: E402

EVALUATOR = Actor(name="evaluator", role="operator", via="server")


def main() -> None:
    ledger, from_us, steps = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    print("ready", flush=True)
    for step in range(steps):
        clock = VirtualClock(closed(from_us + step * STEP_US))
        while isinstance(anywhere.perform(ledger, EvaluateSlos(), EVALUATOR, clock=clock), Done):
            pass
    print("done", flush=True)


if __name__ == "__main__":
    main()
