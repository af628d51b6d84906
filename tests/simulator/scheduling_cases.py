"""Random workloads for replicas: small pools on purpose, ties, cancels, shared prefixes."""

from dataclasses import dataclass, replace
from random import Random

from hypothesis import strategies as st

from simulator.batch import SimulationResult
from simulator.oracle import Oracle
from simulator.scheduler import OUTCOMES, Job, ReplicaConfig
from simulator.timing import TimeModel


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    jobs: list[Job]
    config: ReplicaConfig
    model: TimeModel


@st.composite
def time_models(draw) -> TimeModel:
    points = [(1, draw(st.integers(1, 50)))]
    for _ in range(draw(st.integers(0, 4))):
        points.append(
            (points[-1][0] + draw(st.integers(1, 20)), points[-1][1] + draw(st.integers(0, 100)))
        )
    return TimeModel(
        name="drawn",
        breakpoints=tuple(points),
        per_decode_ps=draw(st.integers(0, 5)),
        per_context_token_ps=draw(st.sampled_from([0, 0, 1, 3])),
        per_attention_pair_ps=draw(st.integers(0, 2)),
        mixed_ps=draw(st.sampled_from([0, 7])),
    )


@st.composite
def replica_configs(draw) -> ReplicaConfig:
    block_tokens = draw(st.sampled_from([1, 2, 3, 4, 16]))
    max_num_seqs = draw(st.integers(1, 8))
    budget = max(max_num_seqs, draw(st.sampled_from([4, 8, 16, 64])))
    chunked = draw(st.sampled_from([True, True, True, False]))
    max_model_len = draw(st.sampled_from([16, 24, 40, 64]))
    longest_blocks = max_model_len // block_tokens
    kv_blocks = draw(st.sampled_from([3, 5, 8, 12, 20, 40]) | st.integers(2, 5))
    if draw(st.booleans()):
        kv_blocks = longest_blocks + draw(st.integers(2, 5))
    return ReplicaConfig(
        kv_blocks=kv_blocks,
        block_tokens=block_tokens,
        reserved_blocks=draw(st.integers(0, 1)),
        watermark_blocks=draw(st.sampled_from([0, 0, 0, 1])),
        max_num_batched_tokens=budget if chunked else max(budget, max_model_len),
        max_num_seqs=max_num_seqs,
        max_model_len=max_model_len,
        long_prefill_token_threshold=draw(st.sampled_from([0, 0, 0, 3, 5])),
        chunked_prefill=chunked,
        full_sequence_must_fit=draw(st.booleans()),
        prefix_cache=draw(st.booleans()),
        priority_scheduling=draw(st.booleans()),
    )


@st.composite
def hash_chains(draw, index: int) -> tuple[int, ...]:
    """Chained: equal hashes stand for equal prefixes, so a chain leaves the shared one for good."""
    trunk = draw(st.integers(0, 2))
    shared = tuple(100 * trunk + i for i in range(draw(st.integers(0, 14))))
    own = tuple(10_000 + 100 * index + i for i in range(draw(st.integers(0, 5))))
    return shared + own


@st.composite
def cases(draw, max_jobs: int = 16) -> Case:
    span = draw(st.sampled_from([0, 0, 10, 50, 300, 3000]))
    jobs = [
        Job(
            job_id=index,
            arrival_ps=draw(st.integers(0, span)),
            input_tokens=draw(st.sampled_from([1, 2, 16]) | st.integers(1, 40)),
            output_tokens=draw(st.sampled_from([1, 1, 2]) | st.integers(1, 30)),
            priority=draw(st.integers(0, 2)),
            block_hashes=draw(hash_chains(index)) if draw(st.booleans()) else (),
            cancel_ps=draw(st.none() | st.none() | st.integers(0, span + 1500)),
        )
        for index in range(draw(st.integers(0, max_jobs)))
    ]
    return Case(jobs=jobs, config=draw(replica_configs()), model=draw(time_models()))


def seeded_case(seed: int) -> Case:
    """A random case from a seed alone: many more can be run than hypothesis could draw."""
    draw = Random(seed)
    block_tokens = draw.choice([1, 2, 3, 4, 16])
    max_num_seqs, max_model_len = draw.randint(1, 8), draw.choice([16, 24, 40, 64])
    chunked = draw.random() < 0.8
    longest_blocks = max_model_len // block_tokens
    few = [3, 5, 8, 12, 20, 40, longest_blocks + 2, longest_blocks + 3, longest_blocks + 5]
    points = [(1, draw.randint(1, 50))]
    for _ in range(draw.randint(0, 4)):
        points.append((points[-1][0] + draw.randint(1, 20), points[-1][1] + draw.randint(0, 100)))
    span = draw.choice([0, 0, 10, 50, 300, 3000])
    jobs = []
    for index in range(draw.randint(0, 16)):
        shared = tuple(100 * draw.randint(0, 2) + i for i in range(14))[: draw.randint(0, 14)]
        own = tuple(10_000 + 100 * index + i for i in range(draw.randint(0, 5)))
        jobs.append(
            Job(
                job_id=index,
                arrival_ps=draw.randint(0, span),
                input_tokens=draw.choice([1, 2, draw.randint(1, 20), draw.randint(1, 40)]),
                output_tokens=draw.choice([1, 1, 2, draw.randint(1, 30)]),
                priority=draw.randint(0, 2),
                block_hashes=shared + own if draw.random() < 0.7 else (),
                cancel_ps=draw.choice([None, None, None, draw.randint(0, span + 1500)]),
            )
        )
    budget = max(max_num_seqs, draw.choice([4, 8, 16, 64]))
    config = ReplicaConfig(
        kv_blocks=draw.choice(few),
        block_tokens=block_tokens,
        reserved_blocks=draw.randint(0, 1),
        watermark_blocks=draw.choice([0, 0, 0, 1]),
        max_num_batched_tokens=budget if chunked else max(budget, max_model_len),
        max_num_seqs=max_num_seqs,
        max_model_len=max_model_len,
        long_prefill_token_threshold=draw.choice([0, 0, 0, 3, 5]),
        chunked_prefill=chunked,
        full_sequence_must_fit=draw.random() < 0.3,
        prefix_cache=draw.random() < 0.5,
        priority_scheduling=draw.random() < 0.4,
    )
    model = TimeModel(
        name="seeded",
        breakpoints=tuple(points),
        per_decode_ps=draw.randint(0, 5),
        per_context_token_ps=draw.choice([0, 0, 1, 3]),
        per_attention_pair_ps=draw.randint(0, 2),
        mixed_ps=draw.choice([0, 7]),
    )
    return Case(jobs=jobs, config=config, model=model)


def seeded_cases() -> st.SearchStrategy[Case]:
    """Any seeded case: drawn in a twentieth of the time of `cases`, but not made smaller."""
    return st.integers(0, 2**32 - 1).map(seeded_case)


def chained(case: Case) -> Case:
    """The same case with hashes that are chained: equal ones stand for equal prefixes."""
    known: dict[tuple[int, ...], int] = {}
    jobs = []
    for job in case.jobs:
        prefixes = [job.block_hashes[: end + 1] for end in range(len(job.block_hashes))]
        hashes = tuple(known.setdefault(prefix, len(known) + 1) for prefix in prefixes)
        jobs.append(replace(job, block_hashes=hashes))
    return replace(case, jobs=jobs)


def plain(case: Case) -> Case:
    """The same case within what lanes do themselves: nothing but shortage hands it over."""
    return Case(
        jobs=[replace(job, cancel_ps=None, block_hashes=()) for job in case.jobs],
        config=replace(case.config, priority_scheduling=False, long_prefill_token_threshold=0),
        model=case.model,
    )


def rows_of_oracle(oracle: Oracle) -> dict[int | str, tuple[object, ...]]:
    """What must agree of each job, with -1 for what was never reached."""
    return {
        end.job_id: (
            end.outcome,
            -1 if end.scheduled_ps is None else end.scheduled_ps,
            -1 if end.first_token_ps is None else end.first_token_ps,
            end.done_ps,
            end.output_tokens,
            end.cached_tokens,
            end.preemptions,
            oracle.tokens_ps[end.job_id],
        )
        for end in oracle.finished
    }


def rows_of_result(result: SimulationResult) -> dict[int | str, tuple[object, ...]]:
    return {
        index: (
            OUTCOMES[result.outcome[index]],
            int(result.scheduled_ps[index]),
            int(result.first_token_ps[index]),
            int(result.done_ps[index]),
            int(result.output_tokens[index]),
            int(result.cached_tokens[index]),
            int(result.preemptions[index]),
            tuple(result.token_times_ps(index).tolist()),
        )
        for index in range(len(result.outcome))
    }
