"""A policy, a draft or a difference as tables of words: pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from gateway.fleet_file.differences import Difference, shown
from gateway.fleet_file.named import Fault, named
from gateway.fleet_file.toml_text import written
from gateway.pages.formatting import duration
from gateway.policy.prepared import DEFAULT_SHARES
from gateway.policy.values import PRIORITIES, LogicalModel, RoutePolicy

DIFFERENCES_LIMIT = 500
VALUE_LIMIT_CHARS = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    """A line of a comparison."""

    path: str
    kind: str
    before: str
    after: str


def changed(found: Sequence[Difference]) -> list[Changed]:
    """The differences as lines, at most DIFFERENCES_LIMIT."""
    return [
        Changed(
            path=each.path,
            kind=each.kind,
            before="" if each.kind == "added" else _cut(shown(each.before)),
            after="" if each.kind == "removed" else _cut(shown(each.after)),
        )
        for each in found[:DIFFERENCES_LIMIT]
    ]


def text_of(value: RoutePolicy | msgspec.Struct, *without: str) -> str:
    """The TOML of a policy or rate table, some of its fields left out, as a form takes it back."""
    tree: dict[str, Any] = dict(named(value))
    for name in without:
        tree.pop(name, None)
    return written(tree)


def fault_lines(faults: Sequence[Fault], tree: object) -> list[str]:
    return [fault.shown(tree) for fault in faults]


def arms(model: LogicalModel) -> list[tuple[str, str, str]]:
    """(arm, share in per cent, its routes) of a model's canary; none without one."""
    if model.canary is None:
        return []
    return [
        (each.arm, f"{each.share_permille / 10:g} %", ", ".join(each.route_ids))
        for each in model.canary.arms
    ]


def rules(policy: RoutePolicy) -> list[tuple[str, str]]:
    """(rule, what it says) of everything that is neither model, route nor edge."""
    attempts = policy.attempts
    retry, hedge, breaker, learning = (
        attempts.retry, attempts.hedge, attempts.breaker, policy.learning,
    )  # fmt: skip
    return [
        ("Order of candidates", ", then ".join(policy.ordering).replace("_", " ")),
        ("First decode, first byte", f"{duration(policy.first_decode_us)}, "
         f"{duration(policy.first_byte_network_us)} of every estimate"),
        ("Snapshots", f"a capacity fact for {duration(policy.snapshot_max_age_us)}; older, "
         f"{policy.probe_allowance} at a time"),
        ("Shares of queue, KV", "; ".join(_shares(policy))),
        ("Retry-After of a shed request", duration(policy.retry_after_ms * 1_000)),
        ("Attempts of one request", f"at most {attempts.limit}"),
        ("Retries", f"{_permille(retry.budget_permille)} of a minute's requests or "
         f"{retry.least_per_minute}; after {duration(retry.backoff_us)}, at most "
         f"{duration(retry.backoff_most_us)}"),
        ("Hedging", "none" if hedge is None else f"after {duration(hedge.delay_us)}, "
         f"{_permille(hedge.budget_permille)} of a minute's requests or {hedge.least_per_minute}"),
        ("Circuit breaker", "none" if breaker is None else f"opens at {breaker.failures} failures "
         f"that are {_permille(breaker.failed_permille)} within {duration(breaker.window_us)}, for "
         f"{duration(breaker.open_us)}; all unhealthy: {breaker.when_all_unhealthy}"
         .replace("_", " ")),
        ("Learned predictions", "none" if learning is None else f"the "
         f"{_permille(learning.quantile_permille)} quantile of {learning.window_requests:,} "
         f"requests, from {learning.least_requests} on, every {duration(learning.every_us)}"),
    ]  # fmt: skip


def _shares(policy: RoutePolicy) -> list[str]:
    in_force = {each.priority: each for each in (*DEFAULT_SHARES, *policy.queue_shares)}
    return [
        f"{name} {_permille(in_force[name].queue_permille)}, "
        f"{_permille(in_force[name].kv_permille)}"
        for name in PRIORITIES
        if name in in_force
    ]


def _permille(value: int) -> str:
    return f"{value / 10:g} %"


def _cut(text: str) -> str:
    return text if len(text) <= VALUE_LIMIT_CHARS else text[: VALUE_LIMIT_CHARS - 1] + "…"
