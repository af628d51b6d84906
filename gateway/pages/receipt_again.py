"""A receipt's decision made again, by the same rules or by another policy's; its attempts."""

import sqlite3

import msgspec
from django.http import QueryDict

from gateway.pages.charts import waterfall
from gateway.pages.receipt_attempts import (
    bars,
    beside,
    changed_fields,
    followed,
    reported,
    resolutions,
    tried,
)
from gateway.policy.replay import decode_decision
from gateway.replaying import NotInLedger, Other, Replayer
from ledger.queries.configuration import policies_before
from ledger.queries.decisions import attempt_decisions
from ledger.queries.dossier import Dossier
from ledger.queries.outcomes import reports_of

POLICIES_OFFERED = 20
REVISION_LIMIT_CHARS = 200


def attempts_of(connection: sqlite3.Connection, found: Dossier) -> dict[str, object]:
    """The attempts, what followed each, the reports on the answer, the revisions of the receipt."""
    request_id, attempts = found.current.record.request_id, tried(found)
    return {
        "attempts": attempts,
        "attempts_chart": waterfall(
            bars(attempts, found.current.record), found.current.record.deadline_us
        )
        if len(attempts) > 1
        else None,
        "followed": followed(list(attempt_decisions(connection, request_id=request_id))),
        "reports": reported(reports_of(connection, request_id)),
        "resolutions": resolutions(found),
    }


def again_of(connection: sqlite3.Connection, found: Dossier, query: QueryDict) -> dict[str, object]:
    """What the URL asks to be decided again, and which policies it may be decided by."""
    if found.decision is None:
        return {}
    offered = [one.record.revision for one in policies_before(connection, None, POLICIES_OFFERED)]
    context: dict[str, object] = {"policies": offered}
    if query.get("replay") == "1":
        replayer, request_id = Replayer(connection), found.current.record.request_id
        context["replayed"] = replayer.compare(found.decision.record)
        context["replayed_steps"] = list(replayer.steps(request_id))
    under = query.get("under", "")[:REVISION_LIMIT_CHARS]
    if under:
        context["under"] = under
        context |= _under(connection, found, under)
    return context


def _under(connection: sqlite3.Connection, found: Dossier, revision: str) -> dict[str, object]:
    """The decision by another policy beside the recorded one, or why there is none (RTE-4)."""
    if found.decision is None:
        return {}
    row, replayer = found.decision.record, Replayer(connection)
    try:
        recorded = decode_decision(row.decision_json)
        other = replayer.under(row, Other(policy=replayer.policy(revision)))
    except (NotInLedger, msgspec.DecodeError) as gap:
        return {"under_problem": str(gap)}
    return {"beside": beside(recorded, other), "under_changed": changed_fields(recorded, other)}
