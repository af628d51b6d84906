"""Many completed requests counted under an objective at once, as `slo.judge` counts each. Pure.

They share every dimension (`rollups.tables.DIMENSIONS`), so that what is left to ask of each is
a number. The other states are rare, and judged one by one.
"""

from collections.abc import Callable, Sequence
from operator import le
from typing import NamedTuple

from ledger.slo import Indicator, SloDefinition

Tally = tuple[int, int]  # good, valid
Measured = Sequence[int | None]


class Completed(NamedTuple):
    """Completed requests of equal dimensions, column by column: field i of each is request i's."""

    output_tokens: Sequence[int]
    first_token_us: Measured
    itl_mean_us: Measured
    queue_us: Measured
    e2e_us: Sequence[int]
    deadline_us: Sequence[int]
    cancel_ack_us: Measured
    cost_total_pico: Sequence[int]
    degraded: bool
    schema_valid: int | None

    def valid(self, *, degraded_is_valid: bool = False) -> Sequence[bool]:
        """Of each, `slo.valid_completion`."""
        if self.schema_valid == 0 or (self.degraded and not degraded_is_valid):
            return (False,) * len(self.e2e_us)
        return tuple(map(le, self.e2e_us, self.deadline_us))


def tally_for(definition: SloDefinition) -> "Callable[[SloDefinition, Completed], Tally] | None":
    """How completed requests count under this objective; None where each has to be judged."""
    return None if definition.selector.by_tokens else _TALLIES[definition.indicator]


def _within(definition: SloDefinition, values_us: Measured) -> Tally:
    limit_us = definition.threshold_us
    if limit_us is None:
        return 0, len(values_us)
    good = [value_us for value_us in values_us if value_us is not None and value_us <= limit_us]
    return len(good), len(values_us)


def _ttft(definition: SloDefinition, of: Completed) -> Tally:
    return _within(definition, of.first_token_us)


def _queue(definition: SloDefinition, of: Completed) -> Tally:
    return _within(definition, of.queue_us)


def _e2e(definition: SloDefinition, of: Completed) -> Tally:
    return _within(definition, of.e2e_us)


def _itl(definition: SloDefinition, of: Completed) -> Tally:
    if min(of.output_tokens) >= 2:
        return _within(definition, of.itl_mean_us)
    several = zip(of.itl_mean_us, of.first_token_us, of.output_tokens, strict=True)
    return _within(
        definition, [itl for itl, first, tokens in several if first is None or tokens >= 2]
    )


def _valid_completion(definition: SloDefinition, of: Completed) -> Tally:
    return sum(of.valid(degraded_is_valid=definition.degraded_is_valid)), len(of.e2e_us)


def _capacity(_: SloDefinition, of: Completed) -> Tally:
    return len(of.e2e_us), len(of.e2e_us)


def _main_path(_: SloDefinition, of: Completed) -> Tally:
    return (0 if of.degraded else len(of.e2e_us)), len(of.e2e_us)


def _cancel_ack(definition: SloDefinition, of: Completed) -> Tally:
    return _within(definition, [one for one in of.cancel_ack_us if one is not None])


def _cost(definition: SloDefinition, of: Completed) -> Tally:
    limit_pico = definition.threshold_pico
    if limit_pico is None:
        return 0, 0
    valid = of.valid(degraded_is_valid=definition.degraded_is_valid)
    counted = [
        ok and pico <= limit_pico
        for pico, ok in zip(of.cost_total_pico, valid, strict=True)
        if pico
    ]
    return sum(counted), len(counted)


_TALLIES: dict[Indicator, Callable[[SloDefinition, Completed], Tally]] = {
    "ttft": _ttft,
    "queue": _queue,
    "itl": _itl,
    "e2e": _e2e,
    "valid_completion": _valid_completion,
    "capacity": _capacity,
    "main_path": _main_path,
    "cancel_ack": _cancel_ack,
    "cost": _cost,
}
