"""RTE-4: a period under other rules, summed up."""

from gateway.policy.counterfactual import REJECTED, Counterfactual
from gateway.policy.values import Decision
from tests.policy_factories import PICO


def accepted(route_id: str, ttft_ms: int, *, cost_pico: int | None = PICO, **more) -> Decision:
    return Decision(
        request_id="req-1", status="accepted", candidates=(), route_id=route_id,
        ttft_us=ttft_ms * 1_000, e2e_us=ttft_ms * 10_000, cost_pico=cost_pico, **more,
    )  # fmt: skip


def rejected(code: str) -> Decision:
    return Decision(request_id="req-1", status="rejected", candidates=(), reason_code=code)


def test_both_sides_are_counted_and_the_moves_between_them_named():
    made = Counterfactual()
    made.add(accepted("a", 100), accepted("a", 100))
    made.add(accepted("a", 200), accepted("b", 50, cost_pico=None))
    made.add(accepted("b", 300), rejected("CAPACITY_SHED"), same_code=False)
    made.add(rejected("DEADLINE_INSUFFICIENT"), accepted("b", 60, degraded_from="a"))
    made.skip()
    summary = made.summary()
    assert (summary.decisions, summary.other_code, summary.unreadable) == (4, 1, 1)
    before, after = summary.before, summary.after
    assert (before.accepted, after.accepted) == (3, 3)
    assert (before.routes, after.routes) == ((("a", 2), ("b", 1)), (("a", 1), ("b", 2)))
    assert before.rejections == (("DEADLINE_INSUFFICIENT", 1),)
    assert after.rejections == (("CAPACITY_SHED", 1),)
    assert (before.cost_pico, after.cost_pico, after.unpriced) == (3 * PICO, 2 * PICO, 1)
    assert (before.ttft_p50_us, before.ttft_p95_us) == (200_000, 300_000)
    assert (after.ttft_p50_us, after.e2e_p95_us, after.degraded) == (60_000, 1_000_000, 1)
    assert summary.moved == ((REJECTED, "b", 1), ("a", "b", 1), ("b", REJECTED, 1))


def test_nothing_accepted_has_no_quantile():
    side = Counterfactual().summary().before
    assert (side.ttft_p50_us, side.e2e_p95_us, side.accepted) == (None, None, 0)
