"""What every page asks the ledger: each query by an index, or of a table that stays small."""

import pytest
from django.test import Client

from gateway.clock import SystemClock
from ledger.reading import reader
from tests.console_pages import PATHS, path_of
from tests.gateway.operations import books
from tests.ledger.seeded import Plans
from tests.sample_books import fleet_records, keep_books, tenant_records
from tests.sample_console import Console, fill

SMALL = (
    # Declared by people: a row a revision, a key, a report.
    "route_policy", "rate_table", "model_identity", "tenant", "api_key", "release", "rollout",
    "invoice",
    "h",  # holds that are open now
    # A subquery with a limit, or one value after another by an index; its own steps are looked at.
    "t", "v", "used", "found", "(subquery-2)",
)  # fmt: skip


@pytest.fixture(scope="module")
def filled(ledger_template, tmp_path_factory):
    """The sample console's ledger, made once: its path."""
    folder = tmp_path_factory.mktemp("plans")
    path = folder / "ledger.sqlite3"
    path.write_bytes(ledger_template.read_bytes())
    now_us = SystemClock().now_us()
    fill(path, count=60, end_us=now_us, span_us=1_800_000_000)
    books.append(path, fleet_records(now_us) + tenant_records(now_us))
    keep_books(path)
    return path


@pytest.mark.parametrize("name", PATHS)
def test_a_page_reads_no_table_without_an_index(settings, filled, viewer: Client, name: str):
    settings.WEIGHBRIDGE_DB = filled
    path = path_of(Console(base_url="", passwords={}, sessions={}, folder=filled.parent), name)
    with Plans(reader(filled)) as plans:
        answer = viewer.get(path)
    assert answer.status_code == 200
    scans = plans.scans_of_large_tables()
    assert [step for step in scans if step.split()[1] not in SMALL] == []
