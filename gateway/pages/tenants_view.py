"""A tenant's quota in words and as a form's fields; its month against its budget. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from gateway.pages.formatting import NONE, duration, thousands, units
from gateway.quota import Quota
from ledger.money import units_text

_LABELS: Mapping[str, str] = {
    "in_flight_limit": "Requests in flight",
    "requests_per_minute": "Requests a minute",
    "tokens_per_minute": "Tokens a minute",
    "budget_pico": "Budget of a month",
    "day_budget_pico": "Budget of a day",
    "time_zone": "Time zone of the budgets",
    "max_input_tokens": "Input tokens of a request",
    "max_output_tokens": "Output tokens of a request",
    "max_total_tokens": "All tokens of a request",
    "allowed_regions": "Regions",
    "default_deadline_us": "Deadline, where a request has none",
    "default_max_cost_pico": "Cost limit, where a request has none",
}
_NO_LIMIT: Mapping[str, str] = {
    "allowed_regions": "any",
    "default_deadline_us": "the model's",
    "default_max_cost_pico": "none",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """One limit of a quota as text; `given`: it is set, and no default."""

    label: str
    value: str
    given: bool


def limits(quota: Quota) -> tuple[Limit, ...]:
    """Every limit, in the order of the form."""
    return tuple(
        Limit(
            label=label,
            value=_said(name, value) if value else _NO_LIMIT.get(name, NONE),
            given=bool(value),
        )
        for name, label in _LABELS.items()
        for value in (getattr(quota, name),)
    )


def _said(name: str, value: int | str | tuple[str, ...]) -> str:
    if isinstance(value, str | tuple):
        return value if isinstance(value, str) else ", ".join(value)
    if name.endswith("_pico"):
        return f"{units(value)} units"
    return duration(value) if name.endswith("_us") else thousands(value)


def fields(quota: Quota) -> dict[str, str]:
    """Each field as its input takes it, "" for no limit: money in units, times in ms."""
    return {
        name: "" if value is None else _input(name, value)
        for name, value in msgspec.structs.asdict(quota).items()
    }


def _input(name: str, value: int | str | Sequence[str]) -> str:
    if isinstance(value, int) and name.endswith("_pico"):
        return units_text(value)
    if isinstance(value, int) and name.endswith("_us"):
        whole, rest = divmod(value, 1_000)
        return f"{whole}.{rest:03d}" if rest else str(whole)
    return ", ".join(value) if isinstance(value, tuple) else str(value)
