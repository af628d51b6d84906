"""Rate tables: published versions, drafts, what differs, a price's history, a trial on the past."""

from itertools import islice

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from gateway.auth_roles import require_role
from gateway.configuration import places_in_force, policy_in_force
from gateway.fleet_file.named import named
from gateway.operations.policy_checks import around, price_faults
from gateway.operations.rates import KIND, latest_version, rates_of
from gateway.pages.periods import RANGES, range_of
from gateway.pages.policies_view import fault_lines, text_of
from gateway.pages.rates_view import ROWS_LIMIT, moved, past, rows
from gateway.pages.shell import clock, ledger, page
from gateway.pages.zone import ZONES
from gateway.price_history import price_history
from ledger.queries import configuration as stored
from ledger.queries import drafts
from ledger.queries.archives import archives_of_period
from ledger.queries.what_if import served
from ledger.rate_changes import changes
from ledger.rate_lookup import label_of
from ledger.rates import RateTable
from ledger.what_if import tried

TRIED_LIMIT = 20_000  # requests that a page tries: about a second; the command has no limit
GROUPS_SHOWN = 100
LABELS_SHOWN = 500
QUERY_LIMIT_CHARS = 200


@require_safe
@require_role("viewer")
def index(request: HttpRequest) -> HttpResponse:
    connection, now_us = ledger(), clock.now_us()
    in_effect = stored.rate_table_in_effect(connection, now_us)
    context = {
        "rows": stored.rate_tables(connection)[::-1],
        "drafts": drafts.drafts(connection, KIND),
        "in_effect": in_effect.version if in_effect else None,
        "latest": latest_version(connection),
        "now_us": now_us,
    }
    return page(request, "rates", "_list.html", context)


@require_safe
@require_role("viewer")
def show(request: HttpRequest, version: str) -> HttpResponse:
    connection, now_us = ledger(), clock.now_us()
    table = rates_of(connection, version)
    if table is None:
        raise Http404("There is no rate table or draft of this name; the list has them all.")
    wanted = request.GET.get("key", "").strip()[:QUERY_LIMIT_CHARS]
    record = stored.rate_table(connection, version)
    in_effect = stored.rate_table_in_effect(connection, now_us)
    context: dict[str, object] = {"table": table, "record": record, "key": wanted}
    context |= {"rates": rows(table.rates, wanted), "limit": ROWS_LIMIT, "now_us": now_us}
    context |= {"in_effect": in_effect.version if in_effect else None}
    context |= {"latest": latest_version(connection), "ranges": RANGES, "zones": ZONES}
    context |= {"text": text_of(table, "version", "effective_from_us")}
    if record is None:
        context["draft"] = drafts.draft(connection, KIND, version)
        context["faults"] = _faults(table, now_us)
    context |= _trial(request, table, now_us)
    status = 400 if context.get("problem") else 200
    return render(request, "rates/table.html", context, status=status)


def _faults(table: RateTable, now_us: int) -> list[str]:
    """What the routes in force would lack by this table."""
    policy = policy_in_force(ledger())
    if policy is None:
        return []
    fleet = around(ledger(), now_us)
    with_it = type(fleet)(
        identities=fleet.identities, quotas=fleet.quotas, rate_tables=(table,), now_us=now_us
    )
    return fault_lines(tuple(price_faults(policy, with_it)), named(policy))


def _trial(request: HttpRequest, table: RateTable, now_us: int) -> dict[str, object]:
    """What the requests of the range that is asked for would have cost; nothing without one."""
    try:
        when = range_of(request.GET, now_us)
    except ValueError as problem:
        return {"problem": str(problem)}
    if not {"within", "first", "last"} & request.GET.keys():
        return {"asked": when}
    taken = islice(served(ledger(), when.period.start_us, when.period.end_us), TRIED_LIMIT)
    trial = tried(table, taken, places=places_in_force(ledger()))
    return {
        "asked": when,
        "trial": trial,
        "groups": trial.groups[:GROUPS_SHOWN],
        "capped": trial.whole.requests >= TRIED_LIMIT,
        "archived": archives_of_period(ledger(), when.period.start_us, when.period.end_us),
        "tried_limit": TRIED_LIMIT,
    }


@require_safe
@require_role("viewer")
def compare(request: HttpRequest) -> HttpResponse:
    connection = ledger()
    published = [record.version for record in stored.rate_tables(connection)][::-1]
    names = [*(each.name for each in drafts.drafts(connection, KIND)), *published]
    names = list(dict.fromkeys(names))
    latest = published[0] if published else ""
    before = request.GET.get("before") or (published[1] if len(published) > 1 else latest)
    after = request.GET.get("after") or latest
    context: dict[str, object] = {"before": before, "after": after, "names": names}
    old, new = rates_of(connection, before), rates_of(connection, after)
    if names and (old is None or new is None):
        context["problem"] = "one of the two is no published version and no draft"
    elif old is not None and new is not None:
        context |= {"moved": moved(changes(old, new)), "limit": ROWS_LIMIT}
        context |= {"currencies": (old.currency, new.currency)}
    return page(request, "rates_compare", "_differences.html", context)


@require_safe
@require_role("viewer")
def history(request: HttpRequest) -> HttpResponse:
    connection, now_us = ledger(), clock.now_us()
    key = request.GET.get("key", "").strip()[:QUERY_LIMIT_CHARS]
    newest = latest_version(connection)
    table = rates_of(connection, newest) if newest else None
    labels = [label_of(rate) for rate in table.rates[:LABELS_SHOWN]] if table else []
    context: dict[str, object] = {"key": key, "labels": list(dict.fromkeys(labels))}
    if key:
        found = price_history(connection, key)
        context["found"] = found
        context["histories"] = [
            (found.title(each) or each, past(spans, now_us)) for each, spans in found.by_key
        ]
    return page(request, "rates_history", "_spans.html", context)
