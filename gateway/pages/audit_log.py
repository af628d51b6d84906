"""The audit log: who changed what, when and why. Newest first; its place lives in the URL."""

from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_safe

from gateway.auth_roles import require_role
from gateway.pages.shell import ledger, page
from ledger.queries.actions import action_names, actions_page

FIELDS = ("action", "subject", "actor")
VALUE_LIMIT_CHARS = 200


@require_safe
@require_role("viewer")
def index(request: HttpRequest) -> HttpResponse:
    asked = {name: request.GET.get(name, "").strip()[:VALUE_LIMIT_CHARS] for name in FIELDS}
    before = request.GET.get("before", "")
    context: dict[str, object] = {"asked": asked, "names": action_names(ledger())}
    if before and not (before.isdecimal() and len(before) < 19):
        context["problem"] = "before: a place in the chain is a whole number"
        return page(request, "audit", "_actions.html", context)
    found = actions_page(
        ledger(),
        before_seq=int(before) if before else None,
        action=asked["action"],
        subject=asked["subject"],
        actor=asked["actor"],
    )
    query = request.GET.copy()
    if found.older_seq is not None:
        query["before"] = str(found.older_seq)
    context |= {"found": found, "older": query.urlencode(), "newest": not before}
    return page(request, "audit", "_actions.html", context)
