"""What the console asks the ledger: each query by an index, or of a table that stays small.

Every page whole and as the part that HTMX swaps in, every file that a page links to, and the
reads of the API beside them.
"""

import sqlite3
from collections.abc import Callable

import pytest
from django.http import HttpResponseBase
from django.test import Client

from gateway.api import capabilities, control, published, reconciliations
from ledger.queries import unknowns
from ledger.reading import reader
from tests.console_pages import DOWNLOADS, PATHS, path_of
from tests.ledger.seeded import Plans
from tests.sample_console import Console
from tests.sample_control import SLO

SMALL = (
    # Declared by people: a row a revision, a key, a report.
    "route_policy", "rate_table", "model_identity", "tenant", "api_key", "release", "rollout",
    "invoice",
    "h",  # holds that are open now
    "t", "v", "found",  # a subquery with a limit, or one value after another by an index
)  # fmt: skip
DERIVED = ("CO-ROUTINE", "MATERIALIZE")  # a subquery by its name; its own steps are looked at
NOW_US = 1_800_000_000_000_000
READS: dict[str, Callable[[sqlite3.Connection], object]] = {
    "slo/evaluations": lambda c: control.evaluations_body(c, {"slo": [SLO]}, NOW_US),
    "actions": lambda c: control.actions_body(c, {}, NOW_US),
    "actions by subject": lambda c: control.actions_body(c, {"subject": ["batch"]}, NOW_US),
    "actions open": lambda c: control.actions_body(c, {"open": ["1"]}, NOW_US),
    "rollouts": lambda c: control.rollouts_body(c, {}, NOW_US),
    "diagnosis": lambda c: control.diagnosis_body(c, {"within": ["1h"]}, NOW_US),
    "policies": published._policies,
    "rate-tables": published._rate_tables,
    "reconciliations": reconciliations._overview,
    "capabilities": capabilities.routes_json,
    "unknowns": unknowns.open_unknowns,
}


def scans(plans: Plans) -> list[str]:
    """What is read whole, but for small tables and what a subquery has found by an index."""
    found = {step.split()[1] for step in plans.steps() if step.startswith(DERIVED)}
    return [
        step
        for step in plans.scans_of_large_tables()
        if step.split()[1] not in SMALL and step.split()[1] not in found
    ]


def read_whole(answer: HttpResponseBase) -> bytes:
    """Its bytes; of one that is streamed, all that it reads while it is sent."""
    if answer.streaming:
        return b"".join(answer.streaming_content)  # type: ignore[attr-defined]  # of a stream
    return bytes(answer.content)  # type: ignore[attr-defined]  # of what is no stream


@pytest.mark.parametrize("headers", [{}, {"HX-Request": "true"}], ids=["whole", "part"])
@pytest.mark.parametrize("name", PATHS)
def test_a_page_reads_no_table_without_an_index(
    sample: Console, viewer: Client, name: str, headers: dict[str, str]
):
    with Plans(reader(sample.folder / "ledger.sqlite3")) as plans:
        answer = viewer.get(path_of(sample, name), headers=headers)
    assert answer.status_code == 200
    assert scans(plans) == []


@pytest.mark.parametrize("name", DOWNLOADS)
def test_a_file_of_a_page_reads_no_table_without_an_index(
    sample: Console, viewer: Client, name: str
):
    with Plans(reader(sample.folder / "ledger.sqlite3")) as plans:
        answer = viewer.get(path_of(sample, name))
        assert (answer.status_code, bool(read_whole(answer))) == (200, True)
    assert plans.steps()
    assert scans(plans) == []


@pytest.mark.parametrize("name", READS)
def test_a_read_of_the_api_reads_no_table_without_an_index(sample: Console, name: str):
    connection = reader(sample.folder / "ledger.sqlite3")
    with Plans(connection) as plans:
        assert READS[name](connection) is not None
    assert plans.steps()
    assert scans(plans) == []
