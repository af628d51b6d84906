"""Control actions that a webhook has not been told of."""

import sqlite3

from ledger.reading import fetch
from ledger.records import ControlAction
from ledger.rows import Stored, select, stored

# What objectives, rollouts and people did to the fleet; a demonstration's own rows are no news.
_UNTOLD = (
    f"{select(ControlAction)} AS a WHERE acted_at_us >= ? AND action NOT LIKE 'demo.%' "
    "AND NOT EXISTS (SELECT 1 FROM notification AS n WHERE n.action_seq = a.seq "
    "AND n.target = ?) ORDER BY action LIKE 'slo.%' OR action LIKE 'rollout.%' DESC, seq LIMIT ?"
)


def untold(
    connection: sqlite3.Connection, target: str, since_us: int, *, limit: int
) -> list[Stored[ControlAction]]:
    """The oldest actions from a time on that the target has no notification of.

    What objectives and rollouts did comes first: a person who changed something knows it already.
    """
    rows = fetch(connection, _UNTOLD, (since_us, target, limit))
    return [stored(ControlAction, row) for row in rows]
