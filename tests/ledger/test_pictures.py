"""DIA-1: a window's picture says what its receipts and snapshots say, one by one."""

import math
import shutil
from collections import Counter
from fractions import Fraction

import msgspec
import pytest

from ledger.quantiles import nearest_rank
from ledger.queries import diagnosis as module
from ledger.queries.diagnosis import picture
from ledger.reading import connect_read_only
from ledger.slo import valid_completion
from tests.ledger.receipts import HOUR_US, T0_US
from tests.ledger.seeded import fill, seeded_receipts

RECEIPTS = [
    msgspec.structs.replace(one, revision=0, accepted_at_us=T0_US + number * 1_000)
    for number, one in enumerate(seeded_receipts(900))
    if one.revision == 0
]
END_US = T0_US + HOUR_US


@pytest.fixture(scope="module")
def connection(ledger_template, tmp_path_factory):
    path = tmp_path_factory.mktemp("pictures") / "ledger.sqlite3"
    shutil.copyfile(ledger_template, path)
    fill(path, RECEIPTS, batch=300)
    opened = connect_read_only(path)
    yield opened
    opened.close()


def rank(values, percent):
    ordered = sorted(value for value in values if value is not None)
    return nearest_rank(ordered, percent, 100) if ordered else None


def test_a_picture_counts_what_its_receipts_say(connection):
    accepted = [one for one in RECEIPTS if one.status != "rejected"]
    found = picture(connection, T0_US, END_US)
    assert found.requests == len(accepted)
    assert found.ttft_p99_us == rank((one.first_token_us for one in accepted), 99)
    assert found.queue_p99_us == rank((one.queue_us for one in accepted), 99)
    assert found.itl_p95_us == rank((one.itl_mean_us for one in accepted), 95)
    statuses = Counter(one.status for one in accepted)
    assert (found.failed, found.unknown) == (statuses["failed"], statuses["unknown"])
    valid = sum(valid_completion(one, degraded_is_valid=True) for one in accepted)
    spent = sum(one.cost_total_pico for one in accepted)
    assert found.cost_per_valid_pico == spent // valid
    judged = [one for one in accepted if one.degraded_from is None and one.schema_valid is not None]
    assert found.main_schema == (sum(one.schema_valid == 0 for one in judged), len(judged))
    for name, (count, wait_us) in found.tenants.items():
        mine = [one for one in accepted if one.tenant_id == name]
        assert (count, wait_us) == (len(mine), rank((one.queue_us for one in mine), 95) or 0)
    assert math.isclose(sum(found.identities.values()), 1.0)
    tokens = sum(one.output_tokens for one in accepted)
    assert found.tokens_per_second is not None
    assert math.isclose(found.tokens_per_second, Fraction(tokens, HOUR_US // 1_000_000))


def test_of_more_requests_than_are_read_the_picture_is_of_the_newest_and_their_time(
    connection, monkeypatch
):
    monkeypatch.setattr(module, "RECEIPTS_LIMIT", 100)
    newest = sorted(
        (one for one in RECEIPTS if one.status != "rejected"), key=lambda one: -one.accepted_at_us
    )[:100]
    found = picture(connection, T0_US, END_US)
    assert (found.requests, found.start_us) == (100, newest[-1].accepted_at_us)
    seconds = (END_US - found.start_us) / 1e6
    assert found.tokens_per_second is not None
    assert math.isclose(found.tokens_per_second, sum(o.output_tokens for o in newest) / seconds)


def test_a_window_without_requests_has_a_picture_of_nothing(connection):
    found = picture(connection, END_US, END_US + HOUR_US)
    assert (found.requests, found.ttft_p99_us, found.tokens_per_second) == (0, None, None)
    assert (found.cost_per_valid_pico, found.tenants, found.kv_free_share) == (None, {}, None)
