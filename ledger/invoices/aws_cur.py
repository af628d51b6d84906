"""AWS: the legacy Cost and Usage Report of Bedrock (REC-1). Pure.

AWS bills its own meters by 1,000 tokens and Marketplace models by a million ("Units"); the model
of the latter stands in the product's name alone. An InvoiceId is empty until the month closes.
"""

import re

from ledger.invoices.fields import TOKENS_LIMIT, Fields, rounded_to
from ledger.invoices.files import csv_rows
from ledger.invoices.values import Kind, Line, Page

PROVIDER = "aws"

_TYPE = "lineItem/LineItemType"
_TAG = "resourceTags/user:"
_KINDS: dict[str, Kind] = {
    "Usage": "usage", "DiscountedUsage": "usage", "SavingsPlanCoveredUsage": "usage",
    "Credit": "credit", "EdpDiscount": "credit", "PrivateRateDiscount": "credit",
    "BundledDiscount": "credit", "Discount": "credit", "SavingsPlanNegation": "credit",
    "Refund": "refund", "Tax": "tax", "Fee": "fee", "RIFee": "commitment",
    "SavingsPlanUpfrontFee": "commitment", "SavingsPlanRecurringFee": "commitment",
}  # fmt: skip
_SCALES = {"1K tokens": 3, "1M tokens": 6, "Units": 6, "Tokens": 0}
_OWN = re.compile(
    r"(?:[A-Z]{2,4}[0-9]-)?(?P<model>.+?)-(?P<meter>input-tokens|output-tokens|"
    r"cache-read-input-token-count|cache-write-input-token-count)(?P<rest>.*)"
)
_MARKETPLACE = re.compile(
    r".*MP:.*_(?P<meter>InputTokenCount|OutputTokenCount|CacheReadInputTokenCount|"
    r"CacheWriteInputTokenCount)(?P<rest>.*)"
)
_METERS = {
    "input-tokens": "input", "output-tokens": "output",
    "cache-read-input-token-count": "cached_input",
    "cache-write-input-token-count": "cache_write",
    "InputTokenCount": "input", "OutputTokenCount": "output",
    "CacheReadInputTokenCount": "cached_input", "CacheWriteInputTokenCount": "cache_write",
}  # fmt: skip
_EDITION = " (Amazon Bedrock Edition)"


def is_cur(header: tuple[str, ...]) -> bool:
    return {"identity/LineItemId", _TYPE, "lineItem/UnblendedCost"} <= set(header)


def read(text: str) -> Page:
    """The report's lines; hours without use are not in it, so it speaks of no bucket."""
    header, rows = csv_rows(text)
    tags = tuple(name for name in header if name.startswith(_TAG))
    return Page(provider=PROVIDER, role="cost", lines=tuple(_line(row, tags) for row in rows))


def _line(row: Fields, tag_columns: tuple[str, ...]) -> Line:
    kind = _KINDS.get(row.need(_TYPE))
    if kind is None:
        raise row.bad(_TYPE, "UNKNOWN_KIND", f"{row.need(_TYPE)!r} is no known type of line")
    span = row.span(
        row.time("lineItem/UsageStartDate", utc=True), row.time("lineItem/UsageEndDate", utc=True)
    )
    pico, rounded = row.pico("lineItem/UnblendedCost")
    model, meter, tier = _metered(row)
    tokens, quantity = _quantity(row, meter)
    tags = ((name.removeprefix(_TAG), row.text(name)) for name in tag_columns)
    return Line(
        role="cost", kind=kind, start_us=span[0], end_us=span[1], model=model,
        project=row.text("lineItem/UsageAccountId"), tier=tier, meter=meter, tokens=tokens,
        quantity=quantity, currency=row.currency("lineItem/CurrencyCode"), amount_pico=pico,
        rounded=rounded, list_pico=row.optional_pico("pricing/publicOnDemandCost"),
        native_id=row.need("identity/LineItemId"),
        variant=" ".join(
            row.text(name) or "-"
            for name in ("lineItem/UsageType", "lineItem/Operation", "lineItem/ProductCode",
                         "lineItem/ResourceId", "product/sku")
        ),
        description=row.text("lineItem/LineItemDescription") or "",
        tags=tuple((name, value) for name, value in tags if value is not None),
        invoice_number=row.text("bill/InvoiceId"), line_number=row.line,
    )  # fmt: skip


def _metered(row: Fields) -> tuple[str | None, str, str | None]:
    """(model, meter, tier) of a usage type; what meters no tokens is `other`."""
    text = row.text("lineItem/UsageType") or ""
    found = _MARKETPLACE.fullmatch(text)
    if found is not None:
        model = (row.text("product/ProductName") or "").removesuffix(_EDITION) or None
    else:
        found = _OWN.fullmatch(text)
        model = found["model"] if found is not None else None
    if found is None:
        return None, "other", None
    return model, _METERS[found["meter"]], "batch" if "batch" in found["rest"].lower() else None


def _quantity(row: Fields, meter: str) -> tuple[int | None, str | None]:
    text = row.quantity("lineItem/UsageAmount")
    unit = row.text("pricing/unit")
    scale = _SCALES.get(unit or "")
    if text is None or row.need(_TYPE) not in {"Usage", "DiscountedUsage"}:
        return None, None
    if scale is not None and meter != "other":
        tokens, fraction = rounded_to(text, scale)
        # A fraction of a token is kept as printed: never rounded in silence.
        if not fraction and abs(tokens) <= TOKENS_LIMIT:
            return tokens, None
    return None, f"{text} {unit}" if unit else text
