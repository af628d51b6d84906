"""The fleet file: what it may hold, read with the line and column of every fault. Pure.

    [tenants.NAME]        a quota            [[rate_tables]]   a version with its rates
    [identities.NAME]     the eight fields   [[evaluations]]   evidence for fallback edges
    [objectives.NAME]     an SLO             [policy]          the route policy

Every field has the name, unit and default that the record has. A route, rate or evaluation names
its model identity by the file's name of it or by its id, and a route may leave out its tokenizer,
which is its identity's.
"""

import copy
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from gateway.fleet_file.identities import ID_PREFIX, Identity, identity_id
from gateway.fleet_file.named import Fault, Path, named, read
from gateway.fleet_file.objectives import Objective
from gateway.fleet_file.positions import BadToml, Place, nearest, parse
from gateway.fleet_file.secrets import credential_faults
from gateway.fleet_file.toml_text import written
from gateway.policy.values import RoutePolicy
from gateway.quota import Quota
from ledger.rates import RateTable

TEXT_LIMIT_BYTES = 4 << 20


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """What a model identity scored on a suite, and where to look it up."""

    evaluation_id: str
    suite: str
    identity_id: str
    score_milli: int
    passed: bool
    measured_at_us: int
    evidence: str


class Fleet(msgspec.Struct, frozen=True, kw_only=True):
    """A fleet by value. Every reference to an identity is its id; `identities` has their names."""

    tenants: dict[str, Quota] = {}
    identities: dict[str, Identity] = {}
    rate_tables: tuple[RateTable, ...] = ()
    evaluations: tuple[Evidence, ...] = ()
    objectives: dict[str, Objective] = {}
    policy: RoutePolicy | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """A fleet file as it was read; without a fleet, `problems` says why."""

    fleet: Fleet | None
    tree: Mapping[str, Any]
    places: Mapping[Path, Place]
    problems: tuple[str, ...]

    def lines(self, faults: Iterable[Fault]) -> tuple[str, ...]:
        """Return faults in the order of the file, each with its line and column."""
        placed = sorted(
            (nearest(self.places, fault.path), fault.shown(self.tree)) for fault in faults
        )
        return tuple(f"{place}: {text}" for place, text in dict.fromkeys(placed))


def read_fleet(text: str) -> Reading:
    """Return the fleet of a text, or every problem of it with line and column."""
    size = len(text.encode("utf-8", "replace"))
    if size > TEXT_LIMIT_BYTES:
        return _unread(f"the file has {size} bytes of at most {TEXT_LIMIT_BYTES}")
    try:
        return _read(text)
    except BadToml as problem:
        return _unread(f"{problem}")
    except RecursionError:
        return _unread("line 1, column 1: it is nested too deeply")


def _read(text: str) -> Reading:
    tree, places = parse(text)
    resolved = copy.deepcopy(tree)
    faults = list(credential_faults(tree))
    secret = {fault.path for fault in faults}
    faults += _resolve(resolved)
    fleet, misread = read(Fleet, resolved)
    faults += [fault for fault in misread if fault.path not in secret]
    reading = Reading(fleet=None if faults else fleet, tree=tree, places=places, problems=())
    return replace(reading, problems=reading.lines(faults))


def write_fleet(fleet: Fleet) -> str:
    """The file of a fleet: reading it gives the fleet again."""
    tree = named(fleet)
    names = {identity_id(each): name for name, each in fleet.identities.items()}
    for _, element in _referring(tree):
        element["identity_id"] = names.get(element["identity_id"], element["identity_id"])
    for rate in _rates(tree):
        rate["key"] = names.get(rate["key"], rate["key"])
    for route in tree.get("policy", {}).get("routes", []):
        known = fleet.identities.get(route["identity_id"])
        if known is not None and known.tokenizer_revision == route["tokenizer_revision"]:
            del route["tokenizer_revision"]
    return written(tree)


def _unread(problem: str) -> Reading:
    return Reading(fleet=None, tree={}, places={}, problems=(problem,))


def _resolve(tree: dict[str, Any]) -> Iterator[Fault]:
    """Put ids and tokenizers where the file has names or nothing; what is off is a fault."""
    by_name: dict[str, Identity] = {}
    given = tree.get("identities")
    for name, fields in (given if isinstance(given, Mapping) else {}).items():
        identity, _ = read(Identity, fields)
        if identity is None:
            continue  # told when the whole is read
        if name.startswith(ID_PREFIX) and name != identity_id(identity):
            yield Fault(
                path=("identities", name),
                what=f"the id of these eight fields is {identity_id(identity)}",
                action="Correct the id, or give it a name of your own",
            )
        by_name[name] = identity
    by_id = {identity_id(each): each for each in by_name.values()}
    for path, element in _referring(tree):
        name = element["identity_id"]
        identity = by_name.get(name) or by_id.get(name)
        if identity is not None:
            element["identity_id"] = identity_id(identity)
            if path[0] == "policy":  # a route
                element.setdefault("tokenizer_revision", identity.tokenizer_revision)
        elif not name.startswith(ID_PREFIX):
            yield Fault(
                path=(*path, "identity_id"),
                what="the file has no identity of this name",
                action="Correct the name, add the identity, or give the id of a registered one",
            )
            if path[0] == "policy":
                element.setdefault("tokenizer_revision", "")  # nothing to be missed beside that
    for rate in _rates(tree):
        if rate["key"] in by_name:
            rate["key"] = identity_id(by_name[rate["key"]])
    for index, route in enumerate(_list(tree.get("policy"), "routes")):
        name = route.get("route_id") if isinstance(route, Mapping) else None
        if isinstance(name, str) and name in by_name:
            yield Fault(
                path=("policy", "routes", index, "route_id"),
                what="a model identity has this name, so that a rate's key could mean either",
                action="Rename one",
            )


def _referring(tree: Mapping[str, Any]) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Every route and evaluation that names an identity in a text, with its path."""
    places: tuple[tuple[Path, object, str], ...] = (
        (("policy", "routes"), tree.get("policy"), "routes"),
        (("evaluations",), tree, "evaluations"),
    )
    for path, holder, name in places:
        for index, element in enumerate(_list(holder, name)):
            if isinstance(element, dict) and isinstance(element.get("identity_id"), str):
                yield (*path, index), element


def _rates(tree: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for table in _list(tree, "rate_tables"):
        for rate in _list(table, "rates"):
            if isinstance(rate, dict) and isinstance(rate.get("key"), str):
                yield rate


def _list(tree: object, name: str) -> list[Any]:
    """A list of a tree that may not have the shape that it should."""
    found = tree.get(name) if isinstance(tree, Mapping) else None
    return found if isinstance(found, list) else []
