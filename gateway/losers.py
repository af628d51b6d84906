"""What became of the attempts that a hedged request did without, held to their gate (HDG-1)."""

import logging

from gateway import metrics
from gateway.policy.hedging import Loser, gate
from gateway.run import Run

log = logging.getLogger(__name__)


def judge_losers(run: Run) -> None:
    """Hold a hedged request's losers to the gate: cancelled, acknowledged, nothing held."""
    if not any(leg.kind == "hedge" for leg in run.legs):
        return
    losers = tuple(
        Loser(
            attempt_id=leg.attempt_id,
            cancel_sent=leg.cancel_reason is not None,
            acknowledged=leg.state != "unknown",
            slots_held=int(leg.state == "unknown"),
            cost_pico=leg.open_pico,
        )
        for leg in run.legs
        if leg is not run.winner
    )
    problems = gate(losers)
    metrics.hedge_ended(passed=not problems)
    for line in problems:
        log.warning("a hedge's loser fails its gate: %s", line)
