"""SPEC 12: how requests count, which definitions are refused, when an alert fires."""

from fractions import Fraction

import pytest
import scipy
from hypothesis import given
from hypothesis import strategies as st

from ledger import slo, slo_burn, slo_rules
from ledger.quantiles import nearest_rank
from ledger.slo import BurnRule, Selector, SloDefinition
from ledger.slo_burn import Tally
from ledger.slo_defaults import DEFAULT_SLOS
from tests.ledger.receipts import receipt

SECOND_US = 1_000_000


def definition(**changes):
    fields = {
        "slo_id": "slo",
        "revision": 1,
        "title": "An objective",
        "indicator": "ttft",
        "target_ppm": 990_000,
        "threshold_us": SECOND_US,
    }
    return SloDefinition(**{**fields, **changes})


def rule(factor, long_us=slo.HOUR_US, short_us=5 * slo.MINUTE_US):
    return BurnRule(
        name="rule", severity="page", factor=Fraction(factor), long_us=long_us, short_us=short_us
    )


def alerts(target_ppm, factor, bad, valid):
    """Whether the rule alerts when both of its windows hold these counts."""
    burn = slo_burn.burn_rate(
        Tally(good=valid - bad, valid=valid), definition(target_ppm=target_ppm).budget
    )
    return slo_burn.rule_state(rule(factor), burn, burn) == "ALERT"


# SLO-2, SLO-7: quantiles


def test_p99_of_1_to_100_is_99():
    assert nearest_rank(range(1, 101), 99, 100) == 99


def test_95_requests_at_20_ms_and_5_at_4000_ms_hide_their_tail_in_the_mean_and_the_p95():
    queue_ms = sorted([20] * 95 + [4_000] * 5)
    assert Fraction(sum(queue_ms), len(queue_ms)) == 219
    assert nearest_rank(queue_ms, 95, 100) == 20
    assert nearest_rank(queue_ms, 96, 100) == 4_000
    assert nearest_rank(queue_ms, 99, 100) == 4_000


def tally(objective, receipts):
    verdicts = [slo.judge(objective, one) for one in receipts]
    return Tally(good=verdicts.count("good"), valid=sum(v is not None for v in verdicts))


def test_experiment_one_the_interactive_tail_alerts_although_the_mean_is_comfortable():
    receipts = [
        receipt(priority="interactive", queue_us=4_000_000 if slow else 20_000)
        for slow in [True] * 5 + [False] * 55
    ] + [receipt(priority="batch", queue_us=20_000) for _ in range(40)]
    interactive = definition(indicator="queue", selector=Selector(priorities=("interactive",)))
    batch = definition(indicator="queue", selector=Selector(priorities=("batch",)))

    interactive_burn = slo_burn.burn_rate(tally(interactive, receipts), interactive.budget)
    assert interactive_burn == Fraction(25, 3)
    assert round(float(interactive_burn), 2) == 8.33
    assert slo_burn.rule_state(rule(6), interactive_burn, interactive_burn) == "ALERT"
    assert slo_burn.burn_rate(tally(batch, receipts), batch.budget) == 0
    assert sum(one.queue_us for one in receipts) / len(receipts) < 1_000_000


# SLO-5: exact comparisons


@pytest.mark.parametrize(
    ("target_ppm", "factor", "bad", "valid", "expected"),
    [
        (900_000, "6", 60, 100, False),
        (999_500, "14.4", 72, 10_000, False),
        (999_000, "14.4", 1_444, 100_000, True),
        (999_000, "14.4", 1_440, 100_000, False),
    ],
)
def test_a_rule_alerts_strictly_above_its_factor(target_ppm, factor, bad, valid, expected):
    assert alerts(target_ppm, factor, bad, valid) is expected


def test_25_bad_of_1000_at_99_percent_leave_minus_one_and_a_half_budgets():
    budget = definition().budget
    assert slo_burn.budget_left(Tally(good=975, valid=1_000), budget) == Fraction(-3, 2)


def test_nothing_of_nothing_is_no_data():
    nothing = Tally(good=0, valid=0)
    assert slo_burn.burn_rate(nothing, definition().budget) is None
    assert slo_burn.budget_left(nothing, definition().budget) is None
    assert slo_burn.rule_state(rule(6), None, Fraction(100)) == "NO_DATA"


def test_one_window_above_its_factor_is_no_alert():
    assert slo_burn.rule_state(rule(6), Fraction(7), Fraction(6)) == "QUIET"
    assert slo_burn.rule_state(rule(6), Fraction(6), Fraction(7)) == "QUIET"
    assert slo_burn.rule_state(rule(6), Fraction(100), None) == "NO_DATA"


def test_default_rules_for_30_days_are_the_documented_ones():
    rules, left_out = slo_rules.default_rules(999_000)
    assert [(r.severity, r.factor, r.long_us, r.short_us) for r in rules] == [
        ("page", Fraction("14.4"), slo.HOUR_US, 5 * slo.MINUTE_US),
        ("page", Fraction(6), 6 * slo.HOUR_US, 30 * slo.MINUTE_US),
        ("ticket", Fraction(3), slo.DAY_US, 2 * slo.HOUR_US),
    ]
    assert left_out == ()


def test_factors_scale_with_the_period_and_a_rule_inside_the_budget_is_left_out():
    rules, left_out = slo_rules.default_rules(990_000, 7 * slo.DAY_US)
    assert [r.factor for r in rules] == [Fraction("3.36"), Fraction("1.4")]
    assert len(left_out) == 1
    assert left_out[0].startswith("RULE_INSIDE_BUDGET: ticket")


def test_a_default_rule_that_a_low_target_can_never_reach_is_left_out():
    rules, left_out = slo_rules.default_rules(900_000)
    assert [r.factor for r in rules] == [6, 3]
    assert left_out[0].startswith("RULE_NEVER_FIRES: fast")


# SLO-5: refused declarations


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"target_ppm": 1_000_000}, "TARGET_IMPOSSIBLE"),
        ({"target_ppm": 0}, "TARGET_IMPOSSIBLE"),
        ({"threshold_us": None}, "THRESHOLD_MISSING"),
        ({"period_us": 0}, "PERIOD_INVALID"),
        ({"rules": (rule(100),)}, "RULE_NEVER_FIRES"),
        ({"rules": (rule(1),)}, "RULE_INSIDE_BUDGET"),
        ({"rules": (rule(6, slo.HOUR_US, slo.HOUR_US),)}, "WINDOWS_INVALID"),
        ({"rules": (rule(6),) * 9}, "TOO_MANY_RULES"),
        ({"period_us": 10**25}, "PERIOD_INVALID"),
        ({"period_us": slo.DAY_US + 1}, "PERIOD_INVALID"),
        ({"threshold_us": 10**30}, "THRESHOLD_INVALID"),
        ({"threshold_pico": 2**63}, "THRESHOLD_INVALID"),
        ({"rules": (rule(6, slo.HOUR_US, 1),)}, "WINDOWS_INVALID"),
        ({"title": " "}, "TITLE_INVALID"),
        ({"title": "t" * 201}, "TITLE_INVALID"),
        ({"selector": Selector(input_tokens=(10, 5))}, "SELECTOR_INVALID"),
        ({"selector": Selector(output_tokens=(0, 10**30))}, "SELECTOR_INVALID"),
        ({"selector": Selector(tenants=("a",) * 201)}, "SELECTOR_INVALID"),
    ],
)
def test_a_definition_that_can_not_hold_is_refused(changes, code):
    assert [problem.code for problem in slo_rules.problems(definition(**changes))] == [code]


def test_a_rule_that_only_all_bad_could_reach_never_fires_but_one_just_below_may():
    assert slo_rules.problems(definition(rules=(rule("99.99"),))) == ()


@pytest.mark.parametrize("objective", DEFAULT_SLOS, ids=lambda objective: objective.slo_id)
def test_every_objective_that_ships_may_be_declared_and_names_its_action(objective):
    assert slo_rules.problems(objective) == ()
    assert objective.rules
    assert objective.control_action


# SLO-0, SLO-7: how a request counts


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"first_token_us": 1_000_000}, "good"),
        ({"first_token_us": 1_000_001}, "bad"),
        ({"status": "failed", "first_token_us": None}, "bad"),
        ({"status": "unknown", "first_token_us": None}, "bad"),
        ({"status": "rejected", "first_token_us": None}, None),
        ({"status": "cancelled", "first_token_us": None, "e2e_us": 500_000}, None),
        ({"status": "cancelled", "first_token_us": None, "e2e_us": 30_000_001}, "bad"),
        ({"status": "cancelled", "first_token_us": 900_000}, "good"),
    ],
)
def test_first_tokens_count_at_the_exact_threshold(changes, expected):
    assert slo.judge(definition(), receipt(**changes)) == expected


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, "good"),
        ({"e2e_us": 30_000_000}, "good"),
        ({"e2e_us": 30_000_001}, "bad"),
        ({"schema_valid": 1}, "good"),
        ({"schema_valid": 0}, "bad"),
        ({"degraded_from": "route_b"}, "bad"),
        ({"status": "failed"}, "bad"),
        ({"status": "unknown"}, "bad"),
        ({"status": "cancelled"}, "bad"),
        ({"status": "cancelled", "first_token_us": None, "e2e_us": 10}, None),
        ({"status": "rejected", "first_token_us": None}, None),
    ],
)
def test_a_valid_completion_is_whole_in_time_valid_and_on_the_main_path(changes, expected):
    objective = definition(indicator="valid_completion", threshold_us=None)
    assert slo.judge(objective, receipt(**changes)) == expected


def test_a_degraded_completion_is_valid_only_where_the_objective_says_so():
    objective = definition(indicator="valid_completion", degraded_is_valid=True)
    assert slo.judge(objective, receipt(degraded_from="route_b")) == "good"


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("CAPACITY_SHED", "bad"),
        ("NO_CAPABLE_ROUTE", "bad"),
        ("TENANT_BUDGET_EXHAUSTED", None),
        ("TENANT_RATE_LIMIT", None),
        ("POLICY_DENIED", None),
        ("DEADLINE_INSUFFICIENT", None),
    ],
)
def test_policy_and_budget_rejections_are_no_capacity_failures(code, expected):
    objective = definition(indicator="capacity", threshold_us=None)
    rejected = receipt(status="rejected", terminal_error_code=code, first_token_us=None)
    assert slo.judge(objective, rejected) == expected
    assert slo.judge(objective, receipt()) == "good"


def test_a_request_of_one_token_has_no_inter_token_time_to_judge():
    objective = definition(indicator="itl", threshold_us=50_000)
    assert slo.judge(objective, receipt(output_tokens=1, itl_mean_us=None)) is None
    assert slo.judge(objective, receipt(itl_mean_us=50_000)) == "good"


def test_only_a_completed_request_is_good_end_to_end():
    objective = definition(indicator="e2e", threshold_us=3_000_000)
    assert slo.judge(objective, receipt()) == "good"
    assert slo.judge(objective, receipt(status="failed")) == "bad"


def open_request(**changes):
    fields = {
        "tenant_id": "acme",
        "logical_model": "chat-large",
        "identity_id": "mid_a",
        "route_id": "route_a",
        "priority": "interactive",
        "user_path": "interactive",
        "arm": None,
        "accepted_at_us": 1_000,
        "deadline_us": 30_000_000,
    }
    return slo.OpenRequest(**{**fields, **changes})


def test_a_request_past_its_deadline_without_a_token_is_bad_at_once():
    assert slo.judge_open(definition(), open_request(), 30_001_000) is None
    assert slo.judge_open(definition(), open_request(), 30_001_001) == "bad"


def test_an_open_request_outside_the_slice_does_not_count():
    batch = definition(selector=Selector(priorities=("batch",)))
    assert slo.judge_open(batch, open_request(), 99_000_000) is None
    capacity = definition(indicator="capacity", threshold_us=None)
    assert slo.judge_open(capacity, open_request(), 99_000_000) is None


@pytest.mark.parametrize(
    ("selector", "covered"),
    [
        (Selector(), True),
        (Selector(tenants=("acme",), priorities=("interactive", "normal")), True),
        (Selector(priorities=("batch",)), False),
        (Selector(tenants=("other",)), False),
        (Selector(identities=("mid_b",)), False),
        (Selector(routes=("route_b",)), False),
        (Selector(user_paths=("recovery",)), False),
        (Selector(logical_models=("chat-small",)), False),
        (Selector(arms=("canary",)), False),
    ],
)
def test_a_selector_takes_only_its_slice(selector, covered):
    assert selector.covers(receipt()) is covered


# SLO-6: the guard


@pytest.mark.parametrize(
    ("bad", "valid", "expected", "acts"),
    [(2, 10, 0.0086, True), (1, 10, 0.135, False), (5, 100, 0.015, True), (4, 100, 0.057, False)],
)
def test_the_guard_lets_automation_act_only_on_what_chance_does_not_explain(
    bad, valid, expected, acts
):
    chance = slo_burn.binomial_tail(bad, valid, Fraction("0.0144"))
    assert round(chance, 4 if expected < 0.01 else 3) == expected
    assert (chance <= slo_burn.GUARD_ALPHA) is acts


@given(
    st.integers(1, 50_000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))),
    st.integers(1, 999_999),
)
def test_the_binomial_tail_is_scipys(counts, ppm):
    bad, valid = counts
    expected = scipy.stats.binom.sf(bad - 1, valid, ppm / 1_000_000)
    actual = slo_burn.binomial_tail(bad, valid, Fraction(ppm, 1_000_000))
    assert actual == pytest.approx(expected, rel=1e-7, abs=1e-9)


@pytest.mark.parametrize("valid", [10_000_001, 400_000_000, 10_000_000_000])
@pytest.mark.parametrize("off", [-3, 0, 3])
def test_the_guard_holds_for_as_many_requests_as_a_day_can_have(valid, off):
    """A day of 120 requests a second is above ten million."""
    share = Fraction("0.0144")
    bad = int(valid * share) + int(off * (valid * share * (1 - share)) ** 0.5)
    expected = scipy.stats.binom.sf(bad - 1, valid, float(share))
    assert slo_burn.binomial_tail(bad, valid, share) == pytest.approx(expected, rel=1e-3)


# States and exhaustion


def window(length_us, bad, valid, objective):
    counts = Tally(good=valid - bad, valid=valid)
    return slo_burn.WindowBurn(
        length_us=length_us,
        start_us=0,
        end_us=length_us,
        tally=counts,
        burn=slo_burn.burn_rate(counts, objective.budget),
    )


def status(long_bad, short_bad, *, period_bad=10, severity="page", period_valid=100_000):
    objective = definition()
    one = BurnRule(
        name="r", severity=severity, factor=Fraction(6), long_us=slo.HOUR_US, short_us=60_000_000
    )
    evaluated = slo_burn.evaluate_rule(
        objective,
        one,
        window(one.long_us, long_bad, 1_000, objective),
        window(one.short_us, short_bad, 100, objective),
    )
    period = window(objective.period_us, period_bad, period_valid, objective)
    return slo_burn.status_of(objective, objective.period_us, period, (evaluated,))


def test_a_page_alert_freezes_and_a_ticket_watches():
    assert status(100, 10).state == "FREEZE"
    assert status(100, 10, severity="ticket").state == "WATCH"


def test_a_long_window_alone_is_watched_and_calm_is_ok():
    assert status(100, 0).state == "WATCH"
    assert status(5, 0).state == "OK"


def test_a_period_without_requests_holds_as_no_data():
    assert status(0, 0, period_bad=0, period_valid=0).state == "NO_DATA"


def test_time_to_exhaustion_follows_the_shortest_long_window():
    steady = status(20, 0, period_bad=500)
    assert steady.budget_left == Fraction(1, 2)
    assert steady.exhausted_in_us == 30 * slo.DAY_US // 4
    assert status(0, 0, period_bad=500).exhausted_in_us is None
    assert status(20, 0, period_bad=1_000).exhausted_in_us == 0
    assert status(20, 0, period_bad=1_001).exhausted_in_us == 0


def test_a_tail_too_small_for_a_float_is_none_and_takes_no_time():
    """A million requests of which a third are bad: not a loop over a million terms."""
    assert slo_burn.binomial_tail(300_000, 1_000_000, Fraction(144, 10_000)) == 0.0
    assert slo_burn.binomial_tail(1, 1_000_000, Fraction(9, 10)) == 1.0
