"""A route's simulated backend: what its address says, and how its replicas add up (PRV-1).

An address reads `sim:PROFILE?replicas=2&kv_blocks=4000`: a profile of the simulator, how many
replicas stand behind the route, and, where it is not the profile's own, each one's KV pool.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from urllib.parse import parse_qsl

from gateway.policy.values import CapacitySnapshot, Route
from gateway.providers.simulated_queue import Front
from simulator.profiles import Profile, profile
from simulator.scheduler import ReplicaConfig, Snapshot
from simulator.timing import PS_PER_US, TimeModel

REPLICAS_LIMIT = 64
NOBODY = Front(requests=0, input_tokens=0, oldest_wait_ps=0)
PRIORITY_RANK = {"interactive": 0, "normal": 1, "batch": 2}


class BadAddress(ValueError):
    """A simulator address that can't be used; the message says what is wrong with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedBackend:
    """What stands behind a simulated route."""

    profile: Profile
    replicas: int
    config: ReplicaConfig

    @property
    def model(self) -> TimeModel:
        return self.profile.time


def backend_of(route: Route) -> SimulatedBackend:
    """Return what a route's address names. Raises BadAddress or simulator's UnknownProfile."""
    kind, _, rest = route.address.partition(":")
    name, _, query = rest.partition("?")
    if kind != "sim" or not name:
        raise BadAddress(f"{route.route_id}: {route.address!r} is not `sim:PROFILE?replicas=N`")
    chosen = profile(name)
    settings = {"replicas": 1, "kv_blocks": chosen.replica.kv_blocks}
    for key, text in parse_qsl(query, keep_blank_values=True):
        if key not in settings or not text.isdecimal() or int(text) < 1:
            raise BadAddress(f"{route.route_id}: {key}={text} is no setting above 0 of a simulator")
        settings[key] = int(text)
    if settings["replicas"] > REPLICAS_LIMIT:
        raise BadAddress(f"{route.route_id}: at most {REPLICAS_LIMIT} replicas can be simulated")
    config = replace(chosen.replica, kv_blocks=settings["kv_blocks"], priority_scheduling=True)
    return SimulatedBackend(profile=chosen, replicas=settings["replicas"], config=config)


def capacity(
    route_id: str,
    revision: int,
    observed_at_us: int,
    parts: Sequence[Snapshot],
    front: Front = NOBODY,
    time_scale: float = 1.0,
) -> CapacitySnapshot:
    """Return the loads of the replicas and of the queue in front of them, added up.

    KV room is that of the roomiest: a request needs one. The tokens waiting are those at the
    replica with the fewest and its share of those in front, rounded up. queue_p95_us is the oldest
    wait: a bound that is never too low. Times and paces are real ones: a simulated second lasts
    1 / `time_scale`; µs round down.
    """
    oldest_wait_ps = max(front.oldest_wait_ps, *(part.oldest_wait_ps for part in parts))
    oldest_wait_us = int(oldest_wait_ps / time_scale) // PS_PER_US
    share_tokens = -(-front.input_tokens // len(parts))
    return CapacitySnapshot(
        route_id=route_id,
        revision=revision,
        observed_at_us=observed_at_us,
        waiting_requests=front.requests + sum(part.waiting_requests for part in parts),
        running_requests=sum(part.running_requests for part in parts),
        waiting_input_tokens=share_tokens + min(part.waiting_input_tokens for part in parts),
        reserved_kv_tokens=sum(part.reserved_kv_tokens for part in parts),
        free_kv_tokens=max(part.free_kv_tokens for part in parts),
        recent_output_tokens_per_second=round(
            sum(part.recent_output_tokens_per_second for part in parts) * time_scale
        ),
        queue_p95_us=oldest_wait_us,
        oldest_wait_us=oldest_wait_us,
    )
