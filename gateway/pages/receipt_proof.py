"""A receipt's proof as a file, for whoever may see the receipt here (LED-7)."""

import msgspec
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from gateway.auth_roles import require_role
from gateway.pages.shell import ledger
from ledger.proof_files import NoProof, prove_receipt


@require_safe
@require_role("viewer")
def download(request: HttpRequest, request_id: str) -> HttpResponse:
    """The proof at the ledger's present size, checked before it is sent."""
    made = prove_receipt(ledger(), request_id)
    if isinstance(made, NoProof):
        archived = made.code == "REQUEST_ARCHIVED"
        context = {"reason": f"No proof: {made.what}.", "title": "Archived" if archived else ""}
        return render(request, "404.html", context, status=410 if archived else 404)
    answer = HttpResponse(msgspec.json.encode(made) + b"\n", content_type="application/json")
    answer["Content-Disposition"] = 'attachment; filename="proof.json"'
    return answer
