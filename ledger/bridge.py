"""Why a period cost more or less than another: effects that add up to the difference (CST-4). Pure.

What a period cost, without retries and hedges, is

    requests x share of a logical model x share of a route in it x tokens a request x price a token

summed over models, routes and meters. The factors are changed from the one period's to the other's
one after the other, in this order; an effect is what its step changes, so the effects telescope.
What one period lacks (a new route has no price there) is taken from the other, so that it shows
where it arises: a new route is a change of the route mix.
"""

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

Effect = Literal["volume", "model_mix", "route_mix", "token_mix", "price", "retries_and_hedges"]
EFFECTS: tuple[Effect, ...] = (
    "volume", "model_mix", "route_mix", "token_mix", "price", "retries_and_hedges",
)  # fmt: skip
Key = tuple[str, str]  # logical model, route
METERS = ("input", "cached_input", "output", "request")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """What one route of one logical model served in a period, and what that cost.

    `input_tokens` are the uncached ones. `request_pico`: what doesn't follow from these tokens.
    """

    requests: int
    input_tokens: int
    cached_input_tokens: int
    output_tokens: int
    input_pico: int
    cached_input_pico: int
    output_pico: int
    request_pico: int
    retry_and_hedge_pico: int = 0
    unpriced: int = 0  # of the requests: what ran without a rate, and is in no cost

    @property
    def amounts(self) -> tuple[tuple[int, int], ...]:
        """(quantity, cost in pico) of each of METERS."""
        return (
            (self.input_tokens, self.input_pico),
            (self.cached_input_tokens, self.cached_input_pico),
            (self.output_tokens, self.output_pico),
            (self.requests, self.request_pico),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Bridge:
    """From what the first period cost to what the second did, in pico units, exactly."""

    before_pico: int
    after_pico: int
    effects: tuple[tuple[Effect, int], ...]  # of EFFECTS, in order
    before_unpriced: int = 0  # requests that are in no cost, because they ran without a rate
    after_unpriced: int = 0


@dataclass(frozen=True, slots=True)
class _Factors:
    """A period's factors, each complete over the keys of both periods."""

    requests: Fraction
    models: Mapping[str, Fraction]
    routes: Mapping[Key, Fraction]
    tokens: Mapping[Key, tuple[Fraction, ...]]
    prices: Mapping[Key, tuple[Fraction, ...]]

    def cost(self) -> Fraction:
        return sum(
            (
                self.requests
                * self.models[key[0]]
                * self.routes[key]
                * sum((t * p for t, p in zip(self.tokens[key], self.prices[key], strict=True)), _0)
                for key in self.routes
            ),
            _0,
        )


_0 = Fraction(0)


def bridge(before: Mapping[Key, Cell], after: Mapping[Key, Cell]) -> Bridge:
    """The effects that lead from one period's cost to the other's; their sum is the difference.

    Each is rounded to a pico unit so that the sum stays exact (largest remainder).
    """
    one, two = _factors(before, after), _factors(after, before)
    steps = [
        one,
        _Factors(two.requests, one.models, one.routes, one.tokens, one.prices),
        _Factors(two.requests, two.models, one.routes, one.tokens, one.prices),
        _Factors(two.requests, two.models, two.routes, one.tokens, one.prices),
        _Factors(two.requests, two.models, two.routes, two.tokens, one.prices),
        two,
    ]
    costs = [step.cost() for step in steps]
    changes = [to - since for since, to in itertools.pairwise(costs)]
    retries = _retries(after.values()) - _retries(before.values())
    whole = [*_rounded(changes), retries]
    before_pico, after_pico = _total(before.values()), _total(after.values())
    if sum(whole) != after_pico - before_pico:
        raise ArithmeticError("the effects don't add up to the difference")
    return Bridge(
        before_pico=before_pico,
        after_pico=after_pico,
        effects=tuple(zip(EFFECTS, whole, strict=True)),
        before_unpriced=sum(cell.unpriced for cell in before.values()),
        after_unpriced=sum(cell.unpriced for cell in after.values()),
    )


def _factors(mine: Mapping[Key, Cell], other: Mapping[Key, Cell]) -> _Factors:
    """The factors of one period; what it lacks is the other's, where that has it."""
    requests = sum(cell.requests for cell in mine.values())
    keys = sorted({*mine, *other})
    by_model, other_by_model = _by_model(mine), _by_model(other)
    models = {
        key[0]: Fraction(by_model.get(key[0], 0), requests)
        if requests
        else Fraction(other_by_model.get(key[0], 0), max(1, sum(other_by_model.values())))
        for key in keys
    }
    routes, tokens, prices = {}, {}, {}
    for key in keys:
        own, theirs = mine.get(key), other.get(key)
        source, total = (own, by_model[key[0]]) if by_model.get(key[0]) else (
            theirs, other_by_model[key[0]]
        )  # fmt: skip
        routes[key] = Fraction(source.requests if source else 0, total)
        known = own or theirs
        if known is None:
            raise KeyError(key)
        tokens[key] = tuple(Fraction(n, known.requests) for n, _ in known.amounts)
        prices[key] = _prices(own, theirs)
    return _Factors(Fraction(requests), models, routes, tokens, prices)


def _prices(own: Cell | None, theirs: Cell | None) -> tuple[Fraction, ...]:
    """Pico units a token by meter; of a meter that was not used, the other period's."""
    found = []
    for meter in range(len(METERS)):
        used = next(
            (cell.amounts[meter] for cell in (own, theirs) if cell and cell.amounts[meter][0]),
            (1, 0),
        )
        found.append(Fraction(used[1], used[0]))
    return tuple(found)


def _by_model(cells: Mapping[Key, Cell]) -> dict[str, int]:
    totals: dict[str, int] = {}
    for (model, _), cell in cells.items():
        totals[model] = totals.get(model, 0) + cell.requests
    return totals


def _rounded(changes: list[Fraction]) -> list[int]:
    """Whole numbers with the same sum, which must be whole: floors, the rest by remainder."""
    floors = [change.numerator // change.denominator for change in changes]
    left = sum(changes, _0) - sum(floors)
    if left.denominator != 1:
        raise ArithmeticError("the changes don't add up to a whole number")
    order = sorted(range(len(changes)), key=lambda place: (floors[place] - changes[place], place))
    for place in order[: int(left)]:
        floors[place] += 1
    return floors


def _retries(cells: Iterable[Cell]) -> int:
    return sum(cell.retry_and_hedge_pico for cell in cells)


def _total(cells: Iterable[Cell]) -> int:
    return sum(sum(cost for _, cost in cell.amounts) + cell.retry_and_hedge_pico for cell in cells)
