"""What keeps a rate table from being published (CST-7), and the row that publishes it."""

import sqlite3
from collections.abc import Iterator
from typing import Final

import msgspec

from gateway.fleet_file.named import INSTANT_LIMIT_US, Fault, Path, instant
from gateway.operations.base import Seen
from gateway.operations.drafting import name_problem
from ledger.meters import METERS, ROOTS
from ledger.queries import configuration as stored
from ledger.rate_lookup import DAY_SECONDS, LABEL_MARK, STANDARD_TIERS, label_of
from ledger.rates import Rate, RateTable
from ledger.records import RateTableRecord

LEAD_US: Final = 5_000_000
"""How long before it takes effect a table is published at least: no request that was accepted
before its publication may fall under it."""
RATES_LIMIT = 10_000
TIERS_LIMIT = 16
WINDOWS_LIMIT = 24
PERMILLE_MOST = 1_000
UTC_OFFSET_MOST_MINUTES = 24 * 60
NEVER_US: Final = 2**63 - 1
_PLACES: Final = ("provider", "region", "service_tier")


def table_faults(table: RateTable, seen: Seen) -> Iterator[Fault]:
    """Yield everything that keeps a table from being published now."""
    wrong = name_problem(table.version, "version")
    if wrong is not None:
        yield Fault(path=("version",), what=wrong.message, action="Rename it")
    if not table.currency:
        yield Fault(path=("currency",), what="it is empty", action="Say USD, EUR or units")
    published = stored.rate_tables(seen.connection)
    if published and table.currency != published[0].currency:
        # Sums, budgets and holds of a ledger add amounts without looking at their currency.
        yield Fault(
            path=("currency",),
            what=f"every table of this ledger is in {published[0].currency}",
            action=f"Convert the prices and say {published[0].currency}",
        )
    yield from _effective(table, seen)
    if not table.rates:
        yield Fault(path=("rates",), what="there is none", action="Give at least one")
    if len(table.rates) > RATES_LIMIT:
        what = f"there are {len(table.rates)} of at most {RATES_LIMIT}"
        yield Fault(path=("rates",), what=what, action="Drop some")
    for index, rate in enumerate(table.rates):
        for fault in _rate(rate):
            yield Fault(path=("rates", index, *fault.path), what=fault.what, action=fault.action)
    yield from _twice(table)


def earliest_us(connection: sqlite3.Connection, now_us: int) -> int:
    """Return from when on a table published now may be in effect.

    Before the first table nothing can have been priced, so that the first may lie in the past.
    """
    return now_us + LEAD_US if stored.rate_tables(connection) else 0


def record_of_table(table: RateTable, seen: Seen) -> RateTableRecord:
    """A table as the row that publishes it."""
    return RateTableRecord(
        version=table.version,
        effective_from_us=table.effective_from_us,
        currency=table.currency,
        body_json=msgspec.json.encode(table).decode(),
        published_at_us=seen.now_us,
        published_by=seen.actor.label,
    )


def _effective(table: RateTable, seen: Seen) -> Iterator[Fault]:
    earliest = earliest_us(seen.connection, seen.now_us)
    path: Path = ("effective_from_us",)
    if table.effective_from_us < earliest:
        yield Fault(
            path=path,
            what=f"it has to be {LEAD_US // 1_000_000} s ahead: what was accepted keeps its price",
            action=f"Set it to {instant(earliest).isoformat(timespec='seconds')} or later",
        )
    if table.effective_from_us >= INSTANT_LIMIT_US:
        yield Fault(path=path, what="it is after the year 2999", action="Set it to an earlier one")


def _rate(rate: Rate) -> Iterator[Fault]:
    """What is off in one rate, by its path in it."""
    if not rate.key:
        yield Fault(path=("key",), what="it is empty", action="Name a route or model identity")
    for name, marks in (
        ("key", LABEL_MARK), *((place, LABEL_MARK + ";=") for place in _PLACES)
    ):  # fmt: skip
        if set(marks) & set(getattr(rate, name)):
            what = f"it has one of {' '.join(marks)}, which tell rates apart on a receipt"
            yield Fault(path=(name,), what=what, action="Leave it out")
    prices: list[tuple[Path, int]] = [
        ((name,), getattr(rate, name))
        for name in (
            "input_micro_per_mtok", "output_micro_per_mtok", "cached_input_micro_per_mtok",
            "fixed_pico",
        )
    ]  # fmt: skip
    for index, tier in enumerate(rate.tiers):
        prices += [
            (("tiers", index, name), getattr(tier, name))
            for name in (
                "over_input_tokens", "input_micro_per_mtok", "output_micro_per_mtok",
                "cached_input_micro_per_mtok",
            )
        ]  # fmt: skip
    for path, value in prices:
        if value < 0:
            yield Fault(path=path, what=f"it is {value}", action="Set it to 0 or more")
    if not 0 <= rate.batch_multiplier_permille <= PERMILLE_MOST:
        yield Fault(
            path=("batch_multiplier_permille",),
            what=f"it is {rate.batch_multiplier_permille}",
            action=f"Set it between 0 and {PERMILLE_MOST}",
        )
    thresholds = [tier.over_input_tokens for tier in rate.tiers]
    if len(set(thresholds)) < len(thresholds):
        yield Fault(path=("tiers",), what="two have one threshold", action="Keep one of them")
    for name, count, limit in (
        ("tiers", len(rate.tiers), TIERS_LIMIT), ("windows", len(rate.windows), WINDOWS_LIMIT),
    ):  # fmt: skip
        if count > limit:
            yield Fault(
                path=(name,), what=f"there are {count} of at most {limit}", action="Drop some"
            )
    if rate.service_tier in STANDARD_TIERS and rate.service_tier:
        what = f"{rate.service_tier} is the standard tier"
        yield Fault(path=("service_tier",), what=what, action="Leave it out")
    yield from _meters(rate)
    yield from _times(rate)


def _meters(rate: Rate) -> Iterator[Fault]:
    named: list[tuple[Path, tuple[tuple[str, int], ...]]] = [(("meters",), rate.meters)]
    named += [(("tiers", index, "meters"), tier.meters) for index, tier in enumerate(rate.tiers)]
    for path, meters in named:
        names = [name for name, _ in meters]
        for index, (name, price) in enumerate(meters):
            if name not in METERS or names.count(name) > 1 or price < 0:
                yield Fault(
                    path=(*path, index),
                    what="it is no meter with a price of 0 or more, or is there twice",
                    action=f"Meters are {', '.join(METERS)}",
                )
    for index, root in enumerate(rate.unpriced):
        if root not in ROOTS:
            what = "it is no meter that a rate can lack"
            yield Fault(path=("unpriced", index), what=what, action=f"Use {', '.join(ROOTS)}")


def _times(rate: Rate) -> Iterator[Fault]:
    begins, ends = _validity(rate)
    if begins >= ends:
        what = "it ends before it begins"
        yield Fault(path=("valid_to_us",), what=what, action="Set it after valid_from_us")
    for index, window in enumerate(rate.windows):
        seconds = (window.from_second, window.to_second)
        if any(not 0 <= each <= DAY_SECONDS for each in seconds) or seconds[0] == seconds[1]:
            what = f"from {seconds[0]} to {seconds[1]} is no span of a day"
            action = f"Use two different seconds of 0 to {DAY_SECONDS}"
            yield Fault(path=("windows", index), what=what, action=action)
        if abs(window.utc_offset_minutes) > UTC_OFFSET_MOST_MINUTES:
            path: Path = ("windows", index, "utc_offset_minutes")
            yield Fault(path=path, what="no zone is that far from UTC", action="Correct it")


def _validity(rate: Rate) -> tuple[int, int]:
    begins = -NEVER_US if rate.valid_from_us is None else rate.valid_from_us
    return begins, NEVER_US if rate.valid_to_us is None else rate.valid_to_us


def _twice(table: RateTable) -> Iterator[Fault]:
    """Rates for the same use at the same time, of which only the first would ever count."""
    earlier: dict[tuple[str, bool], list[tuple[int, int]]] = {}
    for index, rate in enumerate(table.rates):
        begins, ends = _validity(rate)
        same = earlier.setdefault((label_of(rate), bool(rate.windows)), [])
        if not rate.windows and any(begins < last and first < ends for first, last in same):
            yield Fault(
                path=("rates", index, "key"),
                what="an earlier rate has this key for the same use and time",
                action="Keep one of them",
            )
        same.append((begins, ends))
