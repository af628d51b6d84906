"""A provider's report sent by a form: its files, as the pages of one report, into the ledger."""

from django.core.files.uploadedfile import UploadedFile
from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_POST

from gateway.auth_roles import require_role
from gateway.operations.base import Done, Refused
from gateway.operations.reconciliation import ImportInvoice
from gateway.pages.acting import answered, done
from ledger.invoices.files import FILE_LIMIT_BYTES
from ledger.invoices.identity import EXPORTS


@require_role("operator")
@require_POST
def import_report(request: HttpRequest) -> HttpResponse:
    """Import it as the logged-in operator; whole, or not at all with the place of the fault."""
    files = [each for each in request.FILES.getlist("files") if isinstance(each, UploadedFile)]
    return answered(request, _imported(request, files))


def _imported(request: HttpRequest, files: "list[UploadedFile[bytes]]") -> Done | Refused:
    if not files:
        return Refused(code="FILES", message="Choose the report's file, or all its pages in order.")
    size = sum(each.size or 0 for each in files)
    if size > FILE_LIMIT_BYTES:
        message = f"{size:,} bytes together; {FILE_LIMIT_BYTES:,} are the limit: split it by month."
        return Refused(code="FILE_TOO_LARGE", message=message)
    operation = ImportInvoice(
        files=tuple(each.read() for each in files),
        provider=request.POST.get("provider", "").strip() or None,
        format=request.POST.get("format", "").strip() or None,
        export=next((one for one in EXPORTS if one == request.POST.get("export")), None),
    )
    return done(request, operation)
