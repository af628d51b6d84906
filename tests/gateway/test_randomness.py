"""Random bytes are handed out once, in parts of what was drawn."""

import os

import pytest

from gateway.randomness import DRAWN_BYTES, Pool, random_bytes


def test_no_byte_is_handed_out_twice_across_drawings(monkeypatch):
    drawn = []

    def urandom(size):
        drawn.append(bytes([len(drawn)]) * size)
        return drawn[-1]

    monkeypatch.setattr(os, "urandom", urandom)
    pool = Pool()
    sizes = (10, DRAWN_BYTES - 20, 10, 1, DRAWN_BYTES, 0, 16)
    taken = [pool.take(size) for size in sizes]
    assert [len(each) for each in taken] == list(sizes)
    assert [set(each) for each in taken] == [{0}, {0}, {0}, {1}, {2}, set(), {3}]
    assert len(drawn) == 4


def test_more_than_is_drawn_at_once_is_refused():
    with pytest.raises(ValueError, match="not 4097"):
        Pool().take(DRAWN_BYTES + 1)


def test_a_forked_process_draws_its_own():
    pool = Pool()
    pool.take(1)
    pool.forget()
    assert pool.take(16) != pool.take(16) != random_bytes(16)
