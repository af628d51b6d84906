"""Evaluation results from a file: all of them, or none with what is wrong with each."""

import json

import pytest

from ledger.evaluation_import import parse

ROW = {
    "evaluation_id": "core/1", "suite": "core-chat-v3", "identity_id": "model-a",
    "score_milli": 912, "passed": True, "measured_at": "2026-11-01T12:00:00Z", "evidence": "runs/1",
}  # fmt: skip


def test_a_row_is_read_with_its_time_in_microseconds():
    (found,) = parse(json.dumps([ROW]).encode()).results
    assert (found.measured_at_us, found.passed) == (1_793_534_400_000_000, 1)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"measured_at": "2026-11-01T12:00:00"}, "needs its zone"),
        ({"measured_at": "0001-01-01T12:00:00+14:00"}, "lies between 1971 and 9999"),
        ({"measured_at": "9999-12-31T23:00:00-14:00"}, "lies between 1971 and 9999"),
        ({"measured_at": "yesterday"}, "measured_at"),
        ({"score_milli": -1}, "score_milli is 0 to"),
        ({"evidence": " "}, "evidence has 1 to"),
    ],
)
def test_what_can_not_be_kept_is_said_and_nothing_is_read(change, says):
    parsed = parse(json.dumps([ROW, {**ROW, "evaluation_id": "core/2", **change}]).encode())
    assert parsed.results == ()
    assert says in parsed.problems[0]


def test_one_evaluation_twice_is_refused():
    assert "in the file twice" in parse(json.dumps([ROW, ROW]).encode()).problems[0]
