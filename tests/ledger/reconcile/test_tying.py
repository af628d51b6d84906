"""REC-2: each way in which a comparison can contradict itself is refused by its own message."""

from dataclasses import replace

import pytest
from msgspec import structs

from ledger.reconcile.matching import compare
from ledger.reconcile.tying import DoesNotTieOut, tied_out
from ledger.reconcile.values import Coverage
from tests.ledger.reconcile.parts import PLAN, both_meters, ours, theirs

APART = [
    ours(2, simulated=True),
    ours(3, outcome="rejected", cost_pico=0),
    ours(4, route_id="another"),
]
ATTEMPTS = [ours(1), *APART]
LINES = [*both_meters(1)]
GOOD = compare(PLAN, ATTEMPTS, LINES, Coverage())


def test_what_adds_up_is_returned_as_it_is():
    assert tied_out(GOOD, ATTEMPTS, LINES) is GOOD


@pytest.mark.parametrize("kind", ["simulated", "rejected", "other_providers"])
@pytest.mark.parametrize("by", [1, -1])
def test_an_attempt_apart_that_is_counted_wrongly_is_refused(kind: str, by: int):
    apart = replace(GOOD.apart, **{kind: getattr(GOOD.apart, kind) + by})
    with pytest.raises(DoesNotTieOut, match="4 attempts, of which 1 have a class"):
        tied_out(replace(GOOD, apart=apart), ATTEMPTS, LINES)


def test_one_attempt_given_twice_is_refused_although_the_count_is_right():
    with pytest.raises(DoesNotTieOut, match="4 attempts"):
        tied_out(GOOD, [ATTEMPTS[0], ATTEMPTS[0], *APART[1:]], LINES)


def test_another_line_than_was_given_is_refused_although_count_and_sum_are_right():
    with pytest.raises(DoesNotTieOut, match="2 lines, of which 2 have a class"):
        tied_out(GOOD, ATTEMPTS, [theirs(9), LINES[1]])


def test_a_row_of_a_class_that_there_is_not_is_refused():
    rows = (structs.replace(GOOD.rows[0], class_name="odd"), *GOOD.rows[1:])
    with pytest.raises(DoesNotTieOut, match="a class that there is not"):
        tied_out(replace(GOOD, rows=rows), ATTEMPTS, LINES)


@pytest.mark.parametrize("by", [1, -1])
def test_a_row_that_is_a_pico_unit_off_is_refused_on_either_side(by: int):
    for at, row in enumerate(GOOD.rows):
        rows = (*GOOD.rows[:at], structs.replace(row, pico=row.pico + by), *GOOD.rows[at + 1 :])
        with pytest.raises(DoesNotTieOut, match="is not theirs"):
            tied_out(replace(GOOD, rows=rows), ATTEMPTS, LINES)


@pytest.mark.parametrize("by", [1, -1])
def test_a_unit_that_is_a_pico_unit_off_is_refused(by: int):
    unit = structs.replace(GOOD.units[0], theirs_pico=GOOD.units[0].theirs_pico + by)
    with pytest.raises(DoesNotTieOut, match="is not theirs"):
        tied_out(replace(GOOD, units=(unit, *GOOD.units[1:])), ATTEMPTS, LINES)
