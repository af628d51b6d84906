"""The peers' pins: each version is exact, and what can't be installed says why."""

import re

import pytest

from benchmarks.peers.peers import PEERS, PINS, _problem


@pytest.mark.parametrize("peer", PEERS, ids=lambda peer: peer.key)
def test_each_peer_is_pinned(peer):
    assert re.fullmatch(r"\d+(\.\d+)+", peer.version)


def test_every_line_of_the_pins_names_one_exact_version():
    lines = [line for path in PINS.glob("*.txt") for line in path.read_text().splitlines()]
    assert [line for line in lines if not re.fullmatch(r"[A-Za-z0-9_.-]+==[0-9][^ ]*", line)] == []


def test_a_step_that_fails_is_told_with_the_end_of_what_it_said():
    assert _problem(["true"]) == ""
    assert _problem(["sh", "-c", "echo no such package >&2; exit 3"]) == (
        "sh ended with 3: no such package"
    )
    assert _problem(["no-such-program-here"]) == "FileNotFoundError of no-such-program-here"
