"""Rate tables and exact prices: pure, integer, in pico units (LED-3, CST-1, CST-7).

A price is an integer number of micro-units per million tokens, so tokens x price is a whole number
of pico units (1e-12) and needs no rounding. Only a multiplier can leave a fraction; it is rounded
half to even, once per component.
"""

from collections.abc import Sequence
from typing import Literal

import msgspec


class Tier(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """Prices that hold above a context length (strictly above `over_input_tokens`)."""

    over_input_tokens: int
    input_micro_per_mtok: int
    output_micro_per_mtok: int
    cached_input_micro_per_mtok: int


class Rate(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """The prices of one route or one model identity: `key` is a route_id or an identity_id."""

    key: str
    input_micro_per_mtok: int
    output_micro_per_mtok: int
    cached_input_micro_per_mtok: int
    fixed_pico: int = 0
    tiers: tuple[Tier, ...] = ()
    tier_mode: Literal["whole", "marginal"] = "whole"
    batch_multiplier_permille: int = 1000


class RateTable(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """A published, immutable set of rates; the one in effect at acceptance prices a request."""

    version: str
    effective_from_us: int
    currency: str
    rates: tuple[Rate, ...]


class Usage(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """Tokens to be priced. `cached_input_tokens` are inside `input_tokens`."""

    input_tokens: int
    output_tokens: int
    cached_input_tokens: int = 0


class Cost(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """A priced usage, component by component, in pico units."""

    input_pico: int
    cached_input_pico: int
    output_pico: int
    fixed_pico: int

    @property
    def total_pico(self) -> int:
        return self.input_pico + self.cached_input_pico + self.output_pico + self.fixed_pico


class Priced(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """A price that was found: the key that had a rate, the rate, and the cost by it."""

    key: str
    rate: Rate
    cost: Cost


class Unpriced(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """No rate under any of the keys: never a cost of zero (CST-7)."""

    keys: tuple[str, ...]
    table_version: str


def batch_priced(priority: str) -> bool:
    """Whether a request of this priority gets the rate's batch multiplier."""
    return priority == "batch"


def rate_of(table: RateTable, key: str) -> Rate | None:
    """The rate whose key equals `key` exactly, with no guessing by prefix; else None."""
    for rate in table.rates:
        if rate.key == key:
            return rate
    return None


def price(
    table: RateTable, keys: Sequence[str], usage: Usage, *, batch: bool = False
) -> Priced | Unpriced:
    """The cost of a usage by the first of `keys` that has a rate, else Unpriced (CST-1, CST-7).

    Callers pass route_id, then identity_id: a route's own price wins over its model's.
    """
    for key in keys:
        rate = rate_of(table, key)
        if rate is not None:
            return Priced(key=key, rate=rate, cost=cost_of(rate, usage, batch=batch))
    return Unpriced(keys=tuple(keys), table_version=table.version)


def cost_of(rate: Rate, usage: Usage, *, batch: bool = False) -> Cost:
    """The exact cost of a usage, by component, in pico units (CST-1, LED-3).

    Tiers: with `whole`, the highest tier that the input is strictly over prices all of it; with
    `marginal`, each input token is priced by the band it lies in, the cached ones first, as they
    are a prefix. Output is priced by the tier that the whole input reached in both modes. The
    batch multiplier holds for tokens, not for the fixed price; each component is rounded half to
    even once. A negative count, or more cached tokens than input, is a fault: ValueError.
    """
    cached = usage.cached_input_tokens
    if usage.output_tokens < 0 or not 0 <= cached <= usage.input_tokens:
        raise ValueError(f"can't price {usage}: need 0 <= cached <= input and 0 <= output")
    bands = _bands(rate)
    reached = _reached(bands, usage.input_tokens)
    if rate.tier_mode == "marginal" and len(bands) > 1:
        cached_pico = _marginal(bands, 0, cached, cached=True)
        input_pico = _marginal(bands, cached, usage.input_tokens, cached=False)
    else:
        cached_pico = cached * reached.cached_input_micro_per_mtok
        input_pico = (usage.input_tokens - cached) * reached.input_micro_per_mtok
    permille = rate.batch_multiplier_permille if batch else 1000
    return Cost(
        input_pico=multiplied(input_pico, permille),
        cached_input_pico=multiplied(cached_pico, permille),
        output_pico=multiplied(usage.output_tokens * reached.output_micro_per_mtok, permille),
        fixed_pico=rate.fixed_pico,
    )


def multiplied(pico: int, permille: int) -> int:
    """`pico` x `permille` / 1000, rounded half to even."""
    whole, rest = divmod(pico * permille, 1000)
    if rest > 500 or (rest == 500 and whole % 2):
        whole += 1
    return whole


def _bands(rate: Rate) -> tuple[Tier, ...]:
    """The base prices as a tier over -1 tokens, then the tiers, lowest first."""
    base = Tier(
        over_input_tokens=-1,
        input_micro_per_mtok=rate.input_micro_per_mtok,
        output_micro_per_mtok=rate.output_micro_per_mtok,
        cached_input_micro_per_mtok=rate.cached_input_micro_per_mtok,
    )
    if not rate.tiers:
        return (base,)
    return (base, *sorted(rate.tiers, key=lambda tier: tier.over_input_tokens))


def _reached(bands: tuple[Tier, ...], input_tokens: int) -> Tier:
    reached = bands[0]
    for band in bands[1:]:
        if input_tokens > band.over_input_tokens:
            reached = band
    return reached


def _marginal(bands: tuple[Tier, ...], start: int, end: int, *, cached: bool) -> int:
    """The price of the input tokens at positions start <= p < end, each by its own band.

    The token at position p is the (p + 1)-th: it is over `n` tokens when p >= n.
    """
    total = 0
    for index, band in enumerate(bands):
        above = bands[index + 1].over_input_tokens if index + 1 < len(bands) else end
        tokens = min(end, above) - max(start, band.over_input_tokens, 0)
        if tokens > 0:
            micro = band.cached_input_micro_per_mtok if cached else band.input_micro_per_mtok
            total += tokens * micro
    return total
