"""The rate of a key, at a time, for a region and a service tier: exact names alone (CST-7). Pure.

A table is prepared once: looking up the usual rate, which holds for any time and place, is one
lookup in a dictionary. A rate has a label, which a receipt keeps: its key, and what it is for.
"""

from collections.abc import Sequence
from typing import TypeAlias

import msgspec

from ledger.rates import Cost, Rate, RateTable, Usage, Window, cost_of, unpriced_meters

STANDARD_TIERS = frozenset({"", "standard", "default", "auto", "on_demand", "standard_only"})
"""What providers call the tier of which a rate says nothing."""
BATCH_TIER = "batch"
PREPARED_LIMIT = 8  # tables that are kept prepared
LABEL_MARK = "#"
DAY_SECONDS = 86_400

Place: TypeAlias = tuple[str, str, str]  # provider, region, service tier


class Priced(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """A price that was found: the label of the rate, the rate, and the cost by it.

    `unpriced`: meters that the usage has and the rate has no price for; the cost lacks them.
    """

    key: str
    rate: Rate
    cost: Cost
    unpriced: tuple[str, ...] = ()


class Unpriced(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """No rate under any of the keys, or none of what was used: never a cost of zero (CST-7)."""

    keys: tuple[str, ...]
    table_version: str
    meters: tuple[str, ...] = ()


class PreparedTable:
    """A table whose rates can be found at once.

    `plain`: keys whose rate holds always and everywhere; `particular`: there are others, too.
    """

    __slots__ = ("by_key", "by_label", "particular", "plain", "table")

    def __init__(self, table: RateTable) -> None:
        self.table = table
        self.by_key: dict[str, list[Rate]] = {}
        self.by_label: dict[str, list[Rate]] = {}
        for rate in table.rates:
            self.by_key.setdefault(rate.key, []).append(rate)
            self.by_label.setdefault(label_of(rate), []).append(rate)
        self.plain = {
            key: rates[0]
            for key, rates in self.by_key.items()
            if all(_is_plain(rate) for rate in rates)  # of several, the first counts
        }
        self.particular = len(self.plain) < len(self.by_key)


_prepared: dict[int, PreparedTable] = {}


def prepared(table: RateTable) -> PreparedTable:
    """The table, prepared; the last few are kept, each as the very object that it was made of."""
    found = _prepared.get(id(table))
    if found is not None and found.table is table:
        return found
    made = PreparedTable(table)
    if len(_prepared) >= PREPARED_LIMIT:
        _prepared.clear()
    _prepared[id(table)] = made
    return made


def label_of(rate: Rate) -> str:
    """The rate's key; then, of one that is for some uses alone, "#" and what it is for."""
    if not (rate.provider or rate.region or rate.service_tier):
        return rate.key
    named = (("provider", rate.provider), ("region", rate.region), ("tier", rate.service_tier))
    return rate.key + LABEL_MARK + ";".join(f"{name}={value}" for name, value in named if value)


def place_of(label: str) -> tuple[str, Place]:
    """(key, place) of a label that `label_of` made."""
    key, _, rest = label.partition(LABEL_MARK)
    said = dict(part.split("=", 1) for part in rest.split(";") if "=" in part)
    return key, (said.get("provider", ""), said.get("region", ""), said.get("tier", ""))


def holds_at(rate: Rate, at_us: int | None) -> bool:
    """Whether the rate is valid at a time and that lies in its windows.

    ValueError for a rate that depends on the time where none is given: the caller has to know it.
    """
    if rate.valid_from_us is None and rate.valid_to_us is None and not rate.windows:
        return True
    if at_us is None:
        raise ValueError(f"rate {rate.key} depends on the time; say at which it is asked for")
    if rate.valid_from_us is not None and at_us < rate.valid_from_us:
        return False
    if rate.valid_to_us is not None and at_us >= rate.valid_to_us:
        return False
    return not rate.windows or any(_in_window(window, at_us) for window in rate.windows)


def rate_of(table: RateTable, label: str, at_us: int | None = None) -> Rate | None:
    """The rate with exactly this label that holds at a time, with no guessing by prefix."""
    known = prepared(table)
    plain = known.plain.get(label)
    if plain is not None:
        return plain
    return _first_that_holds(known.by_label.get(label, ()), at_us)


def select(
    table: RateTable, key: str, *, at_us: int | None = None, place: Place = ("", "", "")
) -> Rate | None:
    """The rate of a key that fits a time and place, the most particular one; None where none fits.

    A rate of any provider or region fits all, one of a named one that alone. A service tier has
    to be met exactly: only a batch goes without a rate of its own by the standard one's multiplier.
    """
    known = prepared(table)
    provider, region, tier = place
    if tier in STANDARD_TIERS:
        tier = ""
    plain = known.plain.get(key)
    if plain is not None and tier in ("", BATCH_TIER):
        return plain
    found = known.by_key.get(key)
    if found is None:
        return None
    for wanted in (tier, "") if tier == BATCH_TIER else (tier,):
        fitting = [
            rate
            for rate in found
            if rate.service_tier == wanted
            and rate.region in ("", region)
            and rate.provider in ("", provider)
        ]
        fitting.sort(key=lambda rate: (not rate.region, not rate.provider))
        rate = _first_that_holds(fitting, at_us)
        if rate is not None:
            return rate
    return None


def price(
    table: RateTable, keys: Sequence[str], usage: Usage, *, batch: bool = False,
    at_us: int | None = None, place: Place = ("", "", ""),
) -> Priced | Unpriced:  # fmt: skip
    """The cost of a usage by the first of `keys` that has a rate, else Unpriced (CST-1, CST-7).

    Callers pass route_id, then identity_id: a route's own price wins over its model's. `at_us` is
    when the request was accepted. A batch is of the tier `batch`, whatever the place says.
    """
    plain = prepared(table).plain
    if batch:
        place = (place[0], place[1], BATCH_TIER)
    for key in keys:
        if key in plain and not usage.meters and place[2] in ("", BATCH_TIER):  # the usual case
            usual = plain[key]
            return Priced(key=key, rate=usual, cost=cost_of(usual, usage, batch=batch))
        rate = select(table, key, at_us=at_us, place=place)
        if rate is not None:
            missing = unpriced_meters(rate, usage) if rate.unpriced or usage.meters else ()
            if not missing or not set(missing) & set(rate.unpriced):
                cost = cost_of(rate, usage, batch=batch)
                return Priced(key=label_of(rate), rate=rate, cost=cost, unpriced=missing)
            return Unpriced(keys=tuple(keys), table_version=table.version, meters=missing)
    return Unpriced(keys=tuple(keys), table_version=table.version)


def price_told(
    table: RateTable, keys: Sequence[str], usage: Usage, *, batch: bool, at_us: int, place: Place
) -> Priced | Unpriced:
    """As `price` of a place whose tier is a provider's word: where no rate has it, the standard.

    Admission reserved by the standard rate; a tier that nobody priced must not make it free. The
    label of what it returns tells which rate it was.
    """
    priced = price(table, keys, usage, batch=batch, at_us=at_us, place=place)
    if isinstance(priced, Priced) or priced.meters or place[2] in STANDARD_TIERS:
        return priced
    standard = (place[0], place[1], "")
    return price(table, keys, usage, batch=batch, at_us=at_us, place=standard)


def _is_plain(rate: Rate) -> bool:
    dated = rate.valid_from_us is not None or rate.valid_to_us is not None
    elsewhere = rate.provider or rate.region or rate.service_tier
    return not (dated or rate.windows or elsewhere or rate.unpriced)


def _first_that_holds(rates: Sequence[Rate], at_us: int | None) -> Rate | None:
    """The first that holds; of two that hold at the same place one with windows goes before."""
    chosen: Rate | None = None
    for rate in rates:
        if not holds_at(rate, at_us):
            continue
        if chosen is None:
            chosen = rate
        elif rate.windows and not chosen.windows and _where(rate) == _where(chosen):
            return rate
    return chosen


def _where(rate: Rate) -> Place:
    return rate.provider, rate.region, rate.service_tier


def _in_window(window: Window, at_us: int) -> bool:
    second = (at_us // 1_000_000 + window.utc_offset_minutes * 60) % DAY_SECONDS
    if window.from_second <= window.to_second:
        return window.from_second <= second < window.to_second
    return second >= window.from_second or second < window.to_second
