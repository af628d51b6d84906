"""Amounts of other currencies, through a rate that has a date and a source (REC-2). Pure."""

from ledger.money import parse_scaled

RATE_PLACES = 18
RATE_LIMIT = 10**12  # of one unit in another: a sum of any lines by it stays readable as a text
RATE_AGE_LIMIT_DAYS = 7  # over a weekend and a holiday, not over a month


def rate_scaled(text: str) -> int:
    """The rate x 10^18, exactly; ValueError where it is no decimal number above 0, or too large."""
    value = parse_scaled(text, RATE_PLACES)
    if value <= 0:
        raise ValueError(f"{text!r} is no rate: it must be above 0")
    if value > RATE_LIMIT * 10**RATE_PLACES:
        raise ValueError(f"{text!r} is no rate: no currency is worth over 10^12 of another")
    return value


def converted(pico: int, scaled: int) -> int:
    """`pico` x the rate, rounded half to even to a pico unit."""
    one = int(10**RATE_PLACES)
    whole, rest = divmod(pico * scaled, one)
    if 2 * rest > one or (2 * rest == one and whole % 2):
        whole += 1
    return whole
