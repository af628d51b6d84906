"""The console's pages, in the order of the navigation: a new page is one entry here."""

from dataclasses import dataclass

from django.http import HttpRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One page: its URL name, its label, and the question that it answers."""

    url_name: str
    label: str
    question: str
    also: tuple[str, ...] = ()  # URL names of pages below it

    def holds(self, url_name: str | None) -> bool:
        return url_name == self.url_name or url_name in self.also


ENTRIES: tuple[Entry, ...] = (
    Entry(url_name="now", label="Now", question="What is wrong, for whom, and since when?"),
    Entry(
        url_name="slo",
        label="SLO burn",
        question="Who waits too long, and how long can it last?",
        also=("slo-one", "slo-slices", "slo-declare"),
    ),
    Entry(url_name="costs", label="Costs", question="Who spent what, on what?", also=("bridge",)),
    Entry(
        url_name="releases",
        label="Releases",
        question="Is the new version as good as the old one?",
        also=("rollout", "release-declare", "rollout-start"),
    ),
    Entry(
        url_name="receipts",
        label="Receipts",
        question="What happened to this request, and why?",
        also=("receipt",),
    ),
    Entry(
        url_name="reconciliation",
        label="Reconciliation",
        question="Does the invoice agree with what we ran?",
        also=("reconciliation-run",),
    ),
    Entry(
        url_name="unknowns", label="Unknowns", question="What may have run, and what hangs on it?"
    ),
    Entry(
        url_name="routes",
        label="Routes",
        question="Which routes take requests, and what room is left?",
    ),
    Entry(
        url_name="policies",
        label="Policies",
        question="What may routing follow, and what changed?",
        also=("policy", "policies-compare"),
    ),
    Entry(
        url_name="rates",
        label="Rates",
        question="What does a token cost, since when?",
        also=("rate-table", "rates-compare", "rates-history"),
    ),
    Entry(
        url_name="tenants",
        label="Tenants",
        question="Who may use how much, and what is left of it?",
        also=("tenant",),
    ),
    Entry(url_name="audit-log", label="Audit log", question="Who changed what, when and why?"),
    Entry(
        url_name="health", label="Health", question="What is wrong with the ledger, and what to do?"
    ),
)


def current(request: HttpRequest) -> str | None:
    """The URL name of the page that is being shown; None on an error page."""
    match = request.resolver_match
    return match.url_name if match else None
