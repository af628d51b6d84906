"""The console's URLs. The API's are in `gateway.api`, which the server asks first."""

from django.contrib.auth.views import LogoutView
from django.urls import path
from django.views.generic import RedirectView

from gateway.pages import (
    acting,
    audit_log,
    bridge,
    costs,
    display,
    health,
    now,
    policies,
    rates,
    receipt,
    receipt_proof,
    receipts,
    reconciliation,
    reconciliation_files,
    reconciliation_upload,
    releases,
    rollout,
    routes,
    slo,
    slo_one,
    tenants,
    unknowns,
)
from gateway.pages.login import Login

urlpatterns = [
    path("", RedirectView.as_view(pattern_name="now"), name="home"),
    path("login", Login.as_view(), name="login"),
    path("logout", LogoutView.as_view(), name="logout"),
    path("theme", display.set_theme, name="theme"),
    path("display", display.index, name="display"),
    path("now", now.index, name="now"),
    path("receipts", receipts.index, name="receipts"),
    path("receipts/<str:request_id>", receipt.show, name="receipt"),
    path("receipts/<str:request_id>/proof.json", receipt_proof.download, name="receipt-proof"),
    path("costs", costs.index, name="costs"),
    path("costs/bridge", bridge.index, name="bridge"),
    path("costs.csv", costs.as_csv, name="costs-csv"),
    path("unknowns", unknowns.index, name="unknowns"),
    path("tenants", tenants.index, name="tenants"),
    path("tenants/<str:tenant_id>", tenants.show, name="tenant"),
    path("audit-log", audit_log.index, name="audit-log"),
    path("act/<str:operation>", acting.act, name="act"),
    path("slo", slo.index, name="slo"),
    path("slo/slices", slo_one.slices, name="slo-slices"),
    path("slo/objective/<str:slo_id>", slo_one.show, name="slo-one"),
    path("releases", releases.index, name="releases"),
    path("releases/rollout/<path:rollout_id>", rollout.show, name="rollout"),
    path("reconciliation", reconciliation.index, name="reconciliation"),
    path(
        "reconciliation/import", reconciliation_upload.import_report, name="reconciliation-import"
    ),
    path("reconciliation/<str:run_id>", reconciliation.show, name="reconciliation-run"),
    path(
        "reconciliation/<str:run_id>/run.csv",
        reconciliation_files.as_csv,
        name="reconciliation-csv",
    ),
    path(
        "reconciliation/<str:run_id>/run.sqlite3",
        reconciliation_files.as_sqlite,
        name="reconciliation-sqlite",
    ),
    path("focus.csv", reconciliation_files.focus, name="focus"),
    path("routes", routes.index, name="routes"),
    path("policies", policies.index, name="policies"),
    path("policies/compare", policies.compare, name="policies-compare"),
    path("policies/revision/<path:revision>", policies.show, name="policy"),
    path("rates", rates.index, name="rates"),
    path("rates/compare", rates.compare, name="rates-compare"),
    path("rates/history", rates.history, name="rates-history"),
    path("rates/version/<path:version>", rates.show, name="rate-table"),
    path("health", health.index, name="health"),
    path("health/checkpoint.json", health.checkpoint, name="checkpoint"),
]
