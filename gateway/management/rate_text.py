"""Rate tables' differences, histories and trials as lines of text. Pure."""

from collections.abc import Iterator, Sequence

from gateway.fleet_file.named import instant
from ledger.money import units_text
from ledger.rate_changes import BASE, PriceChange, RateChange, Span, prices_of, share_text
from ledger.rates import Rate, Window
from ledger.what_if import Sums, Trial

MICRO_PICO = 1_000_000


def change_lines(found: Sequence[RateChange]) -> Iterator[str]:
    """Each rate that differs, its prices per million units below it; else that nothing does."""
    if not found:
        yield "No price differs."
    for change in found:
        dated = "" if change.valid_from_us is None else f" from {_when(change.valid_from_us)}"
        yield f"{change.label}{dated}: {change.kind}"
        for price in change.prices:
            yield f"  {_where(price.meter, price.over_input_tokens)}: {_moved(price)}"
        for field, before, after in change.terms:
            yield f"  {field}: {before} -> {after}"


def history_lines(spans: Sequence[Span]) -> Iterator[str]:
    """Each span with its rates, the oldest first."""
    for span in spans:
        until = "" if span.until_us is None else f" until {_when(span.until_us)}"
        yield f"{_when(span.from_us)}{until}  {span.version}"
        if not span.rates:
            yield "  no price"
        for rate in span.rates:
            yield f"  {_hours(rate.windows)}{_prices(rate)}"


def trial_lines(trial: Trial, currency: str) -> Iterator[str]:
    """The whole, then each group: the requests that both price, with what they cost before, cost
    by the table, and the difference; below it, on lines of their own, those without a price."""
    yield from _sums_lines("all", trial.whole, trial.version, currency)
    for values, sums in trial.groups:
        label = " / ".join(value or "-" for value in values)
        yield from _sums_lines(label, sums, trial.version, currency)
    before_pico = trial.whole.retry_and_hedge_before_pico
    by_table_pico = trial.whole.retry_and_hedge_by_table_pico
    if before_pico or by_table_pico:
        yield (
            f"Retries and hedges are {units_text(before_pico)} before -> "
            f"{units_text(by_table_pico)} {currency} by {trial.version} of it."
        )


def _sums_lines(label: str, sums: Sums, version: str, currency: str) -> Iterator[str]:
    asked = f"{label}: {_requests(sums.requests)}"
    if sums.difference_pico is None:
        yield f"{asked}, none priced both before and by {version}"
    else:
        some = "" if sums.compared == sums.requests else f", {sums.compared:,} priced by both"
        yield (
            f"{asked}{some}: {units_text(sums.before_pico)} before -> "
            f"{units_text(sums.by_table_pico)} {currency} by {version}, "
            f"difference {units_text(sums.difference_pico)}"
        )
    by_table, before = (
        count - sums.unpriced_both for count in (sums.unpriced_by_table, sums.unpriced_before)
    )
    if by_table:
        cost = f"{units_text(sums.apart_before_pico)} {currency} before"
        yield f"  unpriced by {version}: {_requests(by_table)}, not compared; {cost}"
    if before:
        cost = f"{units_text(sums.apart_by_table_pico)} {currency} by {version}"
        yield f"  unpriced before: {_requests(before)}, not compared; {cost}"
    if sums.unpriced_both:
        yield f"  unpriced before and by {version}: {_requests(sums.unpriced_both)}"


def _requests(count: int) -> str:
    return "1 request" if count == 1 else f"{count:,} requests"


def _where(meter: str, over_input_tokens: int) -> str:
    return meter if over_input_tokens == BASE else f"{meter} over {over_input_tokens:,} tokens"


def _moved(price: PriceChange) -> str:
    if price.before is None or price.after is None:
        side = "new at" if price.before is None else "gone, was"
        amount = price.after if price.before is None else price.before
        return f"{side} {_price(price.meter, amount or 0)}"
    before, after = _price(price.meter, price.before), _price(price.meter, price.after)
    return f"{before} -> {after} ({share_text(price.share)})"


def _prices(rate: Rate) -> str:
    parts = [
        f"{_where(meter, over)} {_price(meter, price)}"
        for (over, meter), price in sorted(prices_of(rate).items())
    ]
    if rate.batch_multiplier_permille != 1000:
        parts.append(f"batch x {rate.batch_multiplier_permille}/1000")
    if rate.unpriced:
        parts.append(f"unpriced: {', '.join(rate.unpriced)}")
    return "; ".join(parts)


def _price(meter: str, amount: int) -> str:
    """Units for a million, of a request for one."""
    return units_text(amount if meter == "request" else amount * MICRO_PICO)


def hours_text(windows: Sequence[Window]) -> str:
    """The hours of the day at which a rate holds; "" where it always does."""
    return ", ".join(
        f"{_clock(window.from_second)}-{_clock(window.to_second)} UTC{_offset(window)}"
        for window in windows
    )


def _hours(windows: Sequence[Window]) -> str:
    return f"{hours_text(windows)}: " if windows else ""


def _clock(second: int) -> str:
    return f"{second // 3600:02}:{second % 3600 // 60:02}:{second % 60:02}"


def _offset(window: Window) -> str:
    minutes = window.utc_offset_minutes
    if not minutes:
        return ""
    return f"{'-' if minutes < 0 else '+'}{abs(minutes) // 60:02}:{abs(minutes) % 60:02}"


def _when(at_us: int) -> str:
    return instant(at_us).isoformat(timespec="seconds")
