"""The targets of issue and specification beside what was measured."""

from dataclasses import replace

from benchmarks.peers.comparing import SHORT
from benchmarks.peers.judging import verdicts
from benchmarks.peers.paging import figures
from benchmarks.peers.values import OURS, UPSTREAM
from tests.benchmarks import runs


def met(results):
    return {each.what: each.met for each in verdicts(results)}


def test_a_good_run_meets_every_target():
    found = verdicts(runs.good_run())
    assert [each.what for each in found if each.met is not True] == []
    assert len(found) == 13


def test_the_ratios_to_litellm_are_stated_first():
    first, second, *_ = verdicts(runs.good_run())
    assert (first.wanted, first.found) == ("at least 30×", "40.00×")
    # 0.5 ms beside 10 ms
    assert (second.wanted, second.found) == ("at most 0.125", "0.050")


def test_one_figure_on_the_wrong_side_of_its_limit_is_missed():
    run = runs.good_run()
    slow = runs.gateway(OURS, {"many": (runs.cell(requests_per_s=3_499.0),)}, rss_mb=351.0)
    missed = met(replace(run, gateways=(run.gateways[0], slow)))
    assert missed["requests/s in front of an HTTP upstream"] is False
    assert missed["resident memory with two vocabularies"] is False


def test_a_limit_itself_is_met():
    run = runs.good_run()
    exact = runs.gateway(OURS, {"many": (runs.cell(requests_per_s=3_500.0),)}, start_s=2.5)
    found = met(replace(run, gateways=(run.gateways[0], exact)))
    assert found["requests/s in front of an HTTP upstream"] is True
    assert found["from its command to its first answer"] is True


def test_what_was_not_measured_is_neither_met_nor_missed():
    nothing = runs.results(rss_before_mb=None)
    assert {each.met for each in verdicts(nothing)} == {None}
    assert {each.found for each in verdicts(nothing)} == {"not measured"}


def test_a_smoke_tests_smaller_loads_are_held_against_no_target():
    """Its 8 connections would else be told of as 32."""
    few = {load.name: (runs.cell(requests_per_s=1.0),) for load in SHORT}
    both = (runs.gateway(UPSTREAM, few), runs.gateway(OURS, few))
    run = replace(runs.results(loads=SHORT), gateways=both)
    judged = {each.what for each in verdicts(run) if each.met is not None}
    assert all("memory" in what or "first answer" in what for what in judged)
    assert "upstream alone: " not in figures(run)  # which is told at 32
