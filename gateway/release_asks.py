"""The comparison that a release ask stands for: one answer for page and API (REL-2, CST-9)."""

import sqlite3
from collections.abc import Sequence

from gateway.reporting import AskProblem, ReleasesAsk
from ledger.queries.releases import Comparison, Offered, Side, compare_busiest, sides


def agreed_model(ask: ReleasesAsk, offered: Sequence[Offered]) -> str | AskProblem | None:
    """The logical model that everything named had traffic of, the busiest where there are several.

    None where nothing is named. A problem, naming the parameter, for what had no traffic.
    """
    models = {one.logical_model for one in offered}
    if ask.logical_model is not None and ask.logical_model not in models:
        return AskProblem(parameter="model", detail="it had no traffic in this range")
    shared: dict[str, int] = dict.fromkeys(models, 0)
    named = [("baseline", ask.baseline), ("candidate", ask.candidate)]
    given = [(name, side) for name, side in named if side is not None]
    if not given:
        return ask.logical_model
    for name, side in given:
        own = {one.logical_model: one.receipts for one in offered if one.side == side}
        if not own:
            return AskProblem(parameter=name, detail="it had no traffic in this range")
        shared = {model: count + own[model] for model, count in shared.items() if model in own}
    labels = " and ".join(side.label[:80] for _, side in given)
    if len(given) > 1 and ask.baseline == ask.candidate:
        return AskProblem(parameter="candidate", detail=f"{labels} are the same side")
    if not shared:
        detail = f"{labels} have no traffic of one logical model in this range"
        return AskProblem(parameter="candidate", detail=detail)
    if ask.logical_model is not None and ask.logical_model not in shared:
        return AskProblem(parameter="model", detail=f"{labels}: no traffic of it in this range")
    return ask.logical_model or min(shared, key=lambda model: (-shared[model], model))


def comparison_of(
    connection: sqlite3.Connection, ask: ReleasesAsk
) -> tuple[Comparison | None, tuple[Offered, ...]] | AskProblem:
    """The comparison of what was named, else of the busiest; and every side with traffic.

    None where the range has no second side to compare with.
    """
    offered = sides(connection, ask.when.period)
    model = agreed_model(ask, offered)
    if isinstance(model, AskProblem):
        return model
    found = compare_busiest(
        connection,
        ask.when.period,
        logical_model=model,
        baseline=ask.baseline,
        candidate=ask.candidate,
        priority=ask.priority,
    )
    if found is not None and found.baseline.side == found.candidate.side:
        found = None
    return found, offered


def merged(offered: Sequence[Offered]) -> dict[Side, dict[str, int]]:
    """Each side once, in order, with its receipts by logical model."""
    by_side: dict[Side, dict[str, int]] = {}
    for one in offered:
        by_side.setdefault(one.side, {})[one.logical_model] = one.receipts
    return by_side
