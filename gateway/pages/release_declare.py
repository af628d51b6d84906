"""Declare a release on the console, and import the evaluations that open its gate (REL-1)."""

from collections.abc import Iterable
from typing import Any

from django import forms
from django.contrib import messages
from django.core.files.uploadedfile import UploadedFile
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST

from gateway.auth_roles import require_role
from gateway.operations.base import Done, Refused
from gateway.operations.releases import NAME_LIMIT_CHARS, DeclareRelease, ImportEvaluations
from gateway.pages.acting import REFUSED_STATUS, answered, done
from gateway.pages.declaring import tell
from gateway.pages.shell import ledger
from ledger.evaluation_import import SCORE_LIMIT_MILLI, SIZE_LIMIT_BYTES
from ledger.queries import configuration
from ledger.records import ModelIdentity
from ledger.release_gate import CHECKS, Requirement


class ReleaseForm(forms.Form):
    """What is released, and the suite that answers each check of its gate."""

    release_id = forms.CharField(max_length=NAME_LIMIT_CHARS, label="Name of the release")
    identity_id = forms.ChoiceField(label="Model identity")

    def __init__(self, *args: Any, identities: Iterable[ModelIdentity], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        choices = self.fields["identity_id"]
        if isinstance(choices, forms.ChoiceField):
            choices.choices = [(one.identity_id, _words(one)) for one in identities]
        for check in CHECKS:
            name = check.replace("_", " ").capitalize()
            self.fields[f"suite_{check}"] = forms.CharField(
                required=False, max_length=128, label=f"{name}: the suite that answers it"
            )
            self.fields[f"floor_{check}"] = forms.IntegerField(
                required=False, min_value=0, max_value=SCORE_LIMIT_MILLI, initial=0,
                label=f"{name}: its least score, of {SCORE_LIMIT_MILLI:,}",
            )  # fmt: skip
        self.fields["reason"] = forms.CharField(max_length=500, label="Reason")


def _words(one: ModelIdentity) -> str:
    parts = (one.logical_model, one.weights_revision, one.quantization, one.serving_config_revision)
    return f"{', '.join(parts)} ({one.identity_id})"


def _operation(given: dict[str, Any]) -> DeclareRelease:
    return DeclareRelease(
        release_id=given["release_id"],
        identity_id=given["identity_id"],
        requirements=tuple(
            Requirement(
                check=check,
                suite=given[f"suite_{check}"],
                floor_milli=given[f"floor_{check}"] or 0,
            )
            for check in CHECKS
            if given[f"suite_{check}"]
        ),
        reason=given["reason"],
    )


@require_http_methods(["GET", "HEAD", "POST"])
@require_role("operator")
def declare(request: HttpRequest) -> HttpResponse:
    """The form; sent, the list of releases with the new one's gate, or what was wrong."""
    identities = configuration.identities(ledger())
    if request.method != "POST":
        return _shown(request, ReleaseForm(identities=identities))
    form = ReleaseForm(request.POST, identities=identities)
    if form.is_valid():
        found = done(request, _operation(form.cleaned_data))
        if isinstance(found, Done):
            messages.success(request, found.summary)
            return HttpResponseRedirect(reverse("releases"))
        tell(form, found)
    return _shown(request, form)


def _shown(request: HttpRequest, form: ReleaseForm) -> HttpResponse:
    status = REFUSED_STATUS if form.errors else 200
    suites = sorted({one.suite for one in configuration.evaluations(ledger())[0]})
    context = {"form": form, "suites": suites}
    return render(request, "declare/release.html", context, status=status)


@require_role("operator")
@require_POST
def import_evaluations(request: HttpRequest) -> HttpResponse:
    """Import a file of results, or the text of one; whole, or not at all with each problem."""
    return answered(request, _imported(request))


def _imported(request: HttpRequest) -> Done | Refused:
    file = request.FILES.get("file")
    raw = file.read() if isinstance(file, UploadedFile) else request.POST.get("text", "").encode()
    if not raw.strip():
        return Refused(code="FILES", message="Choose the file, or paste its text.")
    if len(raw) > SIZE_LIMIT_BYTES:
        message = f"{len(raw):,} bytes; {SIZE_LIMIT_BYTES:,} are the limit: split the file."
        return Refused(code="FILE_TOO_LARGE", message=message)
    try:
        return done(request, ImportEvaluations(text=raw.decode()))
    except UnicodeDecodeError:
        return Refused(code="INVALID_EVALUATIONS", message="The file is no UTF-8 text.")
