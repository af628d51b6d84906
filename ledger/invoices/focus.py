"""FOCUS 1.2, and 1.0 as its published sample has it: charges in the FinOps common format (REC-1).

Pure. BilledCost is what an invoice asks; EffectiveCost spreads purchases over what they cover.
Nulls are empty cells (1.2) or the word NULL (1.0's sample), times ISO 8601 or without an offset.
Custom columns `x_Model`, `x_ApiKey` and `x_ProviderRequestId` are read where they are there.
"""

import json

from ledger.invoices.fields import Fields
from ledger.invoices.files import csv_rows
from ledger.invoices.values import Kind, Line, Page, Unreadable

TAGS_LIMIT = 64
TAGS_LIMIT_CHARS = 8_192

_SCALES = {"Tokens": 0, "1000 Tokens": 3, "1000000 Tokens": 6}
_METERS = {"Cached Input": "cached_input", "Cache Write": "cache_write", "Output": "output"}


def is_focus(header: tuple[str, ...]) -> bool:
    return {"BilledCost", "ChargeCategory", "ChargePeriodStart", "BillingCurrency"} <= set(header)


def read(text: str) -> Page:
    """The charges; the provider is the file's one ProviderName in lower case."""
    _, rows = csv_rows(text)
    lines: list[Line] = []
    names: dict[str, int] = {}
    for row in rows:
        names.setdefault(_needed(row, "ProviderName"), row.line)
        lines.append(_line(row))
    if len(names) > 1:
        name, line = list(names.items())[1]
        message = f"a second ProviderName, {name[:60]!r}: import one provider at a time"
        raise Unreadable("SEVERAL_PROVIDERS", message, line)
    provider = next(iter(names), "").lower().replace(" ", "-")
    return Page(provider=provider, role="cost", lines=tuple(lines))


def _text(row: Fields, name: str, limit: int = 200) -> str | None:
    value = row.text(name, limit=limit)
    return None if value == "NULL" else value


def _pico(row: Fields, name: str) -> int | None:
    return None if _text(row, name) is None else row.pico(name)[0]


def _needed(row: Fields, name: str) -> str:
    value = _text(row, name)
    if value is None:
        raise row.bad(name, "MISSING", "it is null")
    return value


def _line(row: Fields) -> Line:
    span = row.span(row.time("ChargePeriodStart", utc=True), row.time("ChargePeriodEnd", utc=True))
    pico, rounded = row.pico("BilledCost")
    kind = _kind(row)
    meter, tier = _metered(_text(row, "SkuMeter") or "")
    usage = kind in {"usage", "adjustment"} and _text(row, "ChargeCategory") == "Usage"
    tokens, quantity = _quantity(row, meter) if usage else (None, None)
    return Line(
        role="cost", kind=kind, start_us=span[0], end_us=span[1],
        model=_text(row, "x_Model") or _text(row, "SkuId"), project=_text(row, "SubAccountId"),
        api_key=_text(row, "x_ApiKey"), tier=tier, meter=meter if usage else "other",
        tokens=tokens, quantity=quantity, currency=row.currency("BillingCurrency"),
        amount_pico=pico, rounded=rounded, list_pico=_pico(row, "ListCost"),
        effective_pico=_pico(row, "EffectiveCost"),
        provider_request_id=_text(row, "x_ProviderRequestId"),
        variant=" ".join(
            _text(row, name) or "-"
            for name in ("ChargeCategory", "ChargeClass", "ResourceId", "SkuPriceId", "RegionId",
                         "PricingCategory", "CommitmentDiscountId", "CommitmentDiscountStatus")
        ),
        description=(_text(row, "ChargeDescription", 1_000) or "")[:200], tags=_tags(row),
        invoice_number=_text(row, "InvoiceId"), line_number=row.line,
    )  # fmt: skip


def _kind(row: Fields) -> Kind:
    category = _needed(row, "ChargeCategory")
    if category == "Usage":
        return "adjustment" if _text(row, "ChargeClass") == "Correction" else "usage"
    if category == "Purchase":
        return "commitment" if _text(row, "PricingCategory") == "Committed" else "fee"
    if category == "Credit":
        return "credit"
    if category == "Tax":
        return "tax"
    if category == "Adjustment":
        # FOCUS has no value of its own for an invoice's rounding: its description says it.
        text = (_text(row, "ChargeDescription", 1_000) or "").lower()
        return "rounding" if "rounding" in text else "adjustment"
    raise row.bad("ChargeCategory", "UNKNOWN_KIND", f"{category[:40]!r} is none of FOCUS's")


def _metered(text: str) -> tuple[str, str | None]:
    """(meter, tier) of a SkuMeter such as "Batch Input Tokens"; no tokens: `other`."""
    if not text.endswith(" Tokens"):
        return "other", None
    name, tier = text.removesuffix(" Tokens"), None
    for word in ("Batch", "Priority", "Flex"):
        if name.startswith(f"{word} "):
            name, tier = name.removeprefix(f"{word} "), word.lower()
    return ("input" if name == "Input" else _METERS.get(name, "other")), tier


def _quantity(row: Fields, meter: str) -> tuple[int | None, str | None]:
    text = None if _text(row, "ConsumedQuantity") is None else row.quantity("ConsumedQuantity")
    unit = _text(row, "ConsumedUnit")
    if text is None:
        return None, None
    scale = _SCALES.get(unit or "")
    if meter != "other" and scale is not None:
        return row.whole("ConsumedQuantity", text, scale), None
    return None, f"{text} {unit}" if unit else text


def _tags(row: Fields) -> tuple[tuple[str, str], ...]:
    text = _text(row, "Tags", TAGS_LIMIT_CHARS)
    if text is None:
        return ()
    try:
        values = json.loads(text)
    except (ValueError, RecursionError):
        raise row.bad("Tags", "WRONG_TYPE", "it is no JSON object") from None
    if not isinstance(values, dict) or len(values) > TAGS_LIMIT:
        raise row.bad("Tags", "WRONG_TYPE", f"it must be an object of at most {TAGS_LIMIT} tags")
    tags = tuple((str(name), str(value)) for name, value in sorted(values.items()))
    for tag in tags:
        row.check("Tags", "".join(tag))
    return tags
