"""Declare an objective on the console; it counts from the next quarter hour on."""

from dataclasses import replace

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from gateway.auth_roles import require_role
from gateway.operations.base import Done
from gateway.operations.control import DeclareSlo
from gateway.pages.acting import REFUSED_STATUS, done
from gateway.pages.declaring import tell
from gateway.pages.shell import ledger
from gateway.pages.slo_form import SloForm, fields_of, objective_of
from ledger.queries import objectives as stored
from ledger.slo import SloDefinition
from ledger.slo_text import to_json


@require_http_methods(["GET", "HEAD", "POST"])
@require_role("admin")
def declare(request: HttpRequest) -> HttpResponse:
    """The form, filled in from `?slo=ID`; sent, the objective's page, or the form with what was
    wrong."""
    if request.method != "POST":
        before = _in_force(request.GET.get("slo", ""))
        form = SloForm(initial=fields_of(before) if before else None)
        return _shown(request, form)
    form = SloForm(request.POST)
    if not form.is_valid():
        return _shown(request, form)
    given = form.cleaned_data
    definition = objective_of(given, _in_force(given["slo_id"]))
    found = done(
        request,
        DeclareSlo(
            slo_id=definition.slo_id,
            body_json=to_json(replace(definition, counted_from_us=0)),
            reason=given["reason"],
        ),
    )
    if isinstance(found, Done):
        messages.success(request, found.summary)
        return HttpResponseRedirect(reverse("slo-one", args=[definition.slo_id]))
    tell(form, found)
    return _shown(request, form)


def _in_force(slo_id: str) -> SloDefinition | None:
    return next((one for one in stored.objectives(ledger()) if one.slo_id == slo_id), None)


def _shown(request: HttpRequest, form: SloForm) -> HttpResponse:
    status = REFUSED_STATUS if form.errors else 200
    return render(request, "declare/slo.html", {"form": form}, status=status)
