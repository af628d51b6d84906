"""The console's pages, in the order of the navigation: a new page is one entry here."""

from dataclasses import dataclass

from django.http import HttpRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One page: its URL name and its label."""

    url_name: str
    label: str
    also: tuple[str, ...] = ()  # URL names of pages below it

    def holds(self, url_name: str | None) -> bool:
        return url_name == self.url_name or url_name in self.also


ENTRIES: tuple[Entry, ...] = (
    Entry(url_name="now", label="Now"),
    Entry(url_name="slo", label="SLO burn", also=("slo-one", "slo-slices", "slo-declare")),
    Entry(url_name="costs", label="Costs", also=("bridge",)),
    Entry(
        url_name="releases", label="Releases", also=("rollout", "release-declare", "rollout-start")
    ),
    Entry(url_name="receipts", label="Receipts", also=("receipt",)),
    Entry(url_name="reconciliation", label="Reconciliation", also=("reconciliation-run",)),
    Entry(url_name="unknowns", label="Unknowns"),
    Entry(url_name="routes", label="Routes"),
    Entry(url_name="policies", label="Policies", also=("policy", "policies-compare")),
    Entry(url_name="rates", label="Rates", also=("rate-table", "rates-compare", "rates-history")),
    Entry(url_name="tenants", label="Tenants", also=("tenant",)),
    Entry(url_name="audit-log", label="Audit log"),
    Entry(url_name="health", label="Health"),
)


def current(request: HttpRequest) -> str | None:
    """The URL name of the page that is being shown; None on an error page."""
    match = request.resolver_match
    return match.url_name if match else None
