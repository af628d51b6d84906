"""Filters and tags of every template: numbers, times, status chips, the navigation."""

import re
from collections.abc import Sequence
from typing import Any

from django import template
from django.http import HttpRequest
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe
from django.utils.text import slugify

from gateway.auth_roles import includes, role_of
from gateway.operations.registry import OPERATIONS
from gateway.pages import formatting, saving, zone
from gateway.pages.display import THEMES, keys_of, theme_of
from gateway.pages.navigation import ENTRIES, current

register = template.Library()

register.filter("thousands", formatting.thousands)
register.filter("ms", formatting.milliseconds)
register.filter("duration", formatting.duration)
register.filter("units", formatting.units)
register.filter("aligned", formatting.aligned)
register.filter("signed", formatting.signed)
register.filter("price", formatting.price)
register.filter("milli", formatting.milli)
register.filter("short_id", formatting.short_id)

# Drawn in a 12 x 12 box: each state has a shape of its own, so that colour is never the only sign.
_SHAPES = {
    "completed": "M2 6.5 5 9.5 10 3",
    "rejected": "M6 1 11 6 6 11 1 6Z M3.5 6h5",
    "cancelled": "M2.5 2.5h7v7h-7Z",
    "failed": "M2.5 2.5 9.5 9.5 M9.5 2.5 2.5 9.5",
    "unknown": "M3.5 4a2.5 2.5 0 1 1 3.4 2.3Q6 6.7 6 8 M6 10.4v.4",
    "ok": "M2 6.5 5 9.5 10 3",
    "watch": "M6 1.5 11 10.5 1 10.5Z M6 5v2.5",
    "alert": "M6 1.5 11 10.5 1 10.5Z M6 5v2.5 M6 9v.3",
    "no_data": "M2 6h8",
    "degraded": "M2 3h4l-1 6h5 M8 7l2 2-2 2",
    "added": "M6 2v8 M2 6h8",
    "removed": "M2 6h8",
    "changed": "M2 4h7l-2-2 M10 8H3l2 2",
    "simulated": "M4.5 1.5v3L2 10.5h8L7.5 4.5v-3 M3.5 1.5h5",
}


@register.simple_tag
def chip(state: str, label: str = "") -> SafeString:
    """A status chip: shape, words and colour class. An unknown state gets the plain shape."""
    kind = state.lower()
    return format_html(
        '<span class="chip chip-{}"><svg viewBox="0 0 12 12" aria-hidden="true">'
        '<path d="{}"/></svg>{}</span>',
        kind.replace("_", "-"),
        _SHAPES.get(kind, _SHAPES["no_data"]),
        words(label or state) if (label or state).islower() else label or state,
    )


@register.simple_tag
def gauge(part: int, whole: int) -> SafeString:
    """A bar as long as part / whole, full where it is over; always beside its number."""
    width = min(1000, part * 1000 // whole) if whole else 0
    return format_html(
        '<svg class="gauge{}" viewBox="0 0 1000 30" preserveAspectRatio="none" aria-hidden="true">'
        '<rect class="track" width="1000" height="30"/><rect class="fill" width="{}" height="30"/>'
        "</svg>",
        " over" if part > whole else "",
        width,
    )


@register.filter
def moment(us: int | None) -> SafeString | str:
    """A time of day to the millisecond in the zone of the page, in UTC on hover."""
    return formatting.NONE if us is None else _time(us, "")


@register.filter
def day_and_time(us: int | None) -> SafeString | str:
    """As `moment`, with the day in front."""
    if us is None:
        return formatting.NONE
    day = formatting.day(us, zone.shown().zone)
    return _time(us, format_html('<span class="day">{}</span> ', day))


def _time(us: int, before: str) -> SafeString:
    here = zone.shown().zone
    return format_html(
        '<time datetime="{}" title="{}">{}{}</time>',
        formatting.iso(us, here),
        formatting.iso(us),
        before,
        formatting.clock_time(us, here),
    )


@register.simple_tag
def zone_name() -> str:
    """What the zone of the page's times is called."""
    return zone.shown().name


@register.filter
def hexadecimal(raw: bytes | None) -> str:
    return formatting.NONE if raw is None else bytes(raw).hex()


@register.filter
def breakable(code: str) -> SafeString:
    """A code that may be broken behind each underscore and dot, and nowhere else."""
    return format_html_join(
        mark_safe("<wbr>"),  # a constant
        "{}",
        ((piece,) for piece in re.split(r"(?<=[_.])", code) if piece),
    )


@register.filter
def burn_rows(history: Sequence[tuple[str, str, str]]) -> SafeString:
    """The table's rows of a burn rate's history: a thousand on a page, so not by the template."""
    row = (
        '<tr><th scope="row" class="mono">{}</th>'
        '<td class="num">{}</td><td class="num">{}</td></tr>'
    )
    return format_html_join("", row, history)


@register.filter
def words(code: str) -> str:
    """A space-separated or snake-case code as words: "DEADLINE_FIT" -> "deadline fit"."""
    return code.replace("_", " ").lower()


@register.inclusion_tag("_navigation.html", takes_context=True)
def navigation(context: template.Context) -> dict[str, Any]:
    request: HttpRequest = context["request"]
    here = current(request)
    return {
        "entries": [(entry, entry.holds(here)) for entry in ENTRIES],
        "user": request.user,
        "role": getattr(request, "role", None) or role_of(request.user),
        "theme": theme_of(request),
        "themes": THEMES,
        "zone_name": zone.shown().name,
        "request": request,
        "csrf_token": context.get("csrf_token"),
    }


@register.simple_tag(takes_context=True)
def theme(context: template.Context) -> str:
    return theme_of(context["request"])


@register.simple_tag(takes_context=True)
def keys(context: template.Context) -> str:
    return keys_of(context["request"])


@register.simple_tag(takes_context=True)
def saved(context: template.Context, *names: str) -> SafeString:
    """Links to the table before it as CSV and JSON, exactly as shown; the last thing in its sheet.

    `names` say what it holds ("open unknowns"), and have to be others for each table of a page.
    """
    request: HttpRequest = context["request"]
    name = " ".join(names)
    slug = slugify(name)
    csv, json = (saving.link(request, slug, kind) for kind in saving.KINDS)
    return format_html(
        '<p class="saved" data-table="{}"><a href="{}" aria-label="{name} as CSV">CSV</a>'
        ' <a href="{}" aria-label="{name} as JSON">JSON</a></p>',
        slug,
        csv,
        json,
        name=name,
    )


@register.inclusion_tag("_act.html", takes_context=True)
def act(
    context: template.Context,
    operation: str,
    label: str,
    danger: bool = False,
    confirm: str = "",
    **fields: str,
) -> dict[str, Any]:
    """A form behind a summary that does one operation, with a reason; nothing without the role.

    `confirm`: a text that has to be typed for it, the operation's field of that name.
    `field__name` stands for `field.name`: a template's argument can't hold a dot.
    """
    request = context["request"]
    return {
        "allowed": includes(getattr(request, "role", None), OPERATIONS[operation].ROLE),
        "operation": operation,
        "label": label,
        "danger": danger,
        "confirm": confirm,
        "fields": {name.replace("__", "."): value for name, value in fields.items()},
        "back": request.get_full_path(),
        "csrf_token": context.get("csrf_token"),
    }
