"""One receipt: its weigh ticket, time, decision, cost, identity, place in the chain, raw record."""

from typing import Any

import msgspec
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from gateway.auth_roles import require_role
from gateway.pages.charts import waterfall
from gateway.pages.receipt_again import again_of, attempts_of
from gateway.pages.receipt_view import (
    cost_lines,
    in_words,
    limit_lines,
    phases,
    weighings,
    winner,
    wishes,
)
from gateway.pages.shell import ledger
from gateway.policy.values import Decision
from ledger.queries.archives import archived_request
from ledger.queries.dossier import Dossier, dossier
from ledger.receipt_cost import cost_fault, unpriced


@require_safe
@require_role("viewer")
def show(request: HttpRequest, request_id: str) -> HttpResponse:
    """`replay=1` decides again from the ledger alone; `under=REVISION` by another policy."""
    found = dossier(ledger(), request_id)
    if found is None:
        place = archived_request(ledger(), request_id)
        if place is not None:
            reason = (
                f"This request is archived: the ledger keeps its hashes, and its records are in "
                f"the archive {place.file}."
            )
            return render(request, "404.html", {"reason": reason, "title": "Archived"}, status=410)
        reason = (
            "The ledger has no receipt of a request with this id. A request that is still "
            "running gets its receipt when it ends."
        )
        return render(request, "404.html", {"reason": reason}, status=404)
    context = _context(found) | attempts_of(ledger(), found)
    context |= again_of(ledger(), found, request.GET)
    return render(request, "receipt/index.html", context)


def _context(found: Dossier) -> dict[str, Any]:
    receipt = found.current.record
    decision = _decision(found)
    time_parts = phases(receipt)
    tables = {found.rates.version: found.rates} if found.rates else {}
    return {
        "found": found,
        "r": receipt,
        "decision": decision,
        "chosen": winner(decision),
        "words": in_words(decision) if decision else (),
        "limits": limit_lines(decision.limits) if decision else (),
        "weighings": weighings(receipt, decision),
        "wishes": wishes(receipt),
        "phases": time_parts,
        "waterfall": waterfall(time_parts, receipt.deadline_us),
        "cost_lines": cost_lines(receipt, found.rates),
        "unpriced": unpriced(receipt),
        "cost_fault": cost_fault(receipt, tables),
        "currency": found.rates.currency if found.rates else "units",
        "tags": msgspec.json.decode(receipt.tags_json),
        "raw": raw_json(found),
    }


def _decision(found: Dossier) -> Decision | None:
    """The recorded decision; None where there is none, or one that this code can't read."""
    if found.decision is None:
        return None
    try:
        return msgspec.json.decode(found.decision.record.decision_json, type=Decision)
    except msgspec.MsgspecError:
        return None


def raw_json(found: Dossier) -> str:
    """The current receipt as recorded, with its place in the chain; bytes in hexadecimal."""
    current = found.current
    place = {
        "seq": current.seq,
        "prev_hash": found.prev_hash.hex() if found.prev_hash else None,
        "entry_hash": current.entry_hash.hex(),
    }
    fields = msgspec.structs.asdict(current.record)
    text = {
        key: value.hex() if isinstance(value, bytes) else value for key, value in fields.items()
    }
    return msgspec.json.format(msgspec.json.encode(text | place), indent=2).decode()
