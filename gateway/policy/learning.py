"""Predictions learned from receipts: conservative quantiles by route and bucket (ADM-5). Pure.

What is learned replaces a route's declared prefill and pace between tokens where enough receipts
say so. It moves estimates alone: no cap, quota, budget or deadline is ever read from it.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Final

import msgspec

from gateway.policy.values import LearningRule, PredictionBucket, Route, RoutePolicy
from ledger.quantiles import nearest_rank

BUCKETS_TOKENS: Final = (0, 256, 1_024, 4_096, 16_384, 65_536, 262_144)
"""A bucket holds input tokens above one of these and up to the next."""
PERMILLE: Final = 1_000


class Observed(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One completed request on a route: its place in the chain, its size, how long it took."""

    seq: int
    input_tokens: int
    prefill_us: int
    inter_token_us: int | None  # None: it had a single token


class Learned(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a route's speed, for the model identity that it was learned of."""

    route_id: str
    revision: str
    identity_id: str
    buckets: tuple[PredictionBucket, ...]


def learn(observed: Sequence[Observed], rule: LearningRule) -> tuple[PredictionBucket, ...]:
    """Return the buckets of which there are enough receipts, by rising tokens.

    Of each bucket the last `window_requests` in the chain's order count; both times are their
    nearest-rank quantile of `quantile_permille`. Equal receipts teach the same, in any order.
    """
    learned = []
    for over, upto in pairwise(BUCKETS_TOKENS):
        inside = [each for each in observed if over < each.input_tokens <= upto]
        newest = sorted(inside, key=lambda each: each.seq)[-rule.window_requests :]
        paces_us = [each.inter_token_us for each in newest if each.inter_token_us is not None]
        if min(len(newest), len(paces_us)) < rule.least_requests:
            continue
        learned.append(
            PredictionBucket(
                over_tokens=over,
                upto_tokens=upto,
                prefill_us=_quantile([each.prefill_us for each in newest], rule),
                inter_token_us=_quantile(paces_us, rule),
                requests=len(newest),
            )
        )
    return tuple(learned)


def _quantile(values_us: list[int], rule: LearningRule) -> int:
    return nearest_rank(sorted(values_us), rule.quantile_permille, PERMILLE)


def differs(
    old: Sequence[PredictionBucket], new: Sequence[PredictionBucket], rule: LearningRule
) -> bool:
    """Return whether new buckets are worth a revision: others, or one moved by the threshold."""
    if [each.over_tokens for each in old] != [each.over_tokens for each in new]:
        return True
    return any(
        abs(there - here) * PERMILLE > rule.change_permille * here
        for was, now in zip(old, new, strict=True)
        for here, there in (
            (was.prefill_us, now.prefill_us),
            (was.inter_token_us, now.inter_token_us),
        )
    )


def with_learned(policy: RoutePolicy, learned: Mapping[str, Learned]) -> tuple[Route, ...]:
    """Return the policy's routes with what was learned of them; its own where learning is off.

    Nothing is taken over from another model identity that stood behind a route before.
    """
    if policy.learning is None or not learned:
        return policy.routes
    return tuple([_taught(route, learned.get(route.route_id)) for route in policy.routes])


def _taught(route: Route, learned: Learned | None) -> Route:
    if learned is None or learned.identity_id != route.identity_id or not learned.buckets:
        return route
    prediction = msgspec.structs.replace(
        route.prediction, revision=learned.revision, buckets=learned.buckets
    )
    return msgspec.structs.replace(route, prediction=prediction)


def newest(every: Iterable[Learned]) -> dict[str, Learned]:
    """Return each route's last one, of revisions in the chain's order."""
    return {each.route_id: each for each in every}
