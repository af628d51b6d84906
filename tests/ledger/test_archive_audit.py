"""LED-8: what a ledger keeps of its archives is checked without them."""

import shutil
import sqlite3
from contextlib import closing

import pytest

from ledger.invariants import CHECKS, audit
from ledger.reading import connect_read_only
from ledger.rollups import packing
from ledger.rollups.tables import ARCHIVED, COARSE_MIN, COUNTS, GRAINS_MIN, QUARTER
from tests.ledger import archived as made
from tests.ledger.tampering import tamper
from tests.ledger_fixtures import without_log

OURS = [check for check in CHECKS if check.code.startswith("ARCHIVE")]
KEPT, SUMS = "ARCHIVES_ARE_KEPT", "ARCHIVED_SUMS_ARE_REQUESTS"


@pytest.fixture(scope="module")
def archived_once(ledger_template, tmp_path_factory):
    """A ledger with two archives: the later one's sums closed the days of the earlier one's."""
    path = tmp_path_factory.mktemp("archived") / "ledger.sqlite3"
    shutil.copyfile(ledger_template, path)
    made.fill(path)
    made.archived(path, path.parent / "old")
    made.archived(
        path,
        path.parent / "old",
        now_us=made.NOW_US + 100 * made.DAY_US,
        before_us=made.BEFORE_US + 60 * made.DAY_US,
    )
    without_log(path)
    return path


@pytest.fixture
def ledger(archived_once, tmp_path):
    return shutil.copyfile(archived_once, tmp_path / "ledger.sqlite3")


def found(path):
    with closing(connect_read_only(path)) as connection:
        results = audit(connection, checks=OURS)
    return {one.code: [str(said) for said in one.findings] for one in results if not one.holds}


def add(path, measure, grains=GRAINS_MIN):
    """What somebody does who adds one to a measure of the first day's sums, in these grains."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for grain_min in grains:
            sql = "SELECT bucket_us, sums FROM archived_rollup_packed WHERE grain_min = ?"
            bucket_us, sums = connection.execute(sql, (grain_min,)).fetchone()
            rows = packing.unpack((sums,)).copy()
            rows[0, 1 + COUNTS.index(measure)] += 1
            connection.execute(ARCHIVED.put_packed, (grain_min, bucket_us, packing.pack(rows)))


def test_a_ledger_with_archives_keeps_to_both_rules(ledger):
    assert found(ledger) == {}


def test_a_sum_that_is_wrong_by_one_request_is_found(ledger):
    """In every grain alike, and in the rollups too: only the archived requests' number tells."""
    add(ledger, "receipts")
    said = "archived_rollup_total (tenant acme): 22 requests are archived; the sums are of 23"
    assert found(ledger) == {SUMS: [said]}


@pytest.mark.parametrize("grain_min", GRAINS_MIN)
def test_a_sum_that_one_grain_alone_has_is_found(ledger, grain_min):
    add(ledger, "input_tokens", [grain_min])
    coarse = COARSE_MIN if grain_min == QUARTER else [grain_min]
    assert found(ledger) == {
        SUMS: [
            f"archived_rollup_total (1 series): sums by {grain} minutes are not those of the "
            "quarter hours"
            for grain in coarse
        ]
    }


FIRST = "= (SELECT min(request_id) FROM archived_request)"
LAST = "= (SELECT max(seq) FROM archived_row)"
DAMAGES = [
    (f"DELETE FROM archived_request WHERE request_id {FIRST}", [KEPT, SUMS]),
    (f"UPDATE archived_request SET tenant_id = 'beta' WHERE request_id {FIRST}", [SUMS]),
    (f"DELETE FROM archived_row WHERE seq {LAST}", [KEPT]),
    ("UPDATE archived_row SET archive_seq = archive_seq + 1", [KEPT]),
    ("DELETE FROM control_action WHERE action = 'ledger.archive'", [KEPT]),
    ("UPDATE control_action SET after_json = '{}' WHERE action = 'ledger.archive'", [KEPT, SUMS]),
    ("UPDATE archived_rollup_total SET receipts = receipts + 1", [SUMS]),
    ("UPDATE archived_rollup_total SET bucket_us = bucket_us + 900000000000", [SUMS]),
    ("UPDATE archived_rollup_packed SET sums = x'00'", [SUMS]),
    ("DELETE FROM archived_rollup_state", [SUMS]),
    ("DELETE FROM archived_rollup_series", [SUMS]),
    ("DROP TABLE archived_rollup_packed", [SUMS]),
    ("DROP TABLE archived_rollup_state", [SUMS]),
]


@pytest.mark.parametrize(("statement", "codes"), DAMAGES)
def test_what_is_kept_of_an_archive_and_was_altered_is_found(ledger, statement, codes):
    tamper(ledger, statement)
    assert list(found(ledger)) == codes
