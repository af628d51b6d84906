"""The receipts page's filters: a form over the URL's query, and the query of a page beside it."""

from datetime import UTC, datetime
from typing import Any, Final

from django import forms
from django.http import QueryDict

from gateway.policy.reasons import REASONS
from gateway.policy.values import PRIORITIES
from gateway.reporting import unknown_parameter
from ledger.queries.receipts import (
    REQUEST_ID_LIMIT_CHARS,
    Cursor,
    Options,
    ReceiptFilter,
)

STATUSES: Final = ("completed", "rejected", "cancelled", "failed", "unknown")
WITHIN: Final = {
    "15m": ("Last 15 minutes", 900),
    "1h": ("Last hour", 3_600),
    "6h": ("Last 6 hours", 21_600),
    "24h": ("Last 24 hours", 86_400),
    "7d": ("Last 7 days", 604_800),
}
TIME_FORMATS = ("%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S")
VALUE_LIMIT_CHARS = 200
INT64_MAX = 2**63 - 1  # a larger number can't be given to SQLite
NO_VALUE = "-"  # in the URL: receipts that have none, such as no route


def _choices(values: Any) -> list[tuple[str, str]]:
    return [("", "Any"), *((value, value) for value in values)]


class FilterForm(forms.Form):
    """Each field is optional; a value that is not on offer (an old link) is kept and shown."""

    request_id = forms.CharField(required=False, max_length=REQUEST_ID_LIMIT_CHARS)
    tenant = forms.CharField(required=False, max_length=VALUE_LIMIT_CHARS)
    status = forms.ChoiceField(required=False, choices=_choices(STATUSES))
    reason = forms.CharField(required=False, max_length=VALUE_LIMIT_CHARS)
    route = forms.CharField(required=False, max_length=VALUE_LIMIT_CHARS)
    model = forms.CharField(required=False, max_length=VALUE_LIMIT_CHARS)
    priority = forms.ChoiceField(required=False, choices=_choices(PRIORITIES))
    degraded = forms.ChoiceField(
        required=False, choices=[("", "Either"), ("yes", "Degraded"), ("no", "Not degraded")]
    )
    within = forms.ChoiceField(
        required=False,
        choices=[("", "Any time"), *((key, label) for key, (label, _) in WITHIN.items())],
    )
    since = forms.DateTimeField(required=False, input_formats=TIME_FORMATS)
    until = forms.DateTimeField(required=False, input_formats=TIME_FORMATS)
    # Reached by drilling down from other pages; shown only where they are given.
    identity = forms.CharField(required=False, max_length=VALUE_LIMIT_CHARS)
    path = forms.CharField(required=False, max_length=VALUE_LIMIT_CHARS)
    release = forms.CharField(required=False, max_length=VALUE_LIMIT_CHARS)
    arm = forms.CharField(required=False, max_length=VALUE_LIMIT_CHARS)

    def __init__(self, query: QueryDict, options: Options) -> None:
        super().__init__(query)
        offered = {
            "tenant": options.tenants,
            "reason": tuple(sorted({*options.reason_codes, *REASONS})),
            "route": options.routes,
            "model": options.logical_models,
        }
        for name, values in offered.items():
            given = query.get(name, "")
            kept = (given,) if given not in ("", NO_VALUE, *values) else ()
            choices = [*_choices((*values, *kept)), (NO_VALUE, "None")]
            self.fields[name].widget = forms.Select(choices=choices)
        for name in ("since", "until"):
            widget = forms.DateTimeInput(attrs={"type": "datetime-local"}, format=TIME_FORMATS[0])
            self.fields[name].widget = widget
        self.fields["request_id"].widget.attrs |= {
            "placeholder": "req_…",
            "spellcheck": "false",
            "autocomplete": "off",
        }

    def drilled(self) -> list[tuple[str, str]]:
        """The filters without a control of their own that the URL sets."""
        names = ("identity", "path", "release", "arm")
        return [(name, self.data[name]) for name in names if self.data.get(name)]

    def check_names(self) -> None:
        """ValueError, naming it, for a parameter of the URL that is no filter here."""
        unknown = unknown_parameter(self.data, (*self.fields, "older", "newer"))
        if unknown is not None:
            raise ValueError(f"{unknown.parameter}: {unknown.detail}.")

    def said_of_fields(self) -> str:
        """What is wrong with the fields of a form that isn't valid."""
        return " ".join(f"{name}: {text}" for name, texts in self.errors.items() for text in texts)

    def wanted(self, now_us: int) -> ReceiptFilter:
        """The filter of a valid form; `within` counts back from now, exact times win over it."""
        given = self.cleaned_data
        since_us, until_us = _us(given["since"]), _us(given["until"])
        if since_us is None and until_us is None and given["within"]:
            since_us = now_us - WITHIN[given["within"]][1] * 1_000_000
        return ReceiptFilter(
            request_id=given["request_id"].strip() or None,
            tenant_id=_value(given["tenant"]),
            status=_value(given["status"]),
            reason_code=_value(given["reason"]),
            route_id=_value(given["route"]),
            logical_model=_value(given["model"]),
            identity_id=_value(given["identity"]),
            priority=_value(given["priority"]),
            user_path=_value(given["path"]),
            release_id=_value(given["release"]),
            arm=_value(given["arm"]),
            degraded={"yes": True, "no": False}.get(given["degraded"]),
            since_us=since_us,
            until_us=until_us,
        )


def _value(text: str) -> str | None:
    return "" if text == NO_VALUE else text or None


def _us(moment: datetime | None) -> int | None:
    """Whole seconds of a time that the form read as UTC."""
    if moment is None:
        return None
    return int(moment.astimezone(UTC).timestamp()) * 1_000_000


def cursor_of(query: QueryDict) -> Cursor | None:
    """The cursor of `older=<accepted_at_us>.<seq>` or `newer=…`; None where there is none.

    ValueError for one that can't be read.
    """
    for towards in ("older", "newer"):
        text = query.get(towards)
        if text is not None:
            accepted, _, seq = text.partition(".")
            accepted_at_us, number = _int64(accepted), _int64(seq)
            if accepted_at_us is None or number is None:
                raise ValueError(f"{towards} is no place in the list; start from the newest page")
            return Cursor(
                accepted_at_us=accepted_at_us,
                seq=number,
                towards="older" if towards == "older" else "newer",
            )
    return None


def _int64(text: str) -> int | None:
    """A whole number from 0 on that SQLite can take; None for any other text."""
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(INT64_MAX))):
        return None
    number = int(text)
    return number if number <= INT64_MAX else None


def page_query(query: QueryDict, cursor: Cursor | None) -> str:
    """The query of the same list at another place; empty fields are left out of it."""
    fresh = QueryDict(mutable=True)
    for name in query:
        value = query.get(name)
        if name not in ("older", "newer") and isinstance(value, str) and value:
            fresh[name] = value
    if cursor is not None:
        fresh[cursor.towards] = f"{cursor.accepted_at_us}.{cursor.seq}"
    return fresh.urlencode()
