"""The evaluator's task in the server: a pass whenever a window may have closed."""

import asyncio
import logging

from gateway.control import alerts
from gateway.operations.base import Actor, Done, Refused
from gateway.operations.control import EvaluateSlos
from gateway.operations.executor import Executor

log = logging.getLogger(__name__)

PASS_SECONDS = 20.0
"""Between two passes with nothing due; where more is due the next one follows at once."""

EVALUATOR = Actor(name="evaluator", role="operator", via="server")
QUIET = ("NOTHING_DUE", "LEDGER_UNAVAILABLE")


async def evaluate_for_ever(operations: Executor) -> None:
    """Evaluate what is due, for as long as the server runs. Ends by being cancelled, or a fault."""
    while True:
        result = await operations.perform(EvaluateSlos(), EVALUATOR)
        alerts.passed(result)
        if isinstance(result, Done):
            log.info("%s", result.summary)
            continue
        if isinstance(result, Refused) and result.code not in QUIET:
            log.warning("the evaluator was refused: %s %s", result.code, result.message)
        await asyncio.sleep(PASS_SECONDS)
