"""Which revision of which objective counts when: the shipped ones and the declared. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from ledger.slo import SloDefinition
from ledger.slo_defaults import DEFAULT_SLOS

OBJECTIVES_LIMIT = 64  # in force at once
REVISIONS_LIMIT = 512  # ever declared: each is counted for its own time


def timeline(
    declared: Iterable[SloDefinition], shipped: Sequence[SloDefinition] = DEFAULT_SLOS
) -> tuple[SloDefinition, ...]:
    """Every revision with the time until which it counts, by objective in the order they came.

    A request is counted under the one revision that was in force when it was accepted, so counts
    made again equal those that were kept.
    """
    by_id: dict[str, list[SloDefinition]] = {one.slo_id: [one] for one in shipped}
    for one in declared:
        by_id.setdefault(one.slo_id, []).append(one)
    found = []
    for revisions in by_id.values():
        ordered = sorted(revisions, key=lambda one: one.revision)
        for one, following in zip(ordered, [*ordered[1:], None], strict=True):
            until_us = None if following is None else following.counted_from_us
            if one.retired:
                until_us = one.counted_from_us  # nothing counts under it
            found.append(replace(one, counted_until_us=until_us))
    return tuple(found)


def in_force(revisions: Iterable[SloDefinition]) -> tuple[SloDefinition, ...]:
    """The newest revision of each objective that is not retired, of a timeline."""
    newest: dict[str, SloDefinition] = {}
    for one in revisions:
        known = newest.get(one.slo_id)
        if known is None or known.revision < one.revision:
            newest[one.slo_id] = one
    return tuple(one for one in newest.values() if not one.retired)
