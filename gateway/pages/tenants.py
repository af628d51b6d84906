"""Tenants and keys: who may use how much, what is left of it, and by which keys."""

from dataclasses import dataclass

import msgspec
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from gateway.api.auth import KNOWN_SCOPES
from gateway.auth_roles import require_role
from gateway.pages.shell import clock, ledger
from gateway.quota import Quota
from ledger.forecast import Forecast, forecast
from ledger.queries.configuration import tenants as all_tenants
from ledger.queries.costs import costs
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
    lines = [
        Line(
            tenant=tenant,
            quota=(quota := quota_of(tenant)),
            month=month_of(tenant.tenant_id, quota, now_us),
            keys=counts.get(tenant.tenant_id, 0),
        )
        for tenant in all_tenants(connection)
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
            "fields": quota_fields(quota),
            "month": month_of(tenant_id, quota, now_us),
            "revisions": [(one, quota_fields(quota_of(one))) for one in revisions],
            "keys": [(state, key_words(state, now_us)) for state in keys_of(connection, tenant_id)],
            "scopes": KNOWN_SCOPES,
        },
    )


def quota_of(tenant: Tenant) -> Quota:
    return msgspec.json.decode(tenant.body_json, type=Quota)


def quota_fields(quota: Quota) -> dict[str, str]:
    """Each field of a quota as text, "" for no limit; lists by commas."""
    return {
        name: "" if value is None else ", ".join(value) if isinstance(value, tuple) else str(value)
        for name, value in msgspec.structs.asdict(quota).items()
    }


def month_of(tenant_id: str, quota: Quota, now_us: int) -> Forecast:
    """A tenant's calendar month so far, against its budget, in the quota's own zone."""
    start_us, end_us = quota.period_us("month", now_us)
    until_us = min(end_us, now_us - now_us % QUARTER_US + QUARTER_US)
    table = costs(
        ledger(),
        Period(start_us=start_us, end_us=until_us),
        ["tenant"],
        zone=parse_zone(quota.time_zone),
        filters={"tenant": (tenant_id,)},
    )
    return forecast(
        table.total.cost_total_pico,
        quota.budget_pico,
        start_us=start_us,
        now_us=now_us,
        end_us=end_us,
    )


def key_words(state: KeyState, now_us: int) -> str:
    """A key's state: active, revoked or expired."""
    if state.revocation is not None:
        return "revoked"
    return "active" if state.usable_at(now_us) else "expired"
