"""A desk over the course's two routes and prices, and what it weighs."""

from typing import Any

from gateway.book import Book
from gateway.configuration import Configuration
from gateway.desk import Desk, Weighed
from gateway.quota import Quota
from tests.policy_factories import COURSE_RATES, NOW_US, course_policy, request, snapshot

TENANT = "tenant-a"


def configuration(**changed) -> Configuration:
    policy = changed.pop("policy", None) or course_policy()
    fields: dict[str, Any] = {
        "policy": policy,
        "routes": {route.route_id: route for route in policy.routes},
        "models": {model.name: model for model in policy.models},
        "identities": {},
        "rate_tables": (COURSE_RATES,),
        "evaluations": (),
        "evaluations_seq": 0,
        "tokenizer_revisions": ("tok-1",),
    }
    return Configuration(**fields | changed)


def desk(*, quota: Quota | None = None, free_kv_tokens: int = 24_000, **changed) -> Desk:
    """Both routes idle, and a tenant with four slots unless told otherwise."""
    book, made = Book(), configuration(**changed)
    tenants_quota = quota or Quota(in_flight_limit=4)
    book.set_quota(TENANT, tenants_quota, now_us=NOW_US, spent_pico=0)
    for route_id in made.routes:
        book.open_route(route_id)
        book.observe(snapshot(route_id, free_kv_tokens=free_kv_tokens))
    return Desk(made, book)


def weigh(at: Desk, number: int = 1, *, now_us: int = NOW_US, **changed) -> Weighed:
    return at.weigh(request(request_id=f"req_{number}", **changed), now_us)
