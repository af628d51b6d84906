"""An objective as the ledger keeps it: canonical JSON, fractions as "n/d" text. Pure."""

import re
from collections.abc import Iterable
from fractions import Fraction
from typing import Any

import msgspec

from ledger.slo import Action, BurnRule, Indicator, Selector, Severity, SloDefinition

_FACTOR = re.compile(
    r"[0-9]{1,40}(\.[0-9]{1,40}|/[1-9][0-9]{0,39})?"
)  # no exponent: 1e9999999 would never end


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """A burn rule; its factor is a fraction as text: `72/5` is 14.4."""

    name: str
    severity: Severity
    factor: str
    long_us: int
    short_us: int


class Declared(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is declared of an objective, but for its rules: no id, no revision."""

    title: str
    indicator: Indicator
    target_ppm: int
    threshold_us: int | None = None
    threshold_pico: int | None = None
    selector: Selector = Selector()
    period_us: int
    degraded_is_valid: bool = False
    left_out: tuple[str, ...] = ()
    action: Action
    retired: bool = False


class _Body(Declared, frozen=True, kw_only=True, omit_defaults=True):
    rules: tuple[Rule, ...] = ()
    counted_from_us: int = 0


def texts(rules: Iterable[BurnRule]) -> tuple[Rule, ...]:
    """Rules with their factors as text."""
    return tuple(
        Rule(
            name=rule.name,
            severity=rule.severity,
            factor=str(rule.factor),
            long_us=rule.long_us,
            short_us=rule.short_us,
        )
        for rule in rules
    )


def to_json(definition: SloDefinition) -> str:
    """The body of a definition's record; the same definition gives the same bytes."""
    body = _Body(
        title=definition.title,
        indicator=definition.indicator,
        target_ppm=definition.target_ppm,
        threshold_us=definition.threshold_us,
        threshold_pico=definition.threshold_pico,
        selector=definition.selector,
        period_us=definition.period_us,
        degraded_is_valid=definition.degraded_is_valid,
        rules=texts(definition.rules),
        left_out=definition.left_out,
        action=definition.action,
        counted_from_us=definition.counted_from_us,
        retired=definition.retired,
    )
    return msgspec.json.encode(body, order="sorted").decode()


def from_json(slo_id: str, revision: int, text: str) -> SloDefinition:
    """The definition in a record's body. msgspec.ValidationError or ValueError where it is none."""
    body = msgspec.json.decode(text, type=_Body)
    rules = tuple(
        BurnRule(
            name=rule.name,
            severity=rule.severity,
            factor=_factor(rule.factor),
            long_us=rule.long_us,
            short_us=rule.short_us,
        )
        for rule in body.rules
    )
    values: dict[str, Any] = {
        name: getattr(body, name) for name in _Body.__struct_fields__ if name != "rules"
    }
    return SloDefinition(slo_id=slo_id, revision=revision, rules=rules, **values)


def _factor(text: str) -> Fraction:
    if _FACTOR.fullmatch(text) is None:
        raise ValueError("a rule's factor is a number as text, such as 14.4 or 72/5")
    return Fraction(text)
