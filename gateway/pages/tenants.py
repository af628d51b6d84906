"""Tenants and keys: who may use how much, what is left of it, and by which keys."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import msgspec
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from gateway.api.auth import KNOWN_SCOPES
from gateway.auth_roles import require_role
from gateway.pages.shell import clock, ledger
from gateway.pages.tenants_view import fields, limits
from gateway.quota import Quota
from ledger.forecast import Forecast, forecast
from ledger.queries.configuration import tenants as all_tenants
from ledger.queries.cost_sums import CostSums
from ledger.queries.costs import FILTER_VALUES_LIMIT, costs
from ledger.queries.people import KeyState, keys_of, tenant_revisions
from ledger.records import Tenant
from ledger.zones import QUARTER_US, Period, parse_zone


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A tenant in force, with its month."""

    tenant: Tenant
    quota: Quota
    month: Forecast
    keys: int


@require_safe
@require_role("viewer")
def index(request: HttpRequest) -> HttpResponse:
    connection, now_us = ledger(), clock.now_us()
    counts: dict[str, int] = {}
    for state in keys_of(connection):
        if state.usable_at(now_us):
            counts[state.key.tenant_id] = counts.get(state.key.tenant_id, 0) + 1
    every = all_tenants(connection)
    quotas = {tenant.tenant_id: quota_of(tenant) for tenant in every}
    month_of = months(quotas, now_us)
    lines = [
        Line(
            tenant=tenant,
            quota=quotas[tenant.tenant_id],
            month=month_of[tenant.tenant_id],
            keys=counts.get(tenant.tenant_id, 0),
        )
        for tenant in every
    ]
    return render(request, "tenants/index.html", {"lines": lines})


@require_safe
@require_role("viewer")
def show(request: HttpRequest, tenant_id: str) -> HttpResponse:
    connection, now_us = ledger(), clock.now_us()
    revisions = tenant_revisions(connection, tenant_id)
    if not revisions:
        raise Http404(f"There is no tenant of this name. {len(all_tenants(connection))} exist.")
    quota = quota_of(revisions[0])
    return render(
        request,
        "tenants/tenant.html",
        {
            "tenant": revisions[0],
            "quota": quota,
            "limits": limits(quota),
            "fields": fields(quota),
            "month": months({tenant_id: quota}, now_us)[tenant_id],
            "revisions": [(one, limits(quota_of(one))) for one in revisions],
            "keys": [(state, key_words(state, now_us)) for state in keys_of(connection, tenant_id)],
            "scopes": KNOWN_SCOPES,
        },
    )


def quota_of(tenant: Tenant) -> Quota:
    return msgspec.json.decode(tenant.body_json, type=Quota)


def months(quotas: Mapping[str, Quota], now_us: int) -> dict[str, Forecast]:
    """Each tenant's calendar month so far against its budget, in its quota's own zone.

    One query for FILTER_VALUES_LIMIT tenants of a zone, so a hundred cost what one does.
    """
    found: dict[str, Forecast] = {}
    for zone in sorted({quota.time_zone for quota in quotas.values()}):
        names = [name for name, quota in quotas.items() if quota.time_zone == zone]
        for at in range(0, len(names), FILTER_VALUES_LIMIT):
            some = {name: quotas[name] for name in names[at : at + FILTER_VALUES_LIMIT]}
            found |= _of_one_zone(zone, some, now_us)
    return found


def _of_one_zone(zone: str, quotas: Mapping[str, Quota], now_us: int) -> dict[str, Forecast]:
    start_us, end_us = next(iter(quotas.values())).period_us("month", now_us)
    until_us = min(end_us, now_us - now_us % QUARTER_US + QUARTER_US)
    table = costs(
        ledger(),
        Period(start_us=start_us, end_us=until_us),
        ["tenant"],
        zone=parse_zone(zone),
        filters={"tenant": tuple(quotas)},
    )
    sums = {row.values[0]: row.sums for row in table.rows}
    found = {}
    for name, quota in quotas.items():
        own = sums.get(name, CostSums())
        spent = forecast(
            own.cost_total_pico, quota.budget_pico, start_us=start_us, now_us=now_us, end_us=end_us
        )
        found[name] = replace(spent, unpriced=own.unpriced)
    return found


def key_words(state: KeyState, now_us: int) -> str:
    """A key's state: active, revoked or expired."""
    if state.revocation is not None:
        return "revoked"
    return "active" if state.usable_at(now_us) else "expired"
