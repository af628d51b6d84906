"""A route as its page shows it: what it takes, how full it is, and why it stands as it does. Pure.

Where a server runs in this process the state is its own; elsewhere it is what the ledger last said.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

import msgspec

from gateway.live import Live, LiveRoute
from gateway.policy.values import CapacitySnapshot, Route, RoutePolicy
from gateway.providers.base import Capabilities
from gateway.providers.capabilities import OF_KIND, capabilities_of
from ledger.records import CapacitySnapshotRecord, ControlAction

WORDS = {
    "takes": ("ok", "takes requests"),
    "stale": ("watch", "probes only"),
    "unseen": ("no_data", "not known here"),
    "silent": ("no_data", "no snapshot yet"),
    "half_open": ("watch", "trying one request"),
    "open": ("alert", "breaker open"),
    "drained": ("watch", "drained"),
    "disabled": ("no_data", "switched off"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """What a backend last said of its room, and how old that is. Tokens, requests, µs."""

    age_us: int
    stale: bool
    waiting: int
    running: int
    kv_used: int
    kv_total: int
    output_per_second: int
    queue_p95_us: int
    oldest_wait_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One route: its state with since when and why, its room, and what is in flight on it."""

    route: Route
    models: tuple[str, ...]  # of which it is a primary route
    state: str  # a key of WORDS; unseen: what would tell is in another process
    chip: str
    words: str
    since_us: int | None
    why: str
    by: str
    request_id: str  # the one that moved its breaker, else ""
    until_us: int | None  # when a probe may go, or a cooldown ends
    room: Room | None
    live: LiveRoute | None

    @property
    def drained(self) -> bool:
        return self.state == "drained"

    @property
    def in_traffic(self) -> bool:
        """Whether nobody and nothing has taken it out."""
        return self.state not in ("open", "half_open", "drained", "disabled")


def lines(
    policy: RoutePolicy,
    now_us: int,
    *,
    live: Live | None,
    kept: Mapping[str, CapacitySnapshotRecord],
    drains: Mapping[str, ControlAction],
    breakers: Mapping[str, ControlAction],
) -> tuple[Line, ...]:
    """Every route of the policy, in its order. `drains`, `breakers`: the last action on each."""
    made = []
    for route in policy.routes:
        seen = live.routes.get(route.route_id) if live else None
        room = room_of(policy, now_us, seen, kept.get(route.route_id))
        drain, breaker = drains.get(route.route_id), breakers.get(route.route_id)
        state = _state(route, seen, room, drain, breaker)
        cause = drain if state == "drained" else breaker if state in ("open", "half_open") else None
        chip, words = WORDS[state]
        made.append(
            Line(
                route=route,
                models=tuple(
                    each.name for each in policy.models if route.route_id in each.primary_routes
                ),
                state=state,
                chip=chip,
                words=words,
                since_us=cause.acted_at_us if cause else None,
                why=_why(cause, breaker),
                by=cause.actor if cause else "",
                request_id=cause.evidence.rpartition(".")[0] if cause is breaker and cause else "",
                until_us=_until(state, seen, breaker),
                room=room,
                live=seen,
            )
        )
    return tuple(made)


def _why(cause: ControlAction | None, breaker: ControlAction | None) -> str:
    """What a person wrote, as it is; a breaker's code in words."""
    if cause is None:
        return ""
    return cause.reason.replace("_", " ") if cause is breaker else cause.reason


def room_of(
    policy: RoutePolicy, now_us: int, seen: LiveRoute | None, kept: CapacitySnapshotRecord | None
) -> Room | None:
    """The newer of the live snapshot and the kept one, with its age; None where there is none."""
    known: list[CapacitySnapshot | CapacitySnapshotRecord] = []
    if seen is not None and seen.snapshot is not None:
        known.append(seen.snapshot)
    if kept is not None:
        known.append(kept)
    if not known:
        return None
    said = max(known, key=lambda each: each.observed_at_us)
    age_us = max(0, now_us - said.observed_at_us)
    return Room(
        age_us=age_us,
        stale=age_us > policy.snapshot_max_age_us,
        waiting=said.waiting_requests,
        running=said.running_requests,
        kv_used=said.reserved_kv_tokens,
        kv_total=said.reserved_kv_tokens + said.free_kv_tokens,
        output_per_second=said.recent_output_tokens_per_second,
        queue_p95_us=said.queue_p95_us,
        oldest_wait_us=said.oldest_wait_us,
    )


def _state(
    route: Route,
    seen: LiveRoute | None,
    room: Room | None,
    drain: ControlAction | None,
    breaker: ControlAction | None,
) -> str:
    if not route.enabled:
        return "disabled"
    if drain is not None and drain.action == "drain_route":
        return "drained"
    state = seen.breaker.state if seen else _recorded(breaker).get("state", "closed")
    if state in ("open", "half_open"):
        return str(state)
    if room is None:
        return "silent"
    if room.stale:
        return "stale" if seen else "unseen"
    return "takes"


def _until(state: str, seen: LiveRoute | None, breaker: ControlAction | None) -> int | None:
    if state == "open":
        until = seen.breaker.until_us if seen else _recorded(breaker).get("until_us")
        return until if isinstance(until, int) else None
    return seen.cooldown_until_us if seen else None


def _recorded(breaker: ControlAction | None) -> dict[str, object]:
    """A breaker as its last change left it."""
    if breaker is None:
        return {}
    return msgspec.json.decode(breaker.after_json, type=dict[str, object])


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """What can be relied on behind some routes: a column of the matrix (PRV-4)."""

    kind: str
    routes: tuple[str, ...]  # none: what the adapter can do where a route asks for no more
    can: Capabilities


_SHOWN = (
    ("tokenizer", "Tokens counted by"),
    ("sampling", "Sampling parameters"),
    ("stop", "Stop sequences"),
    ("tools", "Tools"),
    ("json_schema", "JSON schema"),
    ("logprobs", "Log probabilities"),
    ("cancellation", "Cancelling"),
    ("usage_timing", "Usage comes"),
    ("usage_missing", "Where usage is missing"),
    ("status_enquiry", "Can be asked later about"),
    ("snapshots", "Capacity snapshots"),
    ("error_classes", "How errors end an attempt"),
)


def kinds(routes: Sequence[Route]) -> tuple[Kind, ...]:
    """Routes that can do the same in one column; an adapter without a route has its own.

    A route whose address can't be read is shown with what its adapter can do at least.
    """
    found: dict[tuple[str, Capabilities], list[str]] = {}
    for route in routes:
        try:
            can = capabilities_of(route)
        except ValueError:
            can = OF_KIND[route.provider_kind]
        found.setdefault((route.provider_kind, can), []).append(route.route_id)
    used = {kind for kind, _ in found}
    columns = [
        Kind(kind=kind, routes=tuple(names), can=can) for (kind, can), names in found.items()
    ]
    spare = [Kind(kind=kind, routes=(), can=can) for kind, can in OF_KIND.items()]
    return (*columns, *(each for each in spare if each.kind not in used))


def matrix(columns: Sequence[Kind]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """(what, one text a column), a row for each capability; nothing is left out."""
    names = {each.name for each in fields(Capabilities)} - {"kind"}
    shown = [(name, title) for name, title in _SHOWN if name in names]
    shown += [(name, name.replace("_", " ")) for name in sorted(names - dict(shown).keys())]
    return tuple(
        (title, tuple(_words(getattr(column.can, name)) for column in columns))
        for name, title in shown
    )


def _by_end(classes: Sequence[tuple[str, str]]) -> str:
    """Kinds of errors by how each ends an attempt: "failed: garbage; unknown: silent"."""
    ends = dict.fromkeys(end for _, end in classes)
    return "; ".join(
        f"{end}: {', '.join(kind for kind, each in classes if each == end)}" for end in ends
    )


def _words(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        text = _by_end(value) if value and isinstance(value[0], tuple) else ", ".join(value)
        return text.replace("_", " ") or "none"
    return str(value).replace("_", " ")
