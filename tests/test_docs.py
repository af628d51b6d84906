"""The documents are true: codes, metrics, headers, endpoints and files that they name exist."""

import importlib
import json
import re
from pathlib import Path

from gateway import metrics
from gateway.api.budget import header_readings
from gateway.api.errors import http_codes
from gateway.policy.reasons import REASONS
from gateway.telemetry.conventions import BUCKETS, UNITS
from ledger import slo_text
from ledger.slo_rules import problems
from tests.gateway.api.client import SmallGateway

ROOT = Path(__file__).resolve().parent.parent
API = (ROOT / "docs" / "api.md").read_text()


def test_every_reason_code_stands_in_the_api_document_beside_its_status():
    codes = {reason.code: reason.http_status for reason in REASONS.values()}
    codes |= {code: status for code, status, _ in http_codes()}
    told = {
        code: int(status)
        for row, status in re.findall(r"^\| (`[A-Z_`, ]+`) \| (\d{3}) \|$", API, re.MULTILINE)
        for code in re.findall(r"`([A-Z_]+)`", row)
    }
    assert told == codes


def test_every_metric_stands_in_the_api_document_and_no_other():
    importlib.import_module("gateway.runtime")  # brings every module that registers one
    names = {metric.name for metric in metrics.REGISTRY.collect()}
    table = API[API.index("## Metrics") :]
    assert set(re.findall(r"`((?:weighbridge_|vllm:)[a-z0-9_]+)`", table)) == names


def test_every_metric_of_opentelemetry_stands_in_the_api_document_and_no_other():
    told = API[API.index("## OpenTelemetry") :]
    named = set(re.findall(r"`(gen_ai\.(?:server|client)\.[a-z_.]+)`", told))
    assert named == set(UNITS) == set(BUCKETS)


def test_every_budget_header_stands_in_the_api_document():
    assert {name for name, _ in header_readings() if f"`{name}`" not in API} == set()


def test_endpoints_that_documents_name_exist():
    endpoints = SmallGateway().application().table
    named = r"(?:GET|POST) (/(?:v1|v2|api)/[a-z0-9/{}_-]+)"
    for document in (ROOT / "docs").glob("*.md"):
        for path in re.findall(named, document.read_text()):
            whole = f"{path}x" if path.endswith("/") else path  # a name follows
            assert endpoints.find(whole) is not None, f"{document.name}: {path}"


def test_commands_that_documents_name_exist():
    commands = {
        path.stem
        for package in ("gateway", "ledger")
        for path in (ROOT / package / "management" / "commands").glob("*.py")
    } | {"migrate", "check", "collectstatic", "makemigrations", "createcachetable"}
    for document in (ROOT / "docs").glob("*.md"):
        named = set(re.findall(r"manage\.py ([a-z_]+)", document.read_text()))
        assert named <= commands, f"{document.name}: {named - commands}"


def test_files_that_the_guide_to_extending_names_exist():
    for path in re.findall(r"`((?:gateway|ledger|templates|tests)/[\w/.]*)`", _extend()):
        assert (ROOT / path).exists(), path


def test_the_dashboard_asks_for_metrics_that_are_exposed():
    dashboard = json.loads((ROOT / "docs" / "grafana" / "weighbridge.json").read_text())
    samples = {
        sample.name for metric in metrics.REGISTRY.collect() for sample in metric.samples
    } | {
        f"{metric.name}{end}"
        for metric in metrics.REGISTRY.collect()
        for end in ("", "_total", "_bucket", "_sum", "_count")
    }
    asked = {
        name
        for panel in dashboard["panels"]
        for target in panel.get("targets", ())
        for name in re.findall(r"(?:weighbridge_|vllm:)[a-z0-9_]+", target["expr"])
    }
    assert asked and asked <= samples


def _extend() -> str:
    return (ROOT / "docs" / "extend.md").read_text()


def test_the_objective_that_the_document_declares_is_one():
    text = (ROOT / "docs" / "control.md").read_text()
    body = text[text.index('    {"title": "Answers"') :].partition("\n\n")[0]
    definition = slo_text.from_json("answers", 1, body)
    assert (problems(definition), definition.action.automatic) == ((), True)
