"""A receipt as FOCUS 1.2 charges: one row for each component of its cost (CST-9). Pure.

Nothing is negotiated or prepaid here, so list, contracted, effective and billed cost are one. A
charge's period is the quarter hour in which its request was accepted; its unit price is there
where it is exact. Abstract units have ISO 4217's code for no currency.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, tzinfo

import msgspec

from ledger.focus.columns import COLUMNS
from ledger.money import units_text
from ledger.queries.charges import Charged
from ledger.rate_lookup import rate_of
from ledger.rates import Rate, RateTable, priced_apart, unpriced_meters
from ledger.receipt_cost import unpriced, usage_of
from ledger.records import Receipt
from ledger.spreadsheets import safe_cell
from ledger.zones import QUARTER_US, day_start_us, to_local

NO_CURRENCY = "X" * 3  # ISO 4217 keeps it for transactions without a currency
CUSTOM = (
    "x_RequestId", "x_ProviderRequestId", "x_Model", "x_ApiKey", "x_RouteId", "x_Priority",
    "x_Status", "x_Simulated", "x_Unpriced", "x_RateTable",
)  # fmt: skip
HEADINGS = (*(column.name for column in COLUMNS), *CUSTOM)

UNPRICED = "Unpriced Meters"
_TOKENS, _REQUESTS = "Tokens", "Requests"
_PLACES = {name: place for place, name in enumerate(HEADINGS)}
_NUMBERS = frozenset(column.name for column in COLUMNS if column.kind == "decimal")


class Component(msgspec.Struct, frozen=True):
    """A part of a cost. `meter`: its SkuMeter. `quantity` is what was used, `priced` as much of it
    as the cost is for: tokens that a further meter's own price is for are in Other Meters."""

    meter: str
    unit: str
    quantity: int
    pico: int
    priced: int
    details: dict[str, int] = {}


class Issuer(msgspec.Struct, frozen=True, kw_only=True):
    """Who charges: the operator of the gateway, by the name that its tenants know."""

    name: str = "Weighbridge"
    account: str = "weighbridge"
    service: str = "Inference gateway"


def components(receipt: Receipt, rate: Rate | None = None) -> Iterator[Component]:
    """The parts with a quantity or a cost; their sum is the receipt's total, exactly.

    `rate`: the one that priced it; without it all tokens count as priced by their component. What
    it has no price for is a part of its own, which costs nothing and says so (CST-7).
    """
    usage = usage_of(receipt)
    apart = priced_apart(rate, usage) if rate else (0, 0, 0)
    missing = unpriced_meters(rate, usage) if rate else ()
    meters = {name: count for name, count in usage.meters if name not in missing}
    lacking = {name: count for name, count in usage.meters if name in missing}
    fresh = receipt.input_tokens - receipt.cached_input_tokens
    other_pico, fixed_pico = receipt.cost_other_pico, receipt.cost_fixed_pico
    beside_pico = receipt.cost_retry_and_hedge_pico
    beside = max(1, receipt.attempts - 1) if beside_pico else 0
    parts = (
        _tokens("Input Tokens", fresh, receipt.cost_input_pico, apart[0]),
        _tokens("Cached Input Tokens", receipt.cached_input_tokens,
                receipt.cost_cached_input_pico, apart[1]),
        _tokens("Output Tokens", receipt.output_tokens, receipt.cost_output_pico, apart[2]),
        _requests("Other Meters", int(other_pico != 0), other_pico, meters),
        _requests("Fixed Price", int(fixed_pico != 0), fixed_pico, {}),
        _requests("Retries and Hedges", beside, beside_pico, {}),
        _requests(UNPRICED, int(bool(lacking)), 0, lacking),
    )  # fmt: skip
    return (part for part in parts if part.quantity or part.pico)


def _tokens(meter: str, count: int, pico: int, apart: int) -> Component:
    return Component(meter, _TOKENS, count, pico, count - apart)


def _requests(meter: str, count: int, pico: int, details: dict[str, int]) -> Component:
    return Component(meter, _REQUESTS, count, pico, count, details)


class Rows:
    """Makes rows of HEADINGS; what many receipts share is made once."""

    def __init__(self, issuer: Issuer, zone: tzinfo, tables: Mapping[str, RateTable]) -> None:
        self._zone = zone
        self._tables = tables
        self._currencies = {
            version: name if len(name) == 3 and name.isascii() and name.isupper() else NO_CURRENCY
            for version, name in ((table.version, table.currency) for table in tables.values())
        }
        self._months: dict[int, tuple[str, str]] = {}
        self._quarter: tuple[int, dict[str, str]] = (-1, {})
        self._same = _cells([""] * len(HEADINGS), _of_issuer(issuer))

    def of(self, charged: Charged) -> Iterator[list[str]]:
        """The rows of a receipt, in the order of its components."""
        receipt = charged.receipt
        common = _cells(self._same, self._times(receipt.accepted_at_us))
        currency = self._currencies.get(receipt.rate_table_version, NO_CURRENCY)
        common = _cells(common, _of_receipt(charged, currency))
        for part in components(receipt, self._rate(receipt)):
            yield _cells(common, _of_part(receipt, part))

    def _rate(self, receipt: Receipt) -> Rate | None:
        """What priced it, where that tells more than its components do."""
        table = self._tables.get(receipt.rate_table_version)
        if table is None or receipt.rate_key is None or receipt.usage_json is None:
            return None
        return rate_of(table, receipt.rate_key, receipt.accepted_at_us)

    def _times(self, at_us: int) -> dict[str, str]:
        start_us = at_us - at_us % QUARTER_US
        if self._quarter[0] != start_us:
            month = self._month(start_us)
            times = {
                "ChargePeriodStart": _time(start_us),
                "ChargePeriodEnd": _time(start_us + QUARTER_US),
                "BillingPeriodStart": month[0],
                "BillingPeriodEnd": month[1],
            }
            self._quarter = (start_us, times)
        return self._quarter[1]

    def _month(self, at_us: int) -> tuple[str, str]:
        """The billing period: the reporting zone's calendar month, as UTC times."""
        local = to_local(at_us, self._zone)
        key = local.year * 12 + local.month
        if key not in self._months:
            first = local.date().replace(day=1)
            following = first.replace(
                year=first.year + first.month // 12, month=first.month % 12 + 1
            )
            start, end = day_start_us(first, self._zone), day_start_us(following, self._zone)
            self._months[key] = (_time(start), _time(end))
        return self._months[key]


def _cells(row: Sequence[str], values: Mapping[str, str]) -> list[str]:
    """A copy of the row with these values in their columns."""
    cells = list(row)
    for name, value in values.items():
        cells[_PLACES[name]] = value if name in _NUMBERS else safe_cell(value)
    return cells


def _of_issuer(issuer: Issuer) -> dict[str, str]:
    return {
        "BillingAccountId": issuer.account,
        "BillingAccountName": issuer.name,
        "BillingAccountType": "Gateway",
        "ChargeCategory": "Usage",
        "ChargeFrequency": "Usage-Based",
        "InvoiceIssuerName": issuer.name,
        "PricingCategory": "Standard",
        "ProviderName": issuer.name,
        "PublisherName": issuer.name,
        "ResourceType": "Inference request",
        "ServiceCategory": "AI and Machine Learning",
        "ServiceSubcategory": "Generative AI",
        "ServiceName": issuer.service,
        "SubAccountType": "Tenant",
    }


def _of_receipt(charged: Charged, currency: str) -> dict[str, str]:
    receipt = charged.receipt
    return {
        "BillingCurrency": currency,
        "PricingCurrency": currency,
        "ResourceId": receipt.request_id,
        "SubAccountId": receipt.tenant_id,
        "SubAccountName": receipt.tenant_id,
        "Tags": receipt.tags_json,
        "x_RequestId": receipt.request_id,
        "x_ProviderRequestId": charged.provider_request_id or "",
        "x_Model": receipt.logical_model,
        "x_ApiKey": receipt.key_id,
        "x_RouteId": receipt.route_id or "",
        "x_Priority": receipt.priority,
        "x_Status": receipt.status,
        "x_Simulated": "true" if receipt.simulated else "false",
        "x_RateTable": receipt.rate_table_version,
    }


def _of_part(receipt: Receipt, part: Component) -> dict[str, str]:
    lacking = part.meter == UNPRICED or (not part.pico and unpriced(receipt))
    cost, price = units_text(part.pico), "" if lacking else _exact_price(part)
    sku = receipt.rate_key or receipt.route_id or ""
    batch = receipt.priority == "batch" and part.unit == _TOKENS
    meter = f"Batch {part.meter}" if batch else part.meter
    details: dict[str, str | int] = {"x_Meter": part.meter}
    for name, count in part.details.items():
        details[f"x_{name}"] = count
    return {
        "x_Unpriced": "true" if lacking else "false",
        "BilledCost": cost,
        "ContractedCost": cost,
        "EffectiveCost": cost,
        "ListCost": cost,
        "PricingCurrencyEffectiveCost": cost,
        "ContractedUnitPrice": price,
        "ListUnitPrice": price,
        "PricingCurrencyContractedUnitPrice": price,
        "PricingCurrencyListUnitPrice": price,
        "ConsumedQuantity": str(part.quantity),
        "ConsumedUnit": part.unit,
        "PricingQuantity": str(part.priced),
        "PricingUnit": part.unit,
        "ChargeDescription": f"{receipt.logical_model}: {meter.lower()}",
        "SkuId": sku,
        "SkuMeter": meter,
        "SkuPriceDetails": msgspec.json.encode(details).decode(),
        "SkuPriceId": f"{receipt.rate_table_version}/{sku}/{meter}",
    }


def _exact_price(part: Component) -> str:
    """The price of one unit, where cost / quantity is exact to a pico unit; else null."""
    if not part.priced or part.pico % part.priced:
        return ""
    return units_text(part.pico // part.priced)


def _time(at_us: int) -> str:
    return f"{datetime.fromtimestamp(at_us // 1_000_000, UTC):%Y-%m-%dT%H:%M:%SZ}"
