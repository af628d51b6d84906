"""Why rules for further attempts can't be published: numbers out of range, rules that never act."""

from collections.abc import Iterator
from typing import Final

from gateway.policy.problems import Problem
from gateway.policy.values import RoutePolicy

PERMILLE: Final = 1000
ATTEMPTS_MOST: Final = 8
"""Of one request: what needs more is an outage, and no retry ends it."""


def attempts(policy: RoutePolicy) -> Iterator[Problem]:
    """Rules for retries, hedges and breakers that are out of range or can never act (SPEC 6)."""
    rules = policy.attempts
    retry, hedge, breaker = rules.retry, rules.hedge, rules.breaker
    ranges = [
        ("limit", rules.limit, 1, ATTEMPTS_MOST),
        ("retry.budget_permille", retry.budget_permille, 0, PERMILLE),
        ("retry.least_per_minute", retry.least_per_minute, 0, None),
        ("retry.backoff_us", retry.backoff_us, 0, retry.backoff_most_us),
    ]
    if hedge is not None:
        ranges += [
            ("hedge.delay_us", hedge.delay_us, 1, None),
            ("hedge.budget_permille", hedge.budget_permille, 0, PERMILLE),
            ("hedge.least_per_minute", hedge.least_per_minute, 0, None),
        ]
    if breaker is not None:
        ranges += [
            ("breaker.failures", breaker.failures, 1, None),
            ("breaker.failed_permille", breaker.failed_permille, 1, PERMILLE),
            ("breaker.window_us", breaker.window_us, 1, None),
            ("breaker.open_us", breaker.open_us, 1, None),
        ]
    for name, value, least, most in ranges:
        if value < least or (most is not None and value > most):
            to = "or more" if most is None else f"to {most}"
            yield Problem(
                code="OUT_OF_RANGE",
                where=f"attempts {name}",
                what=f"it is {value}",
                action=f"Set it to {least} {to}",
            )
    if hedge is not None:
        yield from _hedges(policy)


def _hedges(policy: RoutePolicy) -> Iterator[Problem]:
    if policy.attempts.limit < 2:
        yield Problem(
            code="HEDGE_NEVER_STARTS",
            where="attempts hedge",
            what="with a limit of one attempt no second one ever starts",
            action="Raise attempts limit to 2, or drop the hedge",
        )
    if policy.models and all(len(set(model.primary_routes)) < 2 for model in policy.models):
        yield Problem(
            code="HEDGE_WITHOUT_SECOND_ROUTE",
            where="attempts hedge",
            what="no model has a second primary route for it",
            action="Give a model another primary route, or drop the hedge",
        )
