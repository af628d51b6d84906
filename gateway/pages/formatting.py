"""Numbers and times as people read them: pure, exact, integer arithmetic only.

Durations come in microseconds and money in pico units; what a page shows of an amount is the whole
amount, never a rounded one.
"""

from datetime import UTC, datetime, tzinfo

NONE = "–"
JOIN = "\u00a0"  # between a number and its unit, which stay on one line
MONEY_PLACES = 6  # shown at least, so that decimal points line up
PICO_PER_UNIT = 10**12


def thousands(number: int | None) -> str:
    """1234567 -> "1,234,567"; None -> a dash."""
    return NONE if number is None else f"{number:,}"


def milliseconds(us: int | None, places: int = 1) -> str:
    """Microseconds as milliseconds, rounded half up: 440_000 -> "440.0", 5_216_040 -> "5,216.0"."""
    if us is None:
        return NONE
    scale = 10 ** (3 - places)
    rounded = (abs(us) + scale // 2) // scale
    whole, fraction = divmod(rounded, 10**places)
    sign = "-" if us < 0 and rounded else ""
    return f"{sign}{whole:,}" + (f".{fraction:0{places}d}" if places else "")


def duration(us: int | None) -> str:
    """A length of time with its unit: "640 µs", "440.0 ms", "5.216 s", "2 min 5 s".

    Rounded half up below a minute, and down above.
    """
    if us is None:
        return NONE
    if us < 0:
        return "-" + duration(-us)
    if us < 1_000:
        return f"{us}{JOIN}µs"
    if us < 1_000_000:
        return f"{milliseconds(us)}{JOIN}ms"
    seconds = us // 1_000_000
    if seconds < 60:
        whole, thousandths = divmod((us + 500) // 1_000, 1_000)
        return f"{whole}.{thousandths:03d}{JOIN}s"
    if seconds < 3600:
        return _two(seconds // 60, "min", seconds % 60, "s")
    if seconds < 86_400:
        return _two(seconds // 3600, "h", seconds % 3600 // 60, "min")
    return _two(seconds // 86_400, "d", seconds % 86_400 // 3600, "h")


def _two(large: int, unit: str, small: int, lesser: str) -> str:
    """ "2 min 5 s"; "2 min" alone where the rest is nothing."""
    first = f"{large}{JOIN}{unit}"
    return f"{first} {small}{JOIN}{lesser}" if small else first


def axis_duration(us: float) -> str:
    """A round length of time for an axis: "500 µs", "20 ms", "1.5 s", "2 min"; "0" for none."""
    if us < 1:
        return "0"
    for size, unit in ((60_000_000, "min"), (1_000_000, "s"), (1_000, "ms")):
        if us >= size:
            return f"{us / size:.4g} {unit}"
    return f"{us:.4g} µs"


def units(pico: int | None, places: int = MONEY_PLACES) -> str:
    """Pico units as an exact decimal with at least `places` decimals: 3_600_000_000 -> "0.003600".

    More decimals are shown where the amount has them; nothing is rounded (LED-3).
    """
    if pico is None:
        return NONE
    whole, fraction = divmod(abs(pico), PICO_PER_UNIT)
    digits = f"{fraction:012d}".rstrip("0").ljust(places, "0")
    return f"{'-' if pico < 0 else ''}{whole:,}.{digits}"


def signed(pico: int | None, places: int = MONEY_PLACES) -> str:
    """As `aligned`, with the sign of a difference: "+0.003600", "-1.000000", "0.000000"."""
    text = aligned(pico, places)
    return f"+{text}" if pico is not None and pico > 0 else text


def aligned(pico: int | None, places: int = 9) -> str:
    """As `units`, filled up behind with blanks, so that decimal points of a column line up."""
    text = units(pico)
    if pico is None:
        return text
    return text + "\u00a0" * max(0, places - (len(text) - text.index(".") - 1))


def price(micro_per_mtok: int | None) -> str:
    """Micro-units per million tokens as units per million tokens: 2_000_000 -> "2.00"."""
    return units(None if micro_per_mtok is None else micro_per_mtok * 1_000_000, places=2)


def milli(value: int | None) -> str:
    """Thousandths as a decimal: 850 -> "0.850"."""
    return NONE if value is None else f"{value // 1000}.{value % 1000:03d}"


def percent(part: int, whole: int, places: int = 1) -> str:
    """part / whole in per cent, rounded half up; a dash where the whole is 0."""
    if not whole:
        return NONE
    scaled = (2 * abs(part) * 100 * 10**places + abs(whole)) // (2 * abs(whole))
    head, tail = divmod(scaled, 10**places)
    sign = "-" if (part < 0) != (whole < 0) and scaled else ""
    return f"{sign}{head:,}" + (f".{tail:0{places}d}" if places else "") + f"{JOIN}%"


def iso(us: int, zone: tzinfo = UTC) -> str:
    """Microseconds since the epoch as ISO 8601 to the millisecond: "2026-01-31T12:00:00.250Z"."""
    moment = datetime.fromtimestamp(us // 1_000_000, tz=zone)
    offset = "Z" if zone is UTC else moment.strftime("%z")[:3] + ":" + moment.strftime("%z")[3:]
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{us % 1_000_000 // 1000:03d}{offset}"


def day(us: int, zone: tzinfo = UTC) -> str:
    return f"{datetime.fromtimestamp(us // 1_000_000, tz=zone):%d %b %Y}"


def clock_time(us: int, zone: tzinfo = UTC) -> str:
    """The time of day to the millisecond: "12:00:00.250"."""
    moment = datetime.fromtimestamp(us // 1_000_000, tz=zone)
    return f"{moment:%H:%M:%S}.{us % 1_000_000 // 1000:03d}"


def short_id(identifier: str, keep: int = 8) -> str:
    """The end of an id, where time-ordered ids differ: "req_…1f3a9c2e"; short ones stay whole."""
    if len(identifier) <= keep + 6:
        return identifier
    prefix = identifier.split("_", 1)[0] + "_" if "_" in identifier else ""
    return f"{prefix}…{identifier[-keep:]}"
