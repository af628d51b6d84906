"""Route policies: published revisions, drafts, what differs, and how one comes into force."""

import msgspec
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from gateway.auth_roles import require_role
from gateway.configuration import evaluations_of
from gateway.control.publication import DERIVED_BY
from gateway.fleet_file.differences import differences
from gateway.fleet_file.named import named
from gateway.operations.policies import KIND, policy_of
from gateway.operations.policy_checks import around, policy_faults
from gateway.pages.policies_view import DIFFERENCES_LIMIT, arms, changed, rules, text_of
from gateway.pages.policies_view import fault_lines as lines_of
from gateway.pages.routes_graph import proofs
from gateway.pages.shell import clock, ledger, page
from gateway.policy.validation import warnings
from gateway.policy.values import RoutePolicy
from ledger.queries import configuration as stored
from ledger.queries import drafts

PAGE_ROWS = 50
PLACE_DIGITS = 18


@require_safe
@require_role("viewer")
def index(request: HttpRequest) -> HttpResponse:
    connection, before = ledger(), request.GET.get("before", "")
    context: dict[str, object] = {"drafts": drafts.drafts(connection, KIND), "newest": not before}
    if before and not (before.isdecimal() and len(before) <= PLACE_DIGITS):
        context["problem"] = "before: a place in the chain is a whole number"
        return page(request, "policies", "_list.html", context)
    rows = stored.policies_before(connection, int(before) if before else None, PAGE_ROWS + 1)
    context |= {
        "rows": rows[:PAGE_ROWS],
        "older": rows[PAGE_ROWS - 1].seq if len(rows) > PAGE_ROWS else None,
        "declared": _revision(stored.declared_policy(connection, DERIVED_BY)),
        "current": _revision(stored.current_policy(connection)),
        "derived_by": DERIVED_BY,
    }
    return page(request, "policies", "_list.html", context)


@require_safe
@require_role("viewer")
def show(request: HttpRequest, revision: str) -> HttpResponse:
    connection = ledger()
    policy = policy_of(connection, revision)
    if policy is None:
        raise Http404("There is no policy or draft of this name; the list has them all.")
    record = stored.policy(connection, revision)
    declared = _revision(stored.declared_policy(connection, DERIVED_BY))
    context: dict[str, object] = {"policy": policy, "record": record, "declared": declared}
    context |= {"current": _revision(stored.current_policy(connection)), "rules": rules(policy)}
    context["text"] = text_of(policy, "revision")
    if record is None:
        context["draft"] = drafts.draft(connection, KIND, revision)
        faults = policy_faults(policy, around(connection, clock.now_us()))
        context["faults"] = lines_of(faults, named(policy))
    return render(request, "policies/policy.html", context | _parts(policy))


def _parts(policy: RoutePolicy) -> dict[str, object]:
    evaluations = evaluations_of(ledger())[0]
    return {
        "edges": proofs(policy, evaluations),
        "warnings": [str(each) for each in warnings(policy, evaluations)],
        "models": [(model, arms(model)) for model in policy.models],
        "published": stored.policies_count(ledger()),
    }


@require_safe
@require_role("viewer")
def compare(request: HttpRequest) -> HttpResponse:
    connection = ledger()
    declared = _revision(stored.declared_policy(connection, DERIVED_BY)) or ""
    names = [each.record.revision for each in stored.policies_before(connection, None, PAGE_ROWS)]
    names += [each.name for each in drafts.drafts(connection, KIND) if each.name not in names]
    before = request.GET.get("before") or (names[1] if len(names) > 1 else declared)
    after = request.GET.get("after") or declared
    context: dict[str, object] = {"before": before, "after": after, "names": names}
    if names:
        old, new = policy_of(connection, before), policy_of(connection, after)
        if old is None or new is None:
            context["problem"] = "one of the two is no published revision and no draft"
        else:
            found = differences(old, new)
            context |= {"changed": changed(found), "count": len(found)}
            context["limit"] = DIFFERENCES_LIMIT
    return page(request, "policies_compare", "_differences.html", context)


def _revision(record: msgspec.Struct | None) -> str | None:
    return None if record is None else str(getattr(record, "revision", ""))
