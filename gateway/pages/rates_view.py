"""Rate tables, their differences, a price's history and a trial as rows of text: pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

from gateway.management.rate_text import hours_text
from gateway.pages.formatting import NONE, units
from ledger.rate_changes import BASE, PriceChange, RateChange, Span, prices_of, share_text
from ledger.rate_lookup import label_of
from ledger.rates import Rate

ROWS_LIMIT = 1_000
MICRO_PICO = 1_000_000
METERS = ("input", "cached_input", "output")


@dataclass(frozen=True, slots=True, kw_only=True)
class Priced:
    """A rate as a row: its three usual prices, the others, and the terms that go with them."""

    label: str
    input: str
    cached_input: str
    output: str
    others: tuple[str, ...]
    terms: tuple[str, ...]
    from_us: int | None
    to_us: int | None


def rows(rates: Sequence[Rate], wanted: str = "") -> list[Priced]:
    """The rates whose label has the wanted text, as rows, at most ROWS_LIMIT."""
    found = [rate for rate in rates if wanted.lower() in label_of(rate).lower()]
    return [_priced(rate) for rate in found[:ROWS_LIMIT]]


def _priced(rate: Rate) -> Priced:
    prices = prices_of(rate)
    usual = {meter: price_text(meter, prices.get((BASE, meter))) for meter in METERS}
    return Priced(
        label=label_of(rate),
        others=tuple(
            f"{_where(meter, over)} {price_text(meter, amount)}"
            for (over, meter), amount in sorted(prices.items())
            if not (over == BASE and meter in METERS)
        ),
        terms=tuple(_terms(rate)),
        from_us=rate.valid_from_us,
        to_us=rate.valid_to_us,
        **usual,
    )


def _terms(rate: Rate) -> Iterator[str]:
    if rate.batch_multiplier_permille != 1000:
        yield f"batch {rate.batch_multiplier_permille / 10:g} %"
    if rate.tiers:
        whole = "the whole request" if rate.tier_mode == "whole" else "what is above"
        yield f"a tier prices {whole}, {'above' if rate.threshold == 'over' else 'from'} its limit"
    if rate.windows:
        yield hours_text(rate.windows)
    if rate.unpriced:
        yield f"no price for {', '.join(rate.unpriced)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """One price or term of a comparison."""

    label: str
    from_us: int | None
    kind: str
    what: str
    before: str
    after: str
    share: str
    gone_up: bool


def moved(found: Sequence[RateChange]) -> list[Moved]:
    """Each price and term that differs, a row each, at most ROWS_LIMIT."""
    made: list[Moved] = []
    for change in found:
        for price in change.prices:
            before, after = (price_text(price.meter, one) for one in (price.before, price.after))
            what = _where(price.meter, price.over_input_tokens)
            made.append(_moved(change, what, before, after, price))
        for name, was, now in change.terms:
            made.append(_moved(change, name.replace("_", " "), was, now, None))
    return made[:ROWS_LIMIT]


def _moved(
    change: RateChange, what: str, before: str, after: str, price: PriceChange | None
) -> Moved:
    share: Fraction | None = price.share if price else None
    return Moved(
        label=change.label,
        from_us=change.valid_from_us,
        kind=change.kind,
        what=what,
        before=before,
        after=after,
        share=share_text(share) if share is not None else NONE,
        gone_up=share is not None and share > 0,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """A span of a price's history, with the prices of each of its rates."""

    from_us: int
    until_us: int | None
    version: str
    rates: tuple[Priced, ...]
    now: bool


def past(spans: Sequence[Span], now_us: int) -> list[Past]:
    """The spans, the newest first."""
    return [
        Past(
            from_us=span.from_us,
            until_us=span.until_us,
            version=span.version,
            rates=tuple(_priced(rate) for rate in span.rates),
            now=span.from_us <= now_us and (span.until_us is None or now_us < span.until_us),
        )
        for span in reversed(spans)
    ]


def price_text(meter: str, amount: int | None) -> str:
    """Units for a million, of a request for one; a dash for none."""
    if amount is None:
        return NONE
    return units(amount if meter == "request" else amount * MICRO_PICO, 2)


def _where(meter: str, over_input_tokens: int) -> str:
    name = meter.replace("_", " ")
    return name if over_input_tokens == BASE else f"{name} above {over_input_tokens:,} tokens"
