"""Money as integers in pico units (1e-12 of a unit): text, limits, limbs and shares (LED-3).

Pure. No float and no Decimal anywhere: text is read digit by digit and written the same way.
"""

import re
from collections.abc import Sequence

PICO_PER_UNIT = 10**12
INT64_MAX = 2**63 - 1
INT64_MIN = -(2**63)
LIMB = 2**32  # 2^31 rows of any amounts can be summed limb by limb in int64
TEXT_LIMIT_CHARS = 64
EXPONENT_LIMIT = 30

_DECIMAL = re.compile(r"([+-]?)([0-9]+)(?:\.([0-9]+))?(?:[eE]([+-]?[0-9]{1,2}))?")


def units_text(pico: int) -> str:
    """The amount in units as an exact decimal string, shortest form: "0.0036", "3.6", "-1", "0"."""
    whole, fraction = divmod(abs(pico), PICO_PER_UNIT)
    sign = "-" if pico < 0 else ""
    if not fraction:
        return f"{sign}{whole}"
    return f"{sign}{whole}." + f"{fraction:012d}".rstrip("0")


def parse_units(text: str) -> int:
    """The pico units of a decimal string, exactly; ValueError where it is none, or finer than pico.

    Takes "0.0036", "-1", "2e-06"; no spaces, separators or signs of currency.
    """
    return parse_scaled(text, 12)


def parse_scaled(text: str, places: int) -> int:
    """The integer `text` x 10^places, exactly; ValueError where that is no integer (CST-7)."""
    match = _DECIMAL.fullmatch(text) if len(text) <= TEXT_LIMIT_CHARS else None
    if match is None:
        raise ValueError(f"{text[:TEXT_LIMIT_CHARS]!r} is no decimal number such as 0.0036")
    sign, whole, fraction, exponent_text = match.groups()
    fraction = fraction or ""
    exponent = int(exponent_text or 0)
    if abs(exponent) > EXPONENT_LIMIT:
        raise ValueError(f"{text!r} has an exponent beyond ±{EXPONENT_LIMIT}")
    shift = places - len(fraction) + exponent
    value = int(whole + fraction)
    if shift >= 0:
        value *= int(10**shift)
    else:
        value, rest = divmod(value, 10**-shift)
        if rest:
            raise ValueError(f"{text!r} is finer than {places} decimal places")
    return -value if sign == "-" else value


def int64(value: int, name: str) -> int:
    """`value` itself where a column can hold it; OverflowError, naming it, where not."""
    if not INT64_MIN <= value <= INT64_MAX:
        raise OverflowError(f"{name} = {value} doesn't fit a 64-bit column; it must be under 2^63")
    return value


def split(pico: int) -> tuple[int, int]:
    """(high, low) with pico = high x 2^32 + low and 0 <= low < 2^32: what a rollup adds up."""
    return divmod(pico, LIMB)


def join(high: int, low: int) -> int:
    """The amount of two limbs, or of the sums of many; `low` may have outgrown its limb."""
    return high * LIMB + low


def allocate(amount: int, weights: Sequence[int]) -> tuple[int, ...]:
    """Shares of `amount` in proportion to `weights` that add up to it exactly.

    Largest remainder; of equal remainders the earlier share wins: 10,000 over 1:1:1 gives 3,334,
    3,333, 3,333. Weights are whole, not negative and not all zero, else ValueError.
    """
    whole = sum(weights)
    if whole <= 0 or min(weights) < 0:
        raise ValueError(f"can't share out by weights {list(weights)[:8]}: need one above 0")
    parts = [divmod(amount * weight, whole) for weight in weights]
    left = amount - sum(share for share, _ in parts)
    ranked = sorted(range(len(parts)), key=lambda index: (-parts[index][1], index))
    lucky = frozenset(ranked[:left])
    return tuple(share + (index in lucky) for index, (share, _) in enumerate(parts))
