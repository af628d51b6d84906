"""One payload read by one convention into what is priced: nothing negative, nothing invented."""

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from ledger.meters import METERS, ROOTS
from ledger.rates import Meters, Usage
from ledger.usage.conventions import Convention
from ledger.usage.counts import any_found, found

TIER_LIMIT_CHARS = 32
_ROOTS = frozenset(ROOTS)


class Normalised(msgspec.Struct, frozen=True, kw_only=True):
    """A usage to be priced, the convention by which it was read, and what is wrong with it.

    `source` is `estimated` where a count was missing, no count, or more than what holds it, and
    another stands for it; `doubts` names those counts. `service_tier` is the provider's word,
    lower case, "" where it said none.
    """

    usage: Usage
    convention: str
    source: Literal["provider", "estimated"]
    doubts: tuple[str, ...] = ()
    service_tier: str = ""


def normalise(
    convention: Convention, body: Mapping[str, Any], *, counted: Usage | None = None
) -> Normalised | None:
    """The usage in a body (a whole answer or its usage's surroundings), priced the same for all.

    None where the body has no usage of this convention and nothing was `counted`. `counted` is
    what we know ourselves: it stands for an input or output count that is missing; without it
    those are zero, and doubtful. A reported zero is a zero.
    """
    root = usage_object(convention, body)
    if root is None and counted is None:
        return None
    payload = root or {}
    sums = convention.sums
    doubts: list[str] = []
    given: dict[str, int] = {}
    for name, wanted in sums.items():
        if wanted.fields.isdisjoint(payload):
            continue  # most sums of most payloads
        look = any_found if name == "output" and convention.omits_zeros else found
        count, bad = look(wanted, payload)
        if bad:
            doubts.append(name)
        if count is not None:
            given[name] = count
    if "input" not in given and "output" not in given and counted is None:
        return None
    tier = _tier(convention, body)
    return _checked(convention, payload, given, doubts, counted, tier)


def usage_object(convention: Convention, body: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The usage object of a body: the first of the convention's roots that is there."""
    for root in convention.roots:
        at = _inside(body, root)
        if isinstance(at, dict):
            return at
    return None


def _inside(body: Mapping[str, Any], names: tuple[str, ...]) -> Any:
    at: Any = body
    for name in names:
        at = at.get(name) if isinstance(at, dict) else None
    return at


def _checked(
    convention: Convention,
    payload: Mapping[str, Any],
    given: Mapping[str, int],
    doubts: list[str],
    counted: Usage | None,
    tier: str,
) -> Normalised:
    """The counts with what is missing filled in, and no part larger than its whole."""
    ours = counted or Usage(input_tokens=0, output_tokens=0)
    whole = {"input": ours.input_tokens, "output": ours.output_tokens}
    for name in whole:
        if name in given:
            whole[name] = given[name]
        elif name not in convention.sums or (payload and convention.omits_zeros):
            whole[name] = 0
        else:
            doubts.append(name)
    cached = given.get("cached_input", 0)
    if cached > whole["input"]:
        doubts.append("cached_input")
        cached = whole["input"]
    room = {"input": whole["input"] - cached, "cached_input": cached, "output": whole["output"]}
    usage = Usage(
        input_tokens=whole["input"],
        output_tokens=whole["output"],
        cached_input_tokens=cached,
        meters=_fitted(given, room, doubts),
    )
    return Normalised(
        usage=usage,
        convention=convention.name,
        source="estimated" if doubts else "provider",
        doubts=tuple(dict.fromkeys(doubts)),
        service_tier=tier,
    )


def _fitted(given: Mapping[str, int], room: dict[str, int], doubts: list[str]) -> Meters:
    """The further meters in their own order, each no larger than what is left of its whole."""
    if given.keys() <= _ROOTS:
        return ()
    fitted = []
    for name, meter in METERS.items():
        count = given.get(name, 0)
        if meter.inside is not None:
            if count > room[meter.inside]:
                doubts.append(name)
                count = room[meter.inside]
            room[meter.inside] -= count
        if count:
            fitted.append((name, count))
    return tuple(fitted)


def _tier(convention: Convention, body: Mapping[str, Any]) -> str:
    """The provider's word: in the usage (Anthropic), or else beside it (OpenAI)."""
    said = None
    for root in convention.roots if convention.tier else ():
        for at in (root, root[:-1]):
            holder = _inside(body, at)
            if said is None and isinstance(holder, dict):
                said = holder.get(convention.tier)
    if not isinstance(said, str) or len(said) > TIER_LIMIT_CHARS:
        return ""
    lowered = said.lower()
    return lowered if lowered.replace("_", "").replace("-", "").isalnum() else ""
