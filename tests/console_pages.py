"""Every page of the sample console: what sweeps, plans and timings go through."""

from tests.sample_console import Console

COMPLETED, RUN = "a completed receipt", "a run"  # their paths differ from console to console
FOUND = {
    COMPLETED: "status = 'completed' AND degraded_from IS NULL",
    "a degraded receipt": "degraded_from IS NOT NULL",
    "a refused receipt": "status = 'rejected' AND terminal_error_code = 'CAPACITY_SHED'",
    "an unknown receipt": "status = 'unknown'",
}
PATHS = (
    "/now?follow=0",
    "/slo",
    "/slo/objective/interactive-queue",
    "/slo/slices?by=priority&within=1h",
    "/costs",
    "/costs?by=hour&then=tenant&zone=%2B05:30",
    "/costs/bridge?within=1h",
    "/releases",
    "/releases/rollout/assistant-v3/1",
    "/receipts?within=15m",
    "/receipts?tenant=nobody",
    *FOUND,
    f"{COMPLETED}?replay=1",
    "/reconciliation",
    RUN,
    "/unknowns",
    "/routes",
    "/policies",
    "/policies/revision/policy-7",
    "/policies/revision/policy-8",
    "/policies/compare?before=policy-7&after=policy-8",
    "/rates",
    "/rates/version/rates-2027-02?within=24h",
    "/rates/compare?before=rates-2025-11&after=rates-2027-01",
    "/rates/history?key=fast-v2",
    "/rates/history",
    "/tenants",
    "/tenants/acme",
    "/audit-log",
    "/health?audit=quick",
    "/display",
)
DOWNLOADS = (
    "/receipts?within=15m&as=csv&table=receipts",
    "/costs?as=json&table=costs",
    "/costs.csv?by=tenant&then=route&within=7d",
    f"{COMPLETED}/proof.json",
    f"{RUN}/run.csv",
    f"{RUN}/run.sqlite3",
    "/focus.csv?within=7d&tenant=acme",
    "/health/checkpoint.json",
)
FORMS = ("/slo/declare?slo=interactive-queue", "/releases/declare", "/releases/start")
REFUSED = ("/receipts?older=nowhere", "/receipts/req_unknown")  # with a page that says why


def path_of(console: Console, name: str) -> str:
    """The path of a page of PATHS in this console."""
    whole, _, query = name.partition("?")
    first, *rest = whole.split("/") if whole.startswith((*FOUND, RUN)) else [whole]
    if first in FOUND:
        found = console.receipt(FOUND[first])
    else:
        found = console.run() if first == RUN else first
    found = "/".join((found, *rest))
    return f"{found}?{query}" if query else found
