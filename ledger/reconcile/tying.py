"""Whether a comparison adds up: checked every time, before anything is said (REC-2). Pure."""

from collections import Counter
from collections.abc import Sequence

from ledger.errors import LedgerError
from ledger.money import units_text
from ledger.reconcile.matching import line_name
from ledger.reconcile.values import CLASSES, Comparison, Ours, Theirs


class DoesNotTieOut(LedgerError):
    """A comparison contradicts itself: a fault of this program. Nothing is reported of it."""


def tied_out(comparison: Comparison, ours: Sequence[Ours], theirs: Sequence[Theirs]) -> Comparison:
    """The comparison itself. DoesNotTieOut where, to the pico unit, ours + differences = theirs

    does not hold, over rows or over units, or where an attempt or line has not exactly one class.
    """
    apart = comparison.apart
    outside = apart.simulated + apart.rejected + apart.other_providers
    members = Counter((row.side, row.member) for row in comparison.rows)
    lines = Counter(line_name(line) for line in theirs)
    attempts = Counter(one.attempt_id for one in ours)
    filed = Counter(row.side for row in comparison.rows)
    twice = next((name for name, times in members.items() if times > 1), None)
    if twice is not None:
        raise DoesNotTieOut(f"{twice[1]} is in more than one class")
    if filed["theirs"] != len(theirs) or any(("theirs", name) not in members for name in lines):
        raise DoesNotTieOut(f"{len(theirs)} lines, of which {filed['theirs']} have a class")
    if filed["ours"] + outside != len(ours) or len(attempts) != len(ours):
        raise DoesNotTieOut(
            f"{len(ours)} attempts, of which {filed['ours']} have a class and {outside} are apart"
        )
    if any(row.class_name not in CLASSES for row in comparison.rows):
        raise DoesNotTieOut("a row has a class that there is not")
    _sums(comparison, theirs)
    return comparison


def _sums(comparison: Comparison, theirs: Sequence[Theirs]) -> None:
    said = sum(line.pico for line in theirs)
    differences = sum(unit.difference_pico for unit in comparison.units)
    by_rows = sum(row.pico if row.side == "theirs" else -row.pico for row in comparison.rows)
    if comparison.theirs_pico != said:
        raise DoesNotTieOut(
            f"theirs is {units_text(comparison.theirs_pico)}, its lines are {units_text(said)}"
        )
    if comparison.ours_pico + differences != said or differences != by_rows:
        raise DoesNotTieOut(
            f"ours {units_text(comparison.ours_pico)} + differences {units_text(differences)} "
            f"is not theirs {units_text(said)}"
        )
