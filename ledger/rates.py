"""Rate tables and exact prices: pure, integer, in pico units (LED-3, CST-1, CST-7).

A price is an integer number of micro-units per million tokens, so tokens x price is a whole number
of pico units (1e-12) and needs no rounding. Only a multiplier can leave a fraction; it is rounded
half to even, once per component.
"""

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
