"""Rate tables and exact prices: pure, integer, in pico units (LED-3, CST-1, CST-7).

A price is an integer number of micro-units per million tokens (of another meter: per million of
its price's unit), so tokens x price is a whole number of pico units (1e-12) and needs no rounding.
Only a multiplier or a meter's finer unit can leave a fraction; it is rounded half to even, once per
component. `ledger.rate_lookup` finds the rate of a key at a time.
"""

from collections.abc import Mapping
from typing import Literal, TypeAlias

import msgspec

from ledger.meters import METERS, priced_like

Meters: TypeAlias = tuple[tuple[str, int], ...]
"""(meter of `ledger.meters`, count or price), each meter once."""


class Tier(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """Prices that hold above a context length, as the rate's `threshold` reads it.

    Of a meter that it doesn't name the rate's own price goes on holding.
    """

    over_input_tokens: int
    input_micro_per_mtok: int
    output_micro_per_mtok: int
    cached_input_micro_per_mtok: int
    meters: Meters = ()


class Window(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """A span of each local day: from_second <= time of day < to_second, over midnight where less.

    The zone is its offset from UTC: one whose clocks change is written as two dated rates, so that
    a price needs no zone database to be computed again.
    """

    utc_offset_minutes: int
    from_second: int
    to_second: int


class Rate(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """The prices of one route or one model: `key` is a route_id, an identity_id or a public name.

    Fields are only ever appended: a published body decodes to the prices that it had. `provider`
    is a route's provider kind, `region` its region, "" any; "" of service_tier: the standard one.
    """

    key: str
    input_micro_per_mtok: int
    output_micro_per_mtok: int
    cached_input_micro_per_mtok: int
    fixed_pico: int = 0  # per request
    tiers: tuple[Tier, ...] = ()
    tier_mode: Literal["whole", "marginal"] = "whole"
    batch_multiplier_permille: int = 1000
    meters: Meters = ()  # micro-units per million
    threshold: Literal["over", "from"] = "over"  # a tier holds at input > or >= its threshold
    provider: str = ""
    region: str = ""
    service_tier: str = ""
    valid_from_us: int | None = None
    valid_to_us: int | None = None  # valid_from <= t < valid_to
    windows: tuple[Window, ...] = ()  # none: the whole day
    unpriced: tuple[str, ...] = ()  # of `meters.ROOTS`: no price is known, and 0 stands for none


class RateTable(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """A published, immutable set of rates; the one in effect at acceptance prices a request."""

    version: str
    effective_from_us: int
    currency: str
    rates: tuple[Rate, ...]


class Usage(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """Tokens to be priced. `cached_input_tokens` are inside `input_tokens`.

    `meters`: (meter, count) of further meters, those of tokens inside the three counts.
    """

    input_tokens: int
    output_tokens: int
    cached_input_tokens: int = 0
    meters: Meters = ()


class Cost(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """A priced usage, component by component, in pico units.

    `other_pico`: of the further meters that have a price of their own, together.
    """

    input_pico: int
    cached_input_pico: int
    output_pico: int
    fixed_pico: int
    other_pico: int = 0

    @property
    def total_pico(self) -> int:
        return (
            self.input_pico
            + self.cached_input_pico
            + self.output_pico
            + self.fixed_pico
            + self.other_pico
        )


def batch_priced(priority: str) -> bool:
    """Whether a request of this priority gets the rate's batch multiplier."""
    return priority == "batch"


def cost_of(rate: Rate, usage: Usage, *, batch: bool = False) -> Cost:
    """The exact cost of a usage, by component, in pico units (CST-1, LED-3).

    Tiers: with `whole`, the highest tier that the input reaches prices all of it; with `marginal`,
    each input token is priced by the band it lies in, the cached ones first, as they are a prefix,
    and those of further meters next. Output and further meters are priced by the tier that the
    whole input reached in both modes. A meter of tokens without a price of its own is priced as
    what it is inside of. The batch multiplier holds for tokens, not for the fixed price or for
    meters beside the tokens; each component is rounded half to even once. A negative count, or one
    that is more than what it is inside of, is a fault: ValueError.
    """
    cached, outputs = usage.cached_input_tokens, usage.output_tokens
    if outputs < 0 or not 0 <= cached <= usage.input_tokens:
        raise ValueError(f"can't price {usage}: need 0 <= cached <= input and 0 <= output")
    permille = rate.batch_multiplier_permille if batch else 1000
    if permille == 1000 and not rate.tiers and not usage.meters:  # as below, and a fifth the time
        return Cost(
            input_pico=(usage.input_tokens - cached) * rate.input_micro_per_mtok,
            cached_input_pico=cached * rate.cached_input_micro_per_mtok,
            output_pico=outputs * rate.output_micro_per_mtok,
            fixed_pico=rate.fixed_pico,
        )
    bands = _bands(rate)
    reached = _reached(rate, bands, usage.input_tokens)
    fresh, other_pico = usage.input_tokens - cached, 0
    if usage.meters:
        priced = _own_prices(rate, reached, usage.meters)
        own_input, own_cached, own_output = _held(usage, priced)
        fresh, cached, outputs = fresh - own_input, cached - own_cached, outputs - own_output
        other_pico = sum(
            _metered(name, count * micro, permille) for name, (count, micro) in priced.items()
        )
    if rate.tier_mode == "marginal":
        least = 0 if rate.threshold == "over" else 1
        cached_pico = _marginal(bands, least, 0, cached, cached=True)
        input_pico = _marginal(
            bands, least, usage.input_tokens - fresh, usage.input_tokens, cached=False
        )
    else:
        cached_pico = cached * reached.cached_input_micro_per_mtok
        input_pico = fresh * reached.input_micro_per_mtok
    return Cost(
        input_pico=multiplied(input_pico, permille),
        cached_input_pico=multiplied(cached_pico, permille),
        output_pico=multiplied(outputs * reached.output_micro_per_mtok, permille),
        fixed_pico=rate.fixed_pico,
        other_pico=other_pico,
    )


def unpriced_meters(rate: Rate, usage: Usage) -> tuple[str, ...]:
    """The meters that the usage has and the rate has no price for: never a silent zero (CST-7)."""
    missing = [name for name in rate.unpriced if _root_count(usage, name)]
    if usage.meters:
        own = _own_prices(rate, _reached(rate, _bands(rate), usage.input_tokens), usage.meters)
        missing += [
            name
            for name, count in usage.meters
            if count and name not in own and METERS[name].inside is None
        ]
    return tuple(missing)


def priced_apart(rate: Rate, usage: Usage) -> tuple[int, int, int]:
    """(fresh input, cached input, output) tokens that a further meter's own price is for.

    The components of a cost that bear these names hold none of them.
    """
    if not usage.meters:
        return 0, 0, 0
    reached = _reached(rate, _bands(rate), usage.input_tokens)
    return _held(usage, _own_prices(rate, reached, usage.meters))


def multiplied(pico: int, permille: int) -> int:
    """`pico` x `permille` / 1000, rounded half to even."""
    return divided(pico * permille, 1000) if permille != 1000 else pico


def divided(amount: int, divisor: int) -> int:
    """`amount` / `divisor`, rounded half to even."""
    whole, rest = divmod(amount, divisor)
    if 2 * rest > divisor or (2 * rest == divisor and whole % 2):
        whole += 1
    return whole


def _root_count(usage: Usage, root: str) -> int:
    if root == "input":
        return usage.input_tokens - usage.cached_input_tokens
    return usage.cached_input_tokens if root == "cached_input" else usage.output_tokens


def _own_prices(rate: Rate, reached: Tier, meters: Meters) -> dict[str, tuple[int, int]]:
    """Meter -> (count, price) of those that are not priced as what they are inside of."""
    known = dict(rate.meters)
    known.update(reached.meters)
    found = {}
    for name, count in meters:
        if count < 0 or name not in METERS:
            raise ValueError(f"can't price {count} of meter {name!r}")
        micro = next((known[at] for at in priced_like(name) if at in known), None)
        if micro is not None and count:
            found[name] = (count, micro)
    return found


def _held(usage: Usage, priced: Mapping[str, tuple[int, int]]) -> tuple[int, int, int]:
    """(fresh input, cached input, output) tokens that stand under a meter with its own price."""
    held = {"input": 0, "cached_input": 0, "output": 0}
    there = dict.fromkeys(held, 0)
    for name, count in usage.meters:
        inside = METERS[name].inside
        if inside is not None:
            there[inside] += count
            held[inside] += count if name in priced else 0
    for root, count in there.items():
        if count > _root_count(usage, root):
            raise ValueError(f"can't price {usage}: its meters hold more than its {root} tokens")
    return held["input"], held["cached_input"], held["output"]


def _metered(name: str, amount: int, permille: int) -> int:
    meter = METERS[name]
    if meter.inside is None:
        return divided(amount, meter.per)
    return multiplied(amount, permille)


def _bands(rate: Rate) -> tuple[Tier, ...]:
    """The base prices as a tier over -1 tokens, then the tiers, lowest first."""
    base = Tier(
        over_input_tokens=-1,
        input_micro_per_mtok=rate.input_micro_per_mtok,
        output_micro_per_mtok=rate.output_micro_per_mtok,
        cached_input_micro_per_mtok=rate.cached_input_micro_per_mtok,
    )
    return (base, *sorted(rate.tiers, key=lambda tier: tier.over_input_tokens))


def _reached(rate: Rate, bands: tuple[Tier, ...], input_tokens: int) -> Tier:
    reached = bands[0]
    least = 1 if rate.threshold == "over" else 0
    for band in bands[1:]:
        if input_tokens >= band.over_input_tokens + least:
            reached = band
    return reached


def _marginal(bands: tuple[Tier, ...], least: int, start: int, end: int, *, cached: bool) -> int:
    """The price of the input tokens at positions start <= p < end, each by its own band.

    The token at position p is the (p + 1)-th. It is over `n` tokens when p >= n; with `least` 1
    (the threshold is >=) the n-th itself, at n - 1, belongs to the upper band.
    """
    total = 0
    for index, band in enumerate(bands):
        below = max(band.over_input_tokens - least, 0)
        above = bands[index + 1].over_input_tokens - least if index + 1 < len(bands) else end
        tokens = min(end, above) - max(start, below)
        if tokens > 0:
            micro = band.cached_input_micro_per_mtok if cached else band.input_micro_per_mtok
            total += tokens * micro
    return total
