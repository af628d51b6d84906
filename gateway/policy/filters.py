"""The hard filters, in order: what each asks, and the reason code of the one that empties the set.

A filter keeps the candidates that pass. The order is ADM-1's, and inside step 4 the permanent
reasons come before the passing ones: a request that no recovery could help is not told to wait.
To add a filter, write its function and put it into FILTERS where its precedence is.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from gateway.policy.caps import Caps
from gateway.policy.estimates import Scale, Weighing, Weighings
from gateway.policy.values import FallbackReason, InferenceRequest, TenantState


class Bounds:
    """The limits of one request, looked up once: the tightest of request, tenant and model."""

    __slots__ = (
        "capabilities",
        "caps",
        "cost_applies",
        "deadline_us",
        "max_cost_pico",
        "output",
        "probe_allowance",
        "quality_floor",
        "regions",
        "scale",
        "tenant_left_pico",
        "tokens_left_in_minute",
    )

    def __init__(
        self,
        scale: Scale,
        caps: Caps,
    ) -> None:
        request, tenant = scale.request, scale.context.tenant
        budget = request.budget
        self.scale = scale
        self.capabilities = request.required_capabilities
        self.regions = allowed_regions(request, tenant)
        self.quality_floor = request.quality_floor_milli
        self.caps = caps
        self.output = budget.max_output_tokens
        self.deadline_us = budget.deadline_us
        self.max_cost_pico = budget.max_cost_pico
        self.probe_allowance = scale.policy.probe_allowance
        self.tokens_left_in_minute: int | None = None
        if tenant.tokens_per_minute is not None:
            self.tokens_left_in_minute = tenant.tokens_per_minute - tenant.tokens_in_minute
        self.tenant_left_pico = tenant_left_pico(tenant)
        self.cost_applies = budget.max_cost_pico is not None or self.tenant_left_pico is not None


def tenant_left_pico(tenant: TenantState) -> int | None:
    """Return what the tighter of the tenant's budgets of month and day leaves; None without one."""
    left_pico: int | None = None
    if tenant.budget_pico is not None:
        left_pico = tenant.budget_pico - tenant.spent_pico - tenant.pending_pico
    if tenant.day_budget_pico is not None:
        today_pico = tenant.day_budget_pico - tenant.spent_today_pico - tenant.pending_pico
        left_pico = today_pico if left_pico is None else min(left_pico, today_pico)
    return left_pico


def allowed_regions(request: InferenceRequest, tenant: TenantState) -> frozenset[str] | None:
    """Return the regions that request and tenant both allow; None where neither restricts."""
    if not request.allowed_regions:
        return frozenset(tenant.allowed_regions) if tenant.allowed_regions else None
    asked = frozenset(request.allowed_regions)
    return asked.intersection(tenant.allowed_regions) if tenant.allowed_regions else asked


Left = list[Weighing]


def capability(bounds: Bounds, left: Left) -> Left:
    """Has every capability that the request requires, whatever its health."""
    for each in bounds.capabilities:
        left = [w for w in left if each in w.route.capabilities]
    return left


def region(bounds: Bounds, left: Left) -> Left:
    """Lies in a region that request and tenant allow (the data boundary)."""
    regions = bounds.regions
    return left if regions is None else [w for w in left if w.route.region in regions]


def quality_floor(bounds: Bounds, left: Left) -> Left:
    """Is at or above the request's quality floor."""
    floor = bounds.quality_floor
    return [w for w in left if w.route.quality_milli >= floor] if floor > 0 else left


def tokenizer(bounds: Bounds, left: Left) -> Left:
    """Was counted with its own tokenizer revision: never guessed from another's (BUD-3)."""
    return [w for w in left if w.tokens is not None] if bounds.scale.some_uncounted else left


def token_budget(bounds: Bounds, left: Left) -> Left:
    """Is, by its own count, within the caps of request, tenant and logical model (BUD-3)."""
    if len(bounds.scale.counts) == 1:
        return left  # one count for all, and it was within the caps in step 2
    cap, total = bounds.caps.input_tokens, bounds.caps.total_tokens
    return [w for w in left if w.need_kv <= total and w.need_kv - bounds.output <= cap]


def token_limits(bounds: Bounds, left: Left) -> Left:
    """Can carry the input, the output cap and both together."""
    output = bounds.output
    return [
        w
        for w in left
        if output <= (route := w.route).max_output_tokens
        and w.need_kv <= route.max_total_tokens
        and w.need_kv - output <= route.max_input_tokens
    ]


def disabled(bounds: Bounds, left: Left) -> Left:
    """Is not switched off by the policy."""
    return [w for w in left if w.route.enabled] if bounds.scale.some_down else left


def health(bounds: Bounds, left: Left) -> Left:
    """Is healthy."""
    return [w for w in left if w.healthy] if bounds.scale.some_down else left


def tenant_rate(bounds: Bounds, left: Left) -> Left:
    """Fits, by its own count, what the tenant's tokens per minute leave."""
    rest = bounds.tokens_left_in_minute
    return left if rest is None else [w for w in left if w.need_kv <= rest]


def snapshot_age(bounds: Bounds, left: Left) -> Left:
    """Has a fresh snapshot, or a probe of the policy's allowance is free (ADM-6)."""
    if not bounds.scale.some_stale:
        return left
    allowance = bounds.probe_allowance
    return [w for w in left if w.fresh or w.probes < allowance]


def kv_capacity(bounds: Bounds, left: Left) -> Left:
    """Has KV room for the input and the whole output cap."""
    return [w for w in left if w.need_kv <= w.room_kv or not w.fresh]


def queue_length(bounds: Bounds, left: Left) -> Left:
    """Has fewer waiting than the share of its queue that this priority may fill (ADM-8)."""
    return [w for w in left if w.waiting < w.queue_limit or not w.fresh]


def queue_age(bounds: Bounds, left: Left) -> Left:
    """Has nobody waiting for longer than its queue's age limit."""
    return [w for w in left if w.oldest_wait_us <= w.route.queue_age_limit_us or not w.fresh]


def deadline(bounds: Bounds, left: Left) -> Left:
    """Would finish, conservatively, within what is left of the deadline."""
    limit_us = bounds.deadline_us
    return [w for w in left if w.e2e_us <= limit_us]


def unpriced(bounds: Bounds, left: Left) -> Left:
    """Has a price, where a cost budget applies (CST-7)."""
    return [w for w in left if w.cost_pico is not None] if bounds.cost_applies else left


def tenant_budget(bounds: Bounds, left: Left) -> Left:
    """Costs no more than the tenant's budgets leave."""
    rest = bounds.tenant_left_pico
    return left if rest is None else [w for w in left if (w.cost_pico or 0) <= rest]


def cost(bounds: Bounds, left: Left) -> Left:
    """Costs no more than the request's own budget."""
    limit = bounds.max_cost_pico
    return left if limit is None else [w for w in left if (w.cost_pico or 0) <= limit]


def has_all(capabilities: tuple[str, ...], required: tuple[str, ...]) -> bool:
    return all(capability in capabilities for capability in required)


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """A named filter, the code it gives when it empties the set, and the fallback it may open."""

    name: str
    keep: Callable[[Bounds, Left], Left]
    reason_code: str
    opens: FallbackReason | None = None


FILTERS: Final[tuple[Filter, ...]] = (
    Filter(name="capability", keep=capability, reason_code="CAPABILITY_UNAVAILABLE"),
    Filter(name="region", keep=region, reason_code="POLICY_DENIED"),
    Filter(name="quality_floor", keep=quality_floor, reason_code="QUALITY_FLOOR_UNMET"),
    Filter(name="tokenizer", keep=tokenizer, reason_code="NO_CAPABLE_ROUTE"),
    Filter(name="token_budget", keep=token_budget, reason_code="TOKEN_BUDGET_EXCEEDED"),
    Filter(name="token_limits", keep=token_limits, reason_code="NO_CAPABLE_ROUTE"),
    Filter(name="disabled", keep=disabled, reason_code="NO_CAPABLE_ROUTE", opens="unhealthy"),
    Filter(name="health", keep=health, reason_code="NO_CAPABLE_ROUTE", opens="unhealthy"),
    Filter(name="tenant_rate", keep=tenant_rate, reason_code="TENANT_RATE_LIMIT"),
    Filter(name="snapshot_age", keep=snapshot_age, reason_code="CAPACITY_SHED", opens="overloaded"),
    Filter(name="kv_capacity", keep=kv_capacity, reason_code="CAPACITY_SHED", opens="overloaded"),
    Filter(name="queue_length", keep=queue_length, reason_code="CAPACITY_SHED", opens="overloaded"),
    Filter(name="queue_age", keep=queue_age, reason_code="CAPACITY_SHED", opens="overloaded"),
    Filter(
        name="deadline", keep=deadline, reason_code="DEADLINE_INSUFFICIENT", opens="deadline_risk"
    ),
    Filter(name="unpriced", keep=unpriced, reason_code="UNPRICED_MODEL"),
    Filter(name="tenant_budget", keep=tenant_budget, reason_code="TENANT_BUDGET_EXHAUSTED"),
    Filter(name="cost", keep=cost, reason_code="COST_BUDGET_EXCEEDED"),
)

BY_NAME: Final = {each.name: each for each in FILTERS}


def idle(bounds: Bounds, each: Weighings) -> dict[str, bool]:
    """Return, by name, whether a filter would keep everybody: by their extremes, looking at none.

    True is certain; False is only likely, and has the filter look at each.
    """
    table, output, most = each.table, bounds.output, each.most_need_kv
    minute, tenants, own = (
        bounds.tokens_left_in_minute,
        bounds.tenant_left_pico,
        bounds.max_cost_pico,
    )
    fresh = not each.some_stale
    return {
        "capability": table.common.issuperset(bounds.capabilities),
        "region": bounds.regions is None or table.regions <= bounds.regions,
        "quality_floor": bounds.quality_floor <= 0 or bounds.quality_floor <= table.least_quality,
        "tokenizer": not each.some_uncounted,
        "token_budget": most <= bounds.caps.total_tokens
        and most - output <= bounds.caps.input_tokens,
        "token_limits": output <= table.least_output
        and most <= table.least_total
        and most - output <= table.least_input,
        "disabled": each.all_up,
        "health": each.all_up,
        "tenant_rate": minute is None or most <= minute,
        "snapshot_age": fresh,
        "kv_capacity": fresh and most <= each.least_room_kv,
        "queue_length": fresh and each.all_open,
        "queue_age": fresh and each.all_open,
        "deadline": each.most_e2e_us <= bounds.deadline_us,
        "unpriced": each.all_priced or not bounds.cost_applies,
        "tenant_budget": tenants is None or each.most_cost_pico <= tenants,
        "cost": own is None or each.most_cost_pico <= own,
    }


def awake(bounds: Bounds, weighings: Weighings) -> list[Filter]:
    """Return the filters, in order, at which somebody may fall."""
    asleep = idle(bounds, weighings)
    if False not in asleep.values():
        return []
    return [each for each in FILTERS if not asleep[each.name]]


def sift(
    bounds: Bounds, weighings: Left, filters: Iterable[Filter] = FILTERS
) -> tuple[Left, dict[str, str], Filter | None]:
    """Return who passed, who fell at which filter, and the filter that emptied the set, if one did.

    `weighings` is not changed; an empty one is emptied by nothing.
    """
    left = weighings
    fell: dict[str, str] = {}
    for each in filters:
        kept = each.keep(bounds, left)
        if kept is not left and len(kept) != len(left):
            passed = {w.route.route_id for w in kept}
            for w in left:
                if w.route.route_id not in passed:
                    fell[w.route.route_id] = each.name
            if not kept:
                return kept, fell, each
            left = kept
    return left, fell, None
