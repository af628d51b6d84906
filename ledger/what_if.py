"""What past traffic would have cost by another rate table (CST-5). Pure; exact, not estimated.

Receipts are taken one by one and added up by group, so that a month takes no more memory than its
groups. Retries and hedges are priced as what answered is: each attempt by its own usage and route.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Literal, NamedTuple, TypeAlias

from ledger.rate_lookup import LABEL_MARK, Place, Unpriced, place_of, price_told
from ledger.rates import RateTable, Usage, batch_priced
from ledger.receipt_cost import read_meters

GROUPS_LIMIT = 10_000
OTHERS = "others"
DAY_US = 86_400_000_000

Group = Literal["tenant", "model", "route"]
_Places: TypeAlias = Mapping[str, tuple[str, str]]


class Ran(NamedTuple):
    """An attempt beside the one that answered, as a rate table prices it."""

    route_id: str
    identity_id: str
    rate_key: str | None
    input_tokens: int
    cached_input_tokens: int
    output_tokens: int
    usage_json: str | None
    cost_pico: int
    service_tier: str | None = None


class Served(NamedTuple):
    """The fields of a receipt that a rate table prices, in the order of `queries.what_if`; then the
    tier of the attempt that answered, and its retries and hedges, those that used anything."""

    tenant_id: str
    logical_model: str
    route_id: str | None
    identity_id: str | None
    priority: str
    accepted_at_us: int
    rate_key: str | None
    input_tokens: int
    cached_input_tokens: int
    output_tokens: int
    usage_json: str | None
    cost_total_pico: int
    cost_retry_and_hedge_pico: int
    service_tier: str | None = None
    others: tuple[Ran, ...] = ()

    @property
    def used_nothing(self) -> bool:
        """Whether nothing of it ran: no table has a price for that, and none is missing."""
        used = self.input_tokens or self.output_tokens or self.usage_json or self.others
        return self.rate_key is None and not used and not self.cost_total_pico


@dataclass(slots=True, kw_only=True)
class Sums:
    """One group's requests: what they cost before, on their receipts, and would cost by the table.

    The two sides are of the same `compared` requests, which both price. The others stand apart,
    counted by who has no price for them: what they cost before is no saving, and what the table
    asks for them no rise. Retries and hedges are in every sum.
    """

    requests: int = 0
    compared: int = 0
    before_pico: int = 0
    by_table_pico: int = 0
    retry_and_hedge_before_pico: int = 0  # of before_pico
    retry_and_hedge_by_table_pico: int = 0  # of by_table_pico
    unpriced_by_table: int = 0
    unpriced_before: int = 0
    unpriced_both: int = 0  # of each of the two
    apart_before_pico: int = 0  # of the requests that aren't compared
    apart_by_table_pico: int = 0

    @property
    def difference_pico(self) -> int | None:
        """None where nothing can be compared: that isn't a difference of nothing."""
        return self.by_table_pico - self.before_pico if self.compared else None

    @property
    def weight_pico(self) -> int:
        """How much is at stake: the difference, and what stands apart."""
        apart_pico = self.apart_before_pico + self.apart_by_table_pico
        return abs(self.difference_pico or 0) + apart_pico


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """The whole and its groups, those with most at stake first; `by` names a group's values."""

    version: str
    by: tuple[Group, ...]
    whole: Sums
    groups: tuple[tuple[tuple[str, ...], Sums], ...]


_VALUE: Mapping[Group, Callable[[Served], str]] = {
    "tenant": lambda served: served.tenant_id,
    "model": lambda served: served.logical_model,
    "route": lambda served: served.route_id or "",
}


def tried(
    table: RateTable,
    receipts: Iterable[Served],
    by: tuple[Group, ...] = ("model", "route"),
    *,
    places: Mapping[str, tuple[str, str]] | None = None,
) -> Trial:
    """What the receipts' requests cost before, and what they would have cost by the table.

    A table that takes effect later is tried as it will be: a request before then is priced on the
    first day from then on, at its own time of day. `places`: route_id -> (provider kind,
    region), for rates that are for one. Groups beyond GROUPS_LIMIT are added up as `others`.
    """
    groups: dict[tuple[str, ...], Sums] = {}
    values = [_VALUE[name] for name in by]
    for served in receipts:
        key = tuple([value(served) for value in values])
        sums = groups.get(key)
        if sums is None:
            if len(groups) >= GROUPS_LIMIT:
                key = (OTHERS,) * len(by)
            sums = groups.setdefault(key, Sums())
        sums.requests += 1
        if served.used_nothing:
            sums.compared += 1  # for nothing, on both sides
            continue
        _count(
            sums,
            served,
            own_pico=_cost(table, served, served, places or {}),
            others_pico=_others_cost(table, served, places or {}),
        )
    ordered = sorted(groups.items(), key=lambda pair: (-pair[1].weight_pico, pair[0]))
    return Trial(version=table.version, by=by, whole=_added(groups.values()), groups=tuple(ordered))


def _count(sums: Sums, served: Served, *, own_pico: int | None, others_pico: int | None) -> None:
    """Add a request: to both sides where both price it, else to what stands apart."""
    unpriced_before = served.rate_key is None
    unpriced_by_table = own_pico is None or others_pico is None
    by_table_pico = (own_pico or 0) + (others_pico or 0)
    if unpriced_before or unpriced_by_table:
        sums.unpriced_before += unpriced_before
        sums.unpriced_by_table += unpriced_by_table
        sums.unpriced_both += unpriced_before and unpriced_by_table
        sums.apart_before_pico += served.cost_total_pico
        sums.apart_by_table_pico += 0 if unpriced_by_table else by_table_pico
        return
    sums.compared += 1
    sums.before_pico += served.cost_total_pico
    sums.by_table_pico += by_table_pico
    sums.retry_and_hedge_before_pico += served.cost_retry_and_hedge_pico
    sums.retry_and_hedge_by_table_pico += others_pico or 0


def _added(groups: Iterable[Sums]) -> Sums:
    whole = Sums()
    for sums in groups:
        for each in fields(Sums):
            setattr(whole, each.name, getattr(whole, each.name) + getattr(sums, each.name))
    return whole


def as_if_in_effect(at_us: int, effective_from_us: int) -> int:
    """The time itself; of an earlier one, its time of day on the first day that is in effect."""
    if at_us >= effective_from_us:
        return at_us
    return at_us + -(-(effective_from_us - at_us) // DAY_US) * DAY_US


def _others_cost(table: RateTable, served: Served, places: _Places) -> int | None:
    """What the table asks for a request's retries and hedges; None where it has no price for one,
    or where the ledger has no usage behind what they cost."""
    if sum(ran.cost_pico for ran in served.others) != served.cost_retry_and_hedge_pico:
        return None
    whole_pico = 0
    for ran in served.others:
        cost_pico = _cost(table, served, ran, places)
        if cost_pico is None:
            return None
        whole_pico += cost_pico
    return whole_pico


def _cost(table: RateTable, served: Served, ran: Served | Ran, places: _Places) -> int | None:
    """What the table asks for one attempt of a request; None where it has no price for it."""
    keys = tuple(key for key in (ran.route_id, ran.identity_id) if key is not None)
    priced = price_told(
        table,
        keys,
        Usage(
            input_tokens=ran.input_tokens,
            output_tokens=ran.output_tokens,
            cached_input_tokens=ran.cached_input_tokens,
            meters=read_meters(ran.usage_json),
        ),
        batch=batch_priced(served.priority),
        at_us=as_if_in_effect(served.accepted_at_us, table.effective_from_us),
        place=_place(ran, places),
    )
    if isinstance(priced, Unpriced) or priced.unpriced:
        return None
    return priced.cost.total_pico


def _place(ran: Served | Ran, places: _Places) -> Place:
    """Where it ran: where its route is, else as the rate says that priced it; and the tier that the
    provider said, which its rate may not name."""
    provider, region, tier = "", "", ""
    if ran.rate_key is not None and LABEL_MARK in ran.rate_key:
        provider, region, tier = place_of(ran.rate_key)[1]
    provider, region = places.get(ran.route_id or "", (provider, region))
    return provider, region, ran.service_tier or tier
