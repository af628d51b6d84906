"""Which arm of a release a request belongs to: fixed by a stable hash, before filtering (REL-2)."""

from hashlib import sha256

from gateway.policy.values import CanaryArm, CanaryPlan, InferenceRequest

PERMILLE = 1000


def arm_of(plan: CanaryPlan, request: InferenceRequest) -> CanaryArm | None:
    """Return the request's arm; None where the arms' shares leave its place uncovered.

    The place is the first eight bytes of sha256(salt, 0x00, key) modulo 1000; the arms cover
    0..999 in the plan's order. A request without a session is placed by its own id, so that
    sessionless traffic does not fall into one arm as a whole.
    """
    place = place_permille(plan.salt, _key(plan, request))
    covered = 0
    for arm in plan.arms:
        covered += arm.share_permille
        if place < covered:
            return arm
    return None


def _key(plan: CanaryPlan, request: InferenceRequest) -> str:
    if plan.key == "tenant":
        return request.tenant_id
    return (plan.key == "session" and request.session_id) or request.request_id


def place_permille(salt: str, key: str) -> int:
    """Return the stable place of a key, 0..999."""
    digest = sha256(f"{salt}\0{key}".encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:8], "big") % PERMILLE


def candidates_of(
    plan: CanaryPlan, arm: CanaryArm | None, primary_routes: tuple[str, ...]
) -> tuple[str, ...]:
    """Return the primary routes that the arm may use: an arm restricts, and never adds.

    Outside every arm these are the primary routes that no arm names.
    """
    if arm is not None:
        return tuple(route_id for route_id in primary_routes if route_id in arm.route_ids)
    taken = {route_id for each in plan.arms for route_id in each.route_ids}
    return tuple(route_id for route_id in primary_routes if route_id not in taken)


def foreign_routes(plan: CanaryPlan, arm: CanaryArm | None) -> frozenset[str]:
    """Return the routes of the other arms: no fallback may reach them, an arm never spills over."""
    own = frozenset(arm.route_ids) if arm is not None else frozenset()
    return frozenset(r for each in plan.arms if each is not arm for r in each.route_ids) - own
