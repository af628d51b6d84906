"""What differs between two rate tables, meter by meter, and a price's history over tables. Pure.

Changes are exact rationals: a price of 3 that was 4 changed by -1/4, whatever is shown of it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import msgspec

from ledger.money import units_text
from ledger.rate_lookup import label_of
from ledger.rates import Rate, RateTable, Tier

BASE = -1  # in place of a threshold: below every tier
_TERMS = (
    "tier_mode", "threshold", "batch_multiplier_permille", "valid_to_us", "windows", "unpriced",
)  # fmt: skip

Prices = Mapping[tuple[int, str], int]
"""(threshold or BASE, meter) -> micro-units per million; of the meter "request" pico units each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceChange:
    """One price of a rate; None: there is none on that side."""

    meter: str
    over_input_tokens: int  # BASE: below every tier
    before: int | None
    after: int | None

    @property
    def share(self) -> Fraction | None:
        """The change as a share of what it was; None where that was nothing or zero."""
        if not self.before or self.after is None:
            return None
        return Fraction(self.after - self.before, self.before)


@dataclass(frozen=True, slots=True, kw_only=True)
class RateChange:
    """What differs in one rate. `terms`: (field, before, after) of what is no price, as text."""

    label: str
    valid_from_us: int | None
    kind: Literal["added", "removed", "changed"]
    prices: tuple[PriceChange, ...]
    terms: tuple[tuple[str, str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """What a label cost from_us <= t < until_us (None: on and on), and by which table's rates.

    `rates`: the one that held, and those of its hours of the day; none: it had no price.
    """

    from_us: int
    until_us: int | None
    version: str
    rates: tuple[Rate, ...]


def changes(before: RateTable, after: RateTable) -> tuple[RateChange, ...]:
    """Every rate that differs, by label and start; rates that say the same are left out."""
    old, new = _by_place(before), _by_place(after)
    found = []
    for place in sorted(old.keys() | new.keys(), key=_sort_key):
        change = _change(place, old.get(place), new.get(place))
        if change is not None:
            found.append(change)
    return tuple(found)


def laid_over(below: RateTable, above: RateTable) -> RateTable:
    """The table above, with the rates of the one below for every key that it has none of."""
    keys = {rate.key for rate in above.rates}
    kept = tuple(rate for rate in below.rates if rate.key not in keys)
    return msgspec.structs.replace(above, rates=(*above.rates, *kept))


def prices_of(rate: Rate) -> Prices:
    """Every price that a rate states, below its tiers and in each of them."""
    prices = {(BASE, "request"): rate.fixed_pico} if rate.fixed_pico else {}
    bands: list[tuple[int, Rate | Tier]] = [(BASE, rate)]
    bands += [(tier.over_input_tokens, tier) for tier in rate.tiers]
    for over, band in bands:
        roots = {
            "input": band.input_micro_per_mtok,
            "cached_input": band.cached_input_micro_per_mtok,
            "output": band.output_micro_per_mtok,
        }
        for meter, price in (*roots.items(), *band.meters):
            if meter not in rate.unpriced:
                prices[over, meter] = price
    return prices


def share_text(share: Fraction | None) -> str:
    """A change in percent, exact: "+20 %", "-12.5 %", "+33 1/3 %"; "new" where it has no share."""
    if share is None:
        return "new"
    sign, percent = "-" if share < 0 else "+", abs(share) * 100
    pico = percent * 10**12
    if pico.denominator == 1:
        return f"{sign}{units_text(int(pico))} %"
    whole, rest = divmod(percent.numerator, percent.denominator)
    return f"{sign}{whole} {rest}/{percent.denominator} %" if whole else (
        f"{sign}{rest}/{percent.denominator} %"
    )  # fmt: skip


def history(tables: Sequence[RateTable], label: str) -> tuple[Span, ...]:
    """What a label has cost since the first table, span by span, spans of equal prices as one.

    `tables` in the order of publication. A span begins where a table takes effect, or a date inside
    one comes; the newest stands last and has no end.
    """
    spans: list[Span] = []
    for table, from_us, until_us in in_effect_spans(tables):
        for span in _spans_within(table, label, from_us, until_us):
            last = spans[-1] if spans else None
            if last is not None and _same(last.rates, span.rates):
                spans[-1] = Span(
                    from_us=last.from_us, until_us=span.until_us,
                    version=last.version, rates=last.rates,
                )  # fmt: skip
            else:
                spans.append(span)
    return tuple(spans)


def times_without_price(
    table: RateTable, keys: Sequence[str], region: str = "", provider: str = ""
) -> tuple[tuple[int, int | None], ...]:
    """(from_us, until_us) of every time from the table's start at which no key has a price.

    As `rate_lookup.price` finds it for a standard request of that place; None: on and on. Input and
    output have to have prices, and a price of some hours of the day alone is none for the others.
    """
    fitting = [
        rate
        for rate in table.rates
        if rate.key in keys
        and not (rate.service_tier or rate.unpriced or rate.windows)
        and rate.provider in ("", provider)
        and rate.region in ("", region)
    ]
    return tuple(
        (start, end)
        for start, end, rates in _spans(fitting, table.effective_from_us, None)
        if not rates
    )


def in_effect_spans(
    tables: Sequence[RateTable],
) -> Iterator[tuple[RateTable, int, int | None]]:
    """(table, from_us, until_us) of each table that is ever in effect, in the order of time.

    `tables` in the order of publication: of two effective from one instant the later one counts.
    """
    starts = {table.effective_from_us: table for table in tables}
    ordered = sorted(starts)
    ends = [*ordered[1:], None][: len(ordered)]
    for start, end in zip(ordered, ends, strict=True):
        yield starts[start], start, end


def _spans_within(
    table: RateTable, label: str, from_us: int, until_us: int | None
) -> Iterator[Span]:
    own = [rate for rate in table.rates if label_of(rate) == label]
    for start, end, rates in _spans(own, from_us, until_us):
        yield Span(from_us=start, until_us=end, version=table.version, rates=rates)


def _spans(
    rates: Sequence[Rate], from_us: int, until_us: int | None
) -> Iterator[tuple[int, int | None, tuple[Rate, ...]]]:
    """(start, end, the rates valid throughout) between the dates at which validity changes."""
    edges = {from_us}
    for rate in rates:
        for edge in (rate.valid_from_us, rate.valid_to_us):
            if edge is not None and from_us < edge and (until_us is None or edge < until_us):
                edges.add(edge)
    ordered = sorted(edges)
    for start, end in zip(ordered, (*ordered[1:], until_us), strict=True):
        valid = tuple(
            rate
            for rate in rates
            if (rate.valid_from_us is None or rate.valid_from_us <= start)
            and (rate.valid_to_us is None or start < rate.valid_to_us)
        )
        yield start, end, valid


def _same(one: Iterable[Rate], other: Iterable[Rate]) -> bool:
    return [_said(rate) for rate in one] == [_said(rate) for rate in other]


def _said(rate: Rate) -> tuple[object, ...]:
    """What a rate says of a price, without the dates from and to which it says it."""
    terms = [getattr(rate, name) for name in _TERMS if name != "valid_to_us"]
    return (sorted(prices_of(rate).items()), *terms)


def _change(place: "_Place", old: Rate | None, new: Rate | None) -> RateChange | None:
    before = prices_of(old) if old else {}
    after = prices_of(new) if new else {}
    prices = tuple(
        PriceChange(
            meter=meter, over_input_tokens=over,
            before=before.get((over, meter)), after=after.get((over, meter)),
        )
        for over, meter in sorted(before.keys() | after.keys())
        if before.get((over, meter)) != after.get((over, meter))
    )  # fmt: skip
    terms: tuple[tuple[str, str, str], ...] = ()
    if old and new:
        terms = tuple(
            (name, str(getattr(old, name)), str(getattr(new, name)))
            for name in _TERMS
            if getattr(old, name) != getattr(new, name)
        )
        if not prices and not terms:
            return None
    kind: Literal["added", "removed", "changed"] = "changed"
    if old is None or new is None:
        kind = "added" if old is None else "removed"
    label, valid_from_us, _ = place
    return RateChange(
        label=label, valid_from_us=valid_from_us, kind=kind, prices=prices, terms=terms
    )


_Place = tuple[str, int | None, bool]  # label, start of validity, of hours or of the whole day


def _by_place(table: RateTable) -> dict[_Place, Rate]:
    found: dict[_Place, Rate] = {}
    for rate in table.rates:
        found.setdefault((label_of(rate), rate.valid_from_us, bool(rate.windows)), rate)
    return found


def _sort_key(place: _Place) -> tuple[str, int, bool]:
    label, valid_from_us, windowed = place
    return label, BASE if valid_from_us is None else valid_from_us, windowed
