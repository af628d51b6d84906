"""KV in bytes, and the prefix cache in extents."""

from simulator.batch import job_arrays, simulate
from simulator.kv import PrefixCache, kv_bytes_per_token
from simulator.scheduler import ReplicaConfig
from simulator.timing import TimeModel

FLAT = TimeModel(name="flat", breakpoints=((0, 10),))


def test_the_sources_example_takes_131072_bytes_a_token_and_one_gib_for_8192():
    per_token = kv_bytes_per_token(layers=32, kv_heads=8, head_dim=128, bytes_per_element=2)
    assert per_token == 131_072
    assert per_token * 8192 == 2**30


def test_blocks_freed_first_are_evicted_first_and_a_chain_loses_its_end_first():
    cache = PrefixCache(8)
    cache.settle(5)  # three blocks were allocated
    cache.claim(0, (1, 2, 3), 0)
    assert cache.publish(0, (1, 2, 3), 3) == 3
    assert cache.release(0, 0, 0, False) == 3
    assert cache.lookup(1, (1, 2, 3), 9) == (3, 3)
    cache.settle(3)  # five more: the never used go first
    assert cache.lookup(1, (1, 2, 3), 9) == (3, 3)
    cache.settle(2)
    assert cache.lookup(1, (1, 2, 3), 9) == (2, 2)


def test_the_second_copy_of_a_block_stays_anonymous():
    cache = PrefixCache(4)
    cache.settle(2)
    for slot in (0, 1):
        cache.claim(slot, (7,), 0)
        cache.publish(slot, (7,), 1)
    assert cache.release(1, 0, 0, False) == 1
    assert cache.lookup(2, (7,), 9) == (1, 0)  # the first copy still has its owner
    assert cache.release(0, 0, 0, False) == 1
    assert cache.lookup(2, (7,), 9) == (1, 1)


def test_a_preempted_job_hits_what_is_left_of_its_own_blocks_and_nobody_else_does():
    cache = PrefixCache(6)
    cache.settle(2)
    cache.release(0, 4, 3, True)
    assert cache.lookup(0, (), 9) == (3, 3)
    assert cache.lookup(1, (), 9) == (0, 0)
    cache.settle(4)  # the two never used are taken first
    assert cache.lookup(0, (), 9) == (3, 3)
    cache.settle(2)  # then the unpublished tail, then the last published
    assert cache.lookup(0, (), 9) == (2, 2)
    cache.claim(0, (), 1)
    assert cache.lookup(0, (), 9) == (0, 0)


def test_a_shared_prompt_is_computed_once():
    chain = tuple(range(20))
    jobs = job_arrays([0, 100, 200], [321] * 3, [5] * 3, block_hashes=[chain] * 3)
    result = simulate(jobs, ReplicaConfig(kv_blocks=99, prefix_cache=True), FLAT)
    assert result.cached_tokens.tolist() == [0, 320, 320]


def test_a_follow_up_turn_hits_the_generated_blocks_of_the_turn_before():
    """Hashes may reach into the output: those blocks are published when they are full."""
    first, second = tuple(range(3)), tuple(range(4))
    jobs = job_arrays([0, 1000], [16, 80], [40, 5], block_hashes=[first, second])
    result = simulate(jobs, ReplicaConfig(kv_blocks=99, prefix_cache=True), FLAT)
    assert result.cached_tokens.tolist() == [0, 48]
