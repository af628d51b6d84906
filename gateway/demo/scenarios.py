"""Fault scenarios on the simulator: a calm window, then one with a fault (DIA-2).

Both run through the real desk, book and settling in virtual time; only what the fault changes
differs: arrivals, the backend's pace, or how a backend ends a request.
"""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import msgspec

from gateway.demo.replay import Running, outcome_of
from gateway.demo.traffic import Arrival
from gateway.policy.values import Priority, Route
from gateway.providers.outcomes import Completed, Outcome, Unknown
from gateway.providers.simulated import SimulatedBackend, backend_of
from ledger.diagnosis import Row
from simulator.engine import Replica
from simulator.scheduler import Finished
from simulator.timing import PS_PER_US

Name = Row | None
WINDOW_US = 300_000_000
SLOTS = 24  # sequences that a replica runs at once
TENANTS = ("back-office", "research-lab", "support-desk")
DEADLINE_US = 120_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """A window's traffic, and what its backends do with it."""

    per_second: float = 3.0
    weights: tuple[float, float, float] = (1.0, 1.0, 1.0)  # of TENANTS
    priorities: tuple[Priority, Priority, Priority] = ("interactive",) * 3
    long_share: float = 0.0  # of requests with a prompt of thousands of tokens
    output_tokens: int = 120  # the mean
    hang_up_share: float = 0.01
    schema_share: float = 0.0
    pace: int = 1  # how many times as long an iteration takes
    decode_extra_us: int = 0  # that each decoding request adds to an iteration
    kv_blocks: int = 4_000
    primary_down: bool = False
    canary: bool = False  # all traffic goes to the new identity
    broken_schema_share: float = 0.0  # of degraded answers that a schema was asked for
    lost_share: float = 0.0  # of answers whose end never came: the backend went on


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A fault by its name, with the window before it and its own."""

    name: str
    finds: Name
    tells: str
    before: Load = field(default_factory=Load)
    now: Load


SCENARIOS: dict[str, Scenario] = {
    one.name: one
    for one in (
        Scenario(name="healthy", finds=None, tells="the same traffic again", now=Load()),
        Scenario(
            name="prefill-queue",
            finds="ttft_tail",
            tells="long prompts and more of them: the queue grows, the decode is steady",
            now=Load(per_second=6.5, long_share=0.02),
        ),
        Scenario(
            name="slow-decode",
            finds="decode_slow",
            tells="each decoding request makes every iteration longer",
            before=Load(per_second=1.5),
            now=Load(per_second=1.5, decode_extra_us=2_500),
        ),
        Scenario(
            name="kv-thrash",
            finds="throughput_collapse",
            tells="most of the KV pool is lost, and every iteration pays for preemptions",
            before=Load(per_second=4.0),
            now=Load(per_second=4.0, kv_blocks=520, pace=3),
        ),
        Scenario(
            name="impatient-users",
            finds="cancels_up",
            tells="nothing fails, and a fifth of the users go away",
            now=Load(hang_up_share=0.25),
        ),
        Scenario(
            name="cost-after-switch",
            finds="cost_jump",
            tells="all traffic moves to another identity, whose answers are longer",
            before=Load(per_second=2.0),
            now=Load(per_second=2.0, output_tokens=200, canary=True),
        ),
        Scenario(
            name="broken-fallback",
            finds="fallback_schema",
            tells="the primary is down, the fallback answers and breaks schemas",
            before=Load(per_second=2.0, schema_share=0.4),
            now=Load(per_second=2.0, schema_share=0.4, primary_down=True, broken_schema_share=0.5),
        ),
        Scenario(
            name="billed-timeouts",
            finds="billed_after_timeout",
            tells="time-outs whose backend went on and charges for it",
            now=Load(lost_share=0.06),
        ),
        Scenario(
            name="greedy-tenant",
            finds="tenant_unfair",
            tells="one tenant sends its requests as interactive, the others wait behind them",
            before=Load(priorities=("batch", "normal", "interactive")),
            now=Load(
                per_second=7.5,
                weights=(1.0, 1.0, 5.0),
                priorities=("batch", "normal", "interactive"),
            ),
        ),
    )
}


def arrivals(load: Load, seed: int) -> Iterator[Arrival]:
    """The window's requests in order of time: Poisson, sizes log-normal, all from the seed."""
    drawn = random.Random(seed)  # noqa: S311 - a scenario, not a secret
    at_us = 0.0
    while True:
        at_us += drawn.expovariate(load.per_second) * 1e6
        if at_us >= WINDOW_US:
            return
        (place,) = drawn.choices(range(len(TENANTS)), load.weights)
        prompt = 3_000 if drawn.random() < load.long_share else 400
        output_tokens = max(2, round(load.output_tokens * drawn.lognormvariate(-0.08, 0.4)))
        hang_up = drawn.random() < load.hang_up_share
        yield Arrival(
            at_us=int(at_us),
            input_tokens=round(prompt * drawn.lognormvariate(0, 0.3)),
            output_tokens=output_tokens,
            tenant_id=TENANTS[place],
            logical_model="assist",
            priority=load.priorities[place],
            task_type="chat",
            max_output_tokens=512,
            deadline_us=DEADLINE_US,
            wants_schema=drawn.random() < load.schema_share,
            hang_up_after_us=drawn.randrange(300_000, 1_500_000) if hang_up else None,
        )


def backends_of(load: Load) -> Callable[[Route], SimulatedBackend]:
    """What stands behind each route in the window."""

    def backend(route: Route) -> SimulatedBackend:
        usual = backend_of(route)
        config = replace(
            usual.config, kv_blocks=load.kv_blocks, max_num_seqs=SLOTS, max_num_batched_tokens=2_048
        )
        time = usual.profile.time.scaled(load.pace)
        per_decode_ps = time.per_decode_ps + load.decode_extra_us * PS_PER_US
        profile = replace(usual.profile, time=replace(time, per_decode_ps=per_decode_ps))
        return replace(usual, config=config, profile=profile)

    return backend


def outcomes_of(load: Load, seed: int) -> Callable[[Replica, Finished, Running], Outcome]:
    """How each request ends in the window."""
    drawn = random.Random(seed + 1)  # noqa: S311 - a scenario, not a secret

    def outcome(replica: Replica, finished: Finished, running: Running) -> Outcome:
        usual = outcome_of(replica, finished, running)
        if not isinstance(usual, Completed):
            return usual
        if drawn.random() < load.lost_share:
            return Unknown(
                usage=usual.usage,
                timings=usual.timings,
                provider_request_id=usual.provider_request_id,
                reason="PROVIDER_TIMEOUT",
            )
        if not running.arrival.wants_schema:
            return usual
        degraded = running.weighed.decision.degraded_from is not None
        broken = degraded and drawn.random() < load.broken_schema_share
        return msgspec.structs.replace(usual, schema_valid=not broken)

    return outcome
