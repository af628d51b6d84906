"""What every page asks the ledger: each query by an index, or of a table that stays small."""

import pytest
from django.test import Client

from ledger.reading import reader
from tests.console_pages import PATHS, path_of
from tests.ledger.seeded import Plans
from tests.sample_console import Console

SMALL = (
    # Declared by people: a row a revision, a key, a report.
    "route_policy", "rate_table", "model_identity", "tenant", "api_key", "release", "rollout",
    "invoice",
    "h",  # holds that are open now
    # A subquery with a limit, or one value after another by an index; its own steps are looked at.
    "t", "v", "used", "found", "(subquery-2)",
)  # fmt: skip


@pytest.mark.parametrize("name", PATHS)
def test_a_page_reads_no_table_without_an_index(sample: Console, viewer: Client, name: str):
    with Plans(reader(sample.folder / "ledger.sqlite3")) as plans:
        answer = viewer.get(path_of(sample, name))
    assert answer.status_code == 200
    scans = plans.scans_of_large_tables()
    assert [step for step in scans if step.split()[1] not in SMALL] == []
