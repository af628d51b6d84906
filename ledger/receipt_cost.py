"""Whether a receipt's cost is what its usage and its rate table give (LED-2, CST-1). Pure."""

from bisect import bisect_right
from collections.abc import Mapping
from typing import NamedTuple, Protocol

import msgspec

from ledger.money import INT64_MAX, units_text
from ledger.rate_lookup import prepared, rate_of
from ledger.rates import Cost, Meters, RateTable, Usage, batch_priced, cost_of
from ledger.records import Receipt

NOTHING = Cost(input_pico=0, cached_input_pico=0, output_pico=0, fixed_pico=0)

_meters = msgspec.json.Decoder(dict[str, int])


class Charged(NamedTuple):
    """The fields of a receipt that say what it cost and why: a whole one takes longer to make."""

    revision: int
    resolves_hash: bytes | None
    rate_key: str | None
    rate_table_version: str
    priority: str
    accepted_at_us: int
    input_tokens: int
    cached_input_tokens: int
    output_tokens: int
    usage_json: str | None
    cost_input_pico: int
    cost_cached_input_pico: int
    cost_output_pico: int
    cost_fixed_pico: int
    cost_other_pico: int | None  # null: older than the field
    cost_retry_and_hedge_pico: int
    cost_total_pico: int


def meters_json(meters: Meters) -> str | None:
    """The canonical text of a usage's further meters for a record; None where there are none."""
    if not meters:
        return None
    counted = {name: count for name, count in meters if count}
    return msgspec.json.encode(counted, order="sorted").decode() if counted else None


def read_meters(text: str | None) -> Meters:
    """The meters of a text that `meters_json` made. ValueError for any other."""
    return () if text is None else tuple(_meters.decode(text).items())


def usage_of(receipt: Receipt | Charged) -> Usage:
    """What a receipt prices. ValueError where its further meters can't be read."""
    return Usage(
        input_tokens=receipt.input_tokens,
        output_tokens=receipt.output_tokens,
        cached_input_tokens=receipt.cached_input_tokens,
        meters=read_meters(receipt.usage_json),
    )


class Ended(Protocol):
    """The fields of a receipt that say whether its cost of nothing is one."""

    @property
    def status(self) -> str: ...
    @property
    def rate_key(self) -> str | None: ...
    @property
    def usage_source(self) -> str | None: ...
    @property
    def input_tokens(self) -> int: ...
    @property
    def output_tokens(self) -> int: ...


def unpriced(receipt: Ended) -> bool:
    """Whether it ran without a rate: its answer's cost of nothing stands for no price (CST-7).

    What was refused, or never reached a backend, has no usage, and no price is missing.
    """
    if receipt.rate_key is not None or receipt.usage_source is None:
        return False
    return receipt.status == "completed" or bool(receipt.input_tokens or receipt.output_tokens)


def in_effect(tables: Mapping[str, RateTable], at_us: int) -> str | None:
    """The version in effect at a time: the last one effective by then; None before the first.

    `tables` in the order of publication: of two effective from one instant the later one counts.
    """
    timeline = _timeline(tables)
    place = bisect_right(timeline.starts, at_us)
    return timeline.versions[place - 1] if place else None


def expected_cost(receipt: Receipt | Charged, tables: Mapping[str, RateTable]) -> Cost | str:
    """The receipt's cost computed again, without retries and hedges; or why it can't be.

    A receipt without a rate key was not priced: its cost is nothing.
    """
    if receipt.rate_key is None:
        return NOTHING
    table = tables.get(receipt.rate_table_version)
    if table is None:
        return f"its rate table {receipt.rate_table_version} is not in the ledger"
    try:
        rate = rate_of(table, receipt.rate_key, receipt.accepted_at_us)
        if rate is None:
            return f"rate table {table.version} has no rate {receipt.rate_key} at its time"
        return cost_of(rate, usage_of(receipt), batch=batch_priced(receipt.priority))
    except ValueError as error:
        return str(error)


def cost_fault(receipt: Receipt | Charged, tables: Mapping[str, RateTable]) -> str | None:
    """None when every component and the total are exact; else what differs, in units.

    The rate table has to be the one that was in effect when the request was accepted.
    """
    if _plainly_exact(receipt, tables):
        return None
    expected = expected_cost(receipt, tables)
    if isinstance(expected, str):
        return expected
    due = in_effect(tables, receipt.accepted_at_us)
    if receipt.rate_key is not None and due != receipt.rate_table_version:
        return f"it is priced by {receipt.rate_table_version}; in effect at its time was {due}"
    if _recorded(receipt) == _computed(receipt, expected):
        return None
    return "; ".join(
        f"{name} is {units_text(recorded)}, computed {units_text(computed)}"
        for name, recorded, computed in zip(
            _COMPONENTS, _recorded(receipt), _computed(receipt, expected), strict=True
        )
        if recorded != computed
    )


_COMPONENTS = ("input", "cached input", "output", "fixed", "further meters", "total")


def _recorded(receipt: Receipt | Charged) -> tuple[int, ...]:
    return (
        receipt.cost_input_pico,
        receipt.cost_cached_input_pico,
        receipt.cost_output_pico,
        receipt.cost_fixed_pico,
        receipt.cost_other_pico or 0,
        receipt.cost_total_pico,
    )


def _computed(receipt: Receipt | Charged, cost: Cost) -> tuple[int, ...]:
    return (
        cost.input_pico,
        cost.cached_input_pico,
        cost.output_pico,
        cost.fixed_pico,
        cost.other_pico,
        cost.total_pico + receipt.cost_retry_and_hedge_pico,
    )


class FlatRate(NamedTuple):
    """A rate of one price each, that holds while its table is in effect."""

    input_micro: int
    cached_micro: int
    output_micro: int
    fixed_pico: int
    from_us: int
    until_us: int
    batch: bool  # a batch costs the same


RateName = tuple[str, str]  # version of the table, key


class _Timeline:
    """When each table is in effect, and the rates by which most receipts are checked at once."""

    def __init__(self, tables: Mapping[str, RateTable]) -> None:
        # Stable: of equal starts the one published later stands last, and bisect finds that.
        ordered = sorted(tables.values(), key=lambda table: table.effective_from_us)
        self.starts = [table.effective_from_us for table in ordered]
        self.versions = [table.version for table in ordered]
        self.flat: dict[RateName, FlatRate] = {}
        ends = [*self.starts[1:], INT64_MAX][: len(ordered)]
        for table, until_us in zip(ordered, ends, strict=True):
            for key, rate in prepared(table).plain.items():
                if not rate.tiers:
                    self.flat[table.version, key] = FlatRate(
                        rate.input_micro_per_mtok,
                        rate.cached_input_micro_per_mtok,
                        rate.output_micro_per_mtok,
                        rate.fixed_pico,
                        table.effective_from_us,
                        until_us,
                        rate.batch_multiplier_permille == 1000,
                    )


class _Memory:
    """The timeline of the tables used last, and how many there were; one attribute for threads."""

    last: tuple[Mapping[str, RateTable], int, _Timeline] | None = None


def _timeline(tables: Mapping[str, RateTable]) -> _Timeline:
    last = _Memory.last
    if last is not None and last[0] is tables and last[1] == len(tables):
        return last[2]
    made = _Timeline(tables)
    _Memory.last = (tables, len(tables), made)
    return made


def flat_rates(tables: Mapping[str, RateTable]) -> Mapping[RateName, FlatRate]:
    """The rates of one price each, by table's version and key."""
    return _timeline(tables).flat


def _plainly_exact(receipt: Receipt | Charged, tables: Mapping[str, RateTable]) -> bool:
    """Whether a receipt of a flat rate is exact: what `cost_fault` says, in a fraction of the time.

    False says nothing: it may be exact by a rate that takes more to compute.
    """
    key = receipt.rate_key
    if key is None or receipt.usage_json is not None:
        return False
    flat = _timeline(tables).flat.get((receipt.rate_table_version, key))
    if flat is None or not flat.from_us <= receipt.accepted_at_us < flat.until_us:
        return False
    if batch_priced(receipt.priority) and not flat.batch:
        return False
    cached, fixed_pico = receipt.cached_input_tokens, receipt.cost_fixed_pico
    if receipt.cost_other_pico or receipt.output_tokens < 0:
        return False
    if not 0 <= cached <= receipt.input_tokens:
        return False
    input_pico = (receipt.input_tokens - cached) * flat.input_micro
    cached_pico = cached * flat.cached_micro
    output_pico = receipt.output_tokens * flat.output_micro
    return (
        receipt.cost_input_pico == input_pico
        and receipt.cost_cached_input_pico == cached_pico
        and receipt.cost_output_pico == output_pico
        and fixed_pico == flat.fixed_pico
        and receipt.cost_total_pico
        == input_pico + cached_pico + output_pico + fixed_pico + receipt.cost_retry_and_hedge_pico
    )
