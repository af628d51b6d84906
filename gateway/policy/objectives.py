"""A caller's own latency objectives: routes predicted to meet them come first (RTE-1). Pure.

They are wishes, as `x-slo-ttft-ms` and `x-slo-tpot-ms` say them to other routers: among the
candidates that passed every filter those that meet them are preferred, and where none does the
policy's order decides among all. Nothing is refused for one; a deadline does that.
"""

from gateway.policy.estimates import Weighing
from gateway.policy.values import InferenceRequest

MET = "OBJECTIVE_FIT"
MISSED = "OBJECTIVE_MISSED"


def asked(request: InferenceRequest) -> bool:
    """Return whether the request has an objective."""
    return request.ttft_objective_us is not None or request.tpot_objective_us is not None


def preferred(request: InferenceRequest, left: list[Weighing]) -> list[Weighing]:
    """Return those that are predicted to meet every objective; all where none does."""
    return [each for each in left if meets(request, each)] or left


def meets(request: InferenceRequest, weighing: Weighing) -> bool:
    """Return whether a route is predicted to meet every objective of the request.

    Time per output token is that of the whole cap, as the finish is estimated: (e2e - ttft) over
    the tokens after the first.
    """
    ttft_us, tpot_us = request.ttft_objective_us, request.tpot_objective_us
    if ttft_us is not None and weighing.ttft_us > ttft_us:
        return False
    steps = request.budget.max_output_tokens - 1
    return tpot_us is None or weighing.e2e_us - weighing.ttft_us <= tpot_us * steps


def met(objective_us: int | None, measured_us: int | None) -> bool | None:
    """Return whether what was measured kept an objective; None without one, or unmeasured."""
    if objective_us is None or measured_us is None:
        return None
    return measured_us <= objective_us
