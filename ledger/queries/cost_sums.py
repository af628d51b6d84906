"""What a set of receipts cost, in all and each useful thing of it, exactly (CST-1, CST-3). Pure."""

from collections.abc import Sequence
from fractions import Fraction
from typing import Literal

import msgspec
import numpy as np
import numpy.typing as npt

from ledger.money import LIMB
from ledger.rollups import packing
from ledger.rollups.tables import COSTS, COUNTS

UnitCost = Literal[
    "completed_request",
    "quality_passed",
    "verified_citations",
    "completed_task",
    "degraded_success",
]
WASTE_STATUSES = ("cancelled", "unknown", "failed")


class CostSums(msgspec.Struct, frozen=True, kw_only=True):
    """Sums over receipts. Costs are exact Python integers in pico units, of any size."""

    receipts: int = 0
    completed: int = 0
    rejected: int = 0
    cancelled: int = 0
    failed: int = 0
    unknown: int = 0
    degraded: int = 0
    degraded_completed: int = 0
    judged: int = 0  # the denominator of valid completion (SLO-0)
    valid: int = 0
    input_tokens: int = 0
    cached_input_tokens: int = 0
    output_tokens: int = 0
    attempts: int = 0
    unpriced: int = 0  # ran without a rate: they are in no cost, though they are in the counts
    outcomes: int = 0  # requests with an outcome report
    quality_passed: int = 0
    citations_verified: int = 0
    tasks_completed: int = 0  # each task once, however many requests served it
    taken_over: int = 0
    cost_input_pico: int = 0
    cost_cached_input_pico: int = 0
    cost_output_pico: int = 0
    cost_fixed_pico: int = 0
    cost_other_pico: int = 0
    cost_retry_and_hedge_pico: int = 0  # waste too, of whatever request it is
    cost_total_pico: int = 0
    waste_cancelled_pico: int = 0  # without its retries and hedges, as are the next three
    waste_unknown_pico: int = 0
    waste_failed_pico: int = 0
    waste_schema_invalid_pico: int = 0  # completed, under no schema that was asked for

    @property
    def cost_waste_pico(self) -> int:
        """All that bought nothing: the five lines of `waste`, which share no pico unit."""
        return sum(self.waste.values())

    @property
    def waste(self) -> dict[str, int]:
        """Waste line by line, in pico units."""
        return {
            "retries and hedges": self.cost_retry_and_hedge_pico,
            "cancelled": self.waste_cancelled_pico,
            "unknown": self.waste_unknown_pico,
            "failed": self.waste_failed_pico,
            "schema-invalid": self.waste_schema_invalid_pico,
        }

    @property
    def cost_per_completed_pico(self) -> int | None:
        """All cost over completed requests, rounded half to even once; None without any."""
        return unit_cost_pico(self.cost_total_pico, self.completed)

    @property
    def denominators(self) -> dict[UnitCost, int]:
        """How many of each useful thing the whole cost bought."""
        return {
            "completed_request": self.completed,
            "quality_passed": self.quality_passed,
            "verified_citations": self.citations_verified,
            "completed_task": self.tasks_completed,
            "degraded_success": self.degraded_completed,
        }

    @property
    def unit_costs(self) -> dict[UnitCost, int | None]:
        """All cost over each denominator, in pico units, rounded half to even once; None of 0."""
        return {
            name: unit_cost_pico(self.cost_total_pico, count)
            for name, count in self.denominators.items()
        }

    def plus(self, other: "CostSums") -> "CostSums":
        added = {name: getattr(self, name) + getattr(other, name) for name in _SUM_NAMES}
        return CostSums(**added)


_SUM_NAMES = CostSums.__struct_fields__
_STATUSES = ("completed", "rejected", "cancelled", "failed", "unknown")
TRAITS = len(_STATUSES) + 3
_WASTES = len(WASTE_STATUSES) + 1
_RETRY_LIMBS, _TOTAL_LIMBS = slice(-4, -2), slice(-2, None)
# In what `measured` returns: the limbs of the total stand before those of the wastes.
TOTAL_LIMBS = slice(-2 - 2 * _WASTES, -2 * _WASTES)


def traits_of(status: str, degraded: str, schema_valid: str) -> list[bool]:
    """What a series' sums count as: each status, degraded, degraded success, schema-invalid."""
    completed = status == "completed"
    return [
        *(status == one for one in _STATUSES),
        degraded == "1",
        degraded == "1" and completed,
        completed and schema_valid == "0",
    ]


def measured(measures: packing.Matrix, traits: npt.NDArray[np.bool_]) -> packing.Matrix:
    """Rows that can be added up and that `sums_of` takes.

    `measures`: int64[n, len(tables.MEASURES)]; `traits`: bool[n, TRAITS], each row of `traits_of`.
    """
    own = measures[:, _TOTAL_LIMBS] - measures[:, _RETRY_LIMBS]  # low limbs may be negative
    wasted = [traits[:, [_STATUSES.index(status)]] for status in WASTE_STATUSES] + [traits[:, -1:]]
    return np.hstack(
        (
            measures[:, :1],
            measures[:, :1] * traits[:, :-1],
            measures[:, 1:],
            *(own * one for one in wasted),
        )
    )


def sums_of(values: Sequence[int]) -> CostSums:
    """The sums of a row, or of a sum of rows, that `measured` made."""
    counts = len(COUNTS) + TRAITS - 1
    limbs = values[counts:]
    # As `money.join`, written out: a table has thousands of these.
    money = [high * LIMB + low for high, low in zip(limbs[::2], limbs[1::2], strict=True)]
    if len(money) != len(COSTS) + _WASTES:
        raise ValueError(f"{len(values)} values are no row of sums")
    return CostSums(**dict(zip(_SUM_NAMES, (*values[:counts], *money), strict=True)))


def unit_cost_pico(cost_pico: int, count: int) -> int | None:
    """The cost of one of `count`, rounded half to even once; None where there is none."""
    return round(Fraction(cost_pico, count)) if count else None
