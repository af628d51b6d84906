"""An objective as the ledger keeps it: canonical JSON, fractions as "n/d" text. Pure."""

from fractions import Fraction
from typing import Any

import msgspec

from ledger.slo import Action, BurnRule, Indicator, Selector, Severity, SloDefinition


class _Rule(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    severity: Severity
    factor: str
    long_us: int
    short_us: int


class _Body(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is declared: a definition without its id, revision and what follows from others."""

    title: str
    indicator: Indicator
    target_ppm: int
    threshold_us: int | None = None
    threshold_pico: int | None = None
    selector: Selector = Selector()
    period_us: int
    degraded_is_valid: bool = False
    rules: tuple[_Rule, ...] = ()
    left_out: tuple[str, ...] = ()
    action: Action
    counted_from_us: int = 0
    retired: bool = False


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
        rules=tuple(
            _Rule(
                name=rule.name,
                severity=rule.severity,
                factor=str(rule.factor),
                long_us=rule.long_us,
                short_us=rule.short_us,
            )
            for rule in definition.rules
        ),
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
            factor=Fraction(rule.factor),
            long_us=rule.long_us,
            short_us=rule.short_us,
        )
        for rule in body.rules
    )
    values: dict[str, Any] = {
        name: getattr(body, name) for name in _Body.__struct_fields__ if name != "rules"
    }
    return SloDefinition(slo_id=slo_id, revision=revision, rules=rules, **values)
