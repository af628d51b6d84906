"""Objectives as OpenSLO YAML (openslo/v1), both ways (SLO-9). Pure.

What OpenSLO has fields for stands in them: name, title, target, period, burn rates. What it has
none for (slice, action, exact factors and short windows) stands in annotations `weighbridge/…`,
which other tools carry along. A file without them gets the default rules and opens an incident.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import msgspec
import yaml

from ledger.slo import (
    DAY_US,
    HOUR_US,
    MINUTE_US,
    PPM,
    Action,
    BurnRule,
    Indicator,
    Selector,
    SloDefinition,
)
from ledger.slo_rules import default_rules, problems
from ledger.slo_text import from_json, to_json

SIZE_LIMIT_CHARS = 1_000_000
DOCUMENTS_LIMIT = 64
API_VERSION = "openslo/v1"
SOURCE = "weighbridge"
PREFIX = "weighbridge/"
_UNITS_US = {"m": MINUTE_US, "h": HOUR_US, "d": DAY_US, "w": 7 * DAY_US}
_DURATION = re.compile(r"([0-9]{1,6})([mhdw])")
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_IN_FIELDS = ("title", "target_ppm", "period_us", "indicator", "threshold_us", "threshold_pico")


@dataclass(frozen=True, slots=True, kw_only=True)
class Parsed:
    """The objectives of a file, revision 0; none where there is a problem."""

    definitions: tuple[SloDefinition, ...]
    problems: tuple[str, ...]


def dump(definitions: Sequence[SloDefinition]) -> str:
    """The YAML of objectives, one document each; `load` gives the same ones back."""
    return str(
        yaml.safe_dump_all([_document(one) for one in definitions], sort_keys=False, width=100)
    )


def load(text: str) -> Parsed:
    """The objectives of YAML documents of kind SLO; other kinds are a problem, never skipped."""
    if len(text) > SIZE_LIMIT_CHARS:
        return Parsed(definitions=(), problems=(f"more than {SIZE_LIMIT_CHARS} characters",))
    try:
        # libyaml's: the one in Python needs hours for a file of opening brackets alone.
        read = yaml.load_all(text, Loader=yaml.CSafeLoader)
        documents = [one for one in read if one is not None]
    except (yaml.YAMLError, RecursionError, ValueError) as problem:
        line = getattr(getattr(problem, "problem_mark", None), "line", None)
        where = "" if line is None else f" at line {line + 1}"
        return Parsed(definitions=(), problems=(f"the file is no YAML{where}",))
    if not 0 < len(documents) <= DOCUMENTS_LIMIT:
        detail = f"{len(documents)} documents; 1 to {DOCUMENTS_LIMIT} are read"
        return Parsed(definitions=(), problems=(detail,))
    found: list[SloDefinition] = []
    faults: list[str] = []
    for place, document in enumerate(documents, start=1):
        try:
            found.append(_definition(document))
        except _Fault as fault:
            faults.append(f"document {place}: {fault}")
    names = [one.slo_id for one in found]
    faults += [
        f"{name} is there twice" for name in sorted({n for n in names if names.count(n) > 1})
    ]
    return Parsed(definitions=() if faults else tuple(found), problems=tuple(faults))


class _Fault(Exception):
    """What is wrong with one document."""


def _document(definition: SloDefinition) -> dict[str, Any]:
    body: dict[str, Any] = msgspec.json.decode(to_json(definition))
    source: dict[str, Any] = {"indicator": definition.indicator}
    for name in ("threshold_us", "threshold_pico"):
        if getattr(definition, name) is not None:
            source[name] = getattr(definition, name)
    annotations = {
        f"{PREFIX}{name}": msgspec.json.encode(value, order="sorted").decode()
        for name, value in sorted(body.items())
        if name not in (*_IN_FIELDS, "counted_from_us", "retired")
    }

    def metric() -> dict[str, Any]:  # made twice: YAML would write an alias for the same one
        return {"metricSource": {"type": SOURCE, "spec": dict(source)}}

    return {
        "apiVersion": API_VERSION,
        "kind": "SLO",
        "metadata": {
            "name": definition.slo_id,
            "displayName": definition.title,
            "annotations": annotations,
        },
        "spec": {
            "service": SOURCE,
            "description": f"On alert: {definition.control_action}.",
            "indicator": {
                "metadata": {"name": f"{definition.slo_id}-indicator"},
                "spec": {"ratioMetric": {"counter": True, "good": metric(), "total": metric()}},
            },
            "timeWindow": [{"duration": _duration(definition.period_us), "isRolling": True}],
            "budgetingMethod": "Occurrences",
            "objectives": [{"target": _decimal(Fraction(definition.target_ppm, PPM))}],
            "alertPolicies": [_alert(definition.slo_id, rule) for rule in definition.rules],
        },
    }


def _alert(slo_id: str, rule: BurnRule) -> dict[str, Any]:
    return {
        "kind": "AlertPolicy",
        "metadata": {"name": f"{slo_id}-{rule.name}"},
        "spec": {
            "conditions": [
                {
                    "kind": "AlertCondition",
                    "metadata": {"name": f"{slo_id}-{rule.name}-burn"},
                    "spec": {
                        "severity": rule.severity,
                        "condition": {
                            "kind": "burnrate",
                            "op": "gt",
                            "threshold": float(rule.factor),
                            "lookbackWindow": _duration(rule.long_us),
                            "alertAfter": _duration(rule.short_us),
                        },
                    },
                }
            ]
        },
    }


def _definition(document: object) -> SloDefinition:
    if not isinstance(document, Mapping) or document.get("kind") != "SLO":
        raise _Fault("it is no object of kind SLO")
    if document.get("apiVersion") != API_VERSION:
        raise _Fault(f"apiVersion is {API_VERSION}")
    metadata, spec = _object(document, "metadata"), _object(document, "spec")
    slo_id = metadata.get("name")
    if not isinstance(slo_id, str) or not _NAME.fullmatch(slo_id):
        raise _Fault("metadata.name is lower case letters, digits and -, at most 63 of them")
    if spec.get("budgetingMethod", "Occurrences") != "Occurrences":
        raise _Fault("budgetingMethod: only Occurrences counts requests")
    source = _source(spec)
    target_ppm = _target_ppm(spec)
    period_us = _period_us(spec)
    rules, left_out = default_rules(target_ppm, period_us)
    fresh = SloDefinition(
        slo_id=slo_id,
        revision=0,
        title=_text(metadata.get("displayName") or slo_id, "metadata.displayName")[:200],
        indicator=_indicator(source),
        target_ppm=target_ppm,
        threshold_us=_whole(source, "threshold_us"),
        threshold_pico=_whole(source, "threshold_pico"),
        selector=Selector(),
        period_us=period_us,
        rules=rules,
        left_out=left_out,
        action=Action(kind="open_incident"),
    )
    body: dict[str, Any] = msgspec.json.decode(to_json(fresh))
    annotations = metadata.get("annotations") or {}
    if not isinstance(annotations, Mapping):
        raise _Fault("metadata.annotations is an object")
    if any(str(name).startswith(PREFIX) for name in annotations):
        for field in ("rules", "left_out"):  # what is left out of ours is empty
            body.pop(field, None)
    for name, text in annotations.items():
        if isinstance(name, str) and name.startswith(PREFIX):
            field = name.removeprefix(PREFIX)
            if field in (*_IN_FIELDS, "counted_from_us", "retired"):
                raise _Fault(f"{name}: OpenSLO has a field of its own for it")
            try:
                body[field] = msgspec.json.decode(_text(text, name))
            except msgspec.DecodeError as problem:
                raise _Fault(f"{name} is no JSON: {problem}") from problem
    try:
        definition = from_json(slo_id, 0, msgspec.json.encode(body).decode())
    except (msgspec.DecodeError, ValueError, ZeroDivisionError) as problem:
        raise _Fault(f"{slo_id}: {problem}") from problem
    refused = problems(definition)
    if refused:
        raise _Fault(f"{slo_id}: {refused[0].code}: {refused[0].detail}")
    return definition


def _text(value: object, what: str) -> str:
    """The value, which is text: a list of aliases would take for ever to be written out."""
    if not isinstance(value, str):
        raise _Fault(f"{what} is text")
    return value


def _source(spec: Mapping[str, Any]) -> Mapping[str, Any]:
    """What is counted: the metric source of the total, of this product's own type."""
    ratio = _object(_object(_object(spec, "indicator"), "spec"), "ratioMetric")
    source = _object(_object(ratio, "total"), "metricSource")
    if source.get("type") != SOURCE:
        raise _Fault(f"metricSource.type is {SOURCE}: other sources aren't read here")
    return _object(source, "spec")


def _indicator(source: Mapping[str, Any]) -> Indicator:
    try:
        found: Indicator = msgspec.convert(source.get("indicator"), type=Indicator)
    except msgspec.ValidationError as problem:
        raise _Fault(f"metricSource.spec.indicator: {problem}") from problem
    return found


def _object(of: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = of.get(name)
    if not isinstance(value, Mapping):
        raise _Fault(f"{name} is missing, or no object")
    return value


def _only(spec: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = spec.get(name)
    if not isinstance(value, list) or len(value) != 1 or not isinstance(value[0], Mapping):
        raise _Fault(f"{name} has one entry")
    return value[0]


def _target_ppm(spec: Mapping[str, Any]) -> int:
    target = _only(spec, "objectives").get("target")
    if not isinstance(target, int | float) or isinstance(target, bool):
        raise _Fault("objectives[0].target is a number, such as 0.99")
    if not 0 <= target <= 1:  # nor .nan, nor .inf
        raise _Fault("objectives[0].target is between 0 and 1, such as 0.99")
    ppm = Fraction(str(target)) * PPM
    if ppm.denominator != 1:
        raise _Fault("objectives[0].target has six decimals at most")
    return int(ppm)


def _period_us(spec: Mapping[str, Any]) -> int:
    window = _only(spec, "timeWindow")
    if window.get("isRolling") is False or "calendar" in window:
        raise _Fault("timeWindow: only rolling windows are counted")
    found = _DURATION.fullmatch(_text(window.get("duration"), "timeWindow[0].duration"))
    if found is None:
        raise _Fault("timeWindow[0].duration is a number with m, h, d or w, such as 30d")
    return int(found[1]) * _UNITS_US[found[2]]


def _whole(source: Mapping[str, Any], name: str) -> int | None:
    value = source.get(name)
    if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
        raise _Fault(f"metricSource.spec.{name} is a whole number")
    return value


def _duration(us: int) -> str:
    for unit in ("d", "h", "m"):
        if us % _UNITS_US[unit] == 0:
            return f"{us // _UNITS_US[unit]}{unit}"
    raise ValueError(f"{us} µs are no whole minutes")


def _decimal(value: Fraction) -> float:
    """The nearest float: its shortest text has the six decimals that a target has at most."""
    return value.numerator / value.denominator
