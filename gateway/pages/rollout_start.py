"""Start a rollout on the console: its plan is shown with its hash, checked, and then declared."""

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from gateway.auth_roles import require_role
from gateway.control import publication
from gateway.operations.base import Done, Refused, Seen
from gateway.operations.releases import StartRollout
from gateway.pages.acting import REFUSED_STATUS, actor_of, done
from gateway.pages.declaring import tell
from gateway.pages.rollout_form import RolloutForm, plan_of
from gateway.pages.rollout_view import condition_words, plan_facts
from gateway.pages.shell import clock, ledger
from ledger.queries import rollouts as stored
from ledger.rollouts import Plan, encode, plan_hash

CHECK = "check"


@require_http_methods(["GET", "HEAD", "POST"])
@require_role("operator")
def start(request: HttpRequest) -> HttpResponse:
    """The form; checked, the plan in words with its hash; sent, the rollout's page."""
    standing, releases = publication.standing(ledger()), stored.releases(ledger())
    policy = None if standing is None else standing.base
    if request.method != "POST":
        form = RolloutForm(initial=request.GET.dict(), policy=policy, releases=releases)
        return _shown(request, form)
    form = RolloutForm(request.POST, policy=policy, releases=releases)
    if not form.is_valid():
        return _shown(request, form)
    plan = plan_of(form.cleaned_data)
    operation = StartRollout(rollout=plan, reason=form.cleaned_data["reason"])
    if request.POST.get("do") == CHECK:
        seen = Seen(connection=ledger(), now_us=clock.now_us(), actor=actor_of(request))
        planned = operation.plan(seen)
        if isinstance(planned, Refused):
            tell(form, planned)
        return _shown(request, form, plan)
    found = done(request, operation)
    if isinstance(found, Done):
        messages.success(request, found.summary)
        return HttpResponseRedirect(reverse("rollout", args=[plan.rollout_id]))
    tell(form, found)
    return _shown(request, form, plan)


def _shown(request: HttpRequest, form: RolloutForm, plan: Plan | None = None) -> HttpResponse:
    context: dict[str, object] = {"form": form, "plan": plan, "check": CHECK}
    if plan is not None:
        context |= {
            "facts": plan_facts(plan),
            "conditions": [condition_words(one) for one in plan.conditions],
            "hash": plan_hash(encode(plan)),
        }
    status = REFUSED_STATUS if form.errors else 200
    return render(request, "declare/rollout.html", context, status=status)
