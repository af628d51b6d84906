"""What a fleet file would change: its differences from what is in force, rows, or faults by path.

What the file doesn't name stays as it is: nothing in a ledger is removed.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import msgspec

from gateway.fleet_file.differences import Difference, differences
from gateway.fleet_file.document import Evidence, Fleet
from gateway.fleet_file.identities import EMPTY_ACTION, empty_fields, identity_record
from gateway.fleet_file.in_force import declared_policy, evidence_of
from gateway.fleet_file.named import Fault, Path, named
from gateway.fleet_file.objectives import body_json, complete, objective_of
from gateway.operations.base import Refused, Seen
from gateway.operations.control import DeclareSlo
from gateway.operations.drafting import name_problem
from gateway.operations.policies import policy_records
from gateway.operations.policy_checks import Around, around, policy_faults, price_faults
from gateway.operations.rate_checks import record_of_table, table_faults
from gateway.operations.tenants import SetTenant
from gateway.quota import Quota
from ledger.queries import configuration as stored
from ledger.queries import objectives
from ledger.rates import RateTable
from ledger.records import EvaluationResult, ModelIdentity, Record


@dataclass(slots=True, kw_only=True)
class FleetPlan:
    """What applying a file comes to. With faults nothing is applied."""

    found: list[Difference] = field(default_factory=list)
    records: list[Record] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)

    def add(self, at: str, before: object, after: object, *records: Record) -> None:
        """One changed part: as it was, as it is to be, and the rows that make it so."""
        if before is None:
            self.found.append(Difference(path=at, kind="added", after=named(after)))
        else:
            self.found += differences(before, after, at)
        self.records += records


def planned(fleet: Fleet, seen: Seen) -> FleetPlan:
    """Return what a fleet changes of what `seen` has in force."""
    now = around(seen.connection, seen.now_us)
    plan = FleetPlan()
    after = replace(
        now,
        identities={**now.identities, **_identities(plan, fleet, now)},
        quotas={**now.quotas, **_tenants(plan, fleet, now, seen)},
        rate_tables=now.rate_tables + _rate_tables(plan, fleet, now, seen),
    )
    _evaluations(plan, fleet, after, seen)
    _objectives(plan, fleet, seen)
    _policy(plan, fleet, after, seen)
    return plan


def _identities(plan: FleetPlan, fleet: Fleet, now: Around) -> Mapping[str, ModelIdentity]:
    new: dict[str, ModelIdentity] = {}
    for name, identity in sorted(fleet.identities.items()):
        record = identity_record(identity)
        plan.faults += [
            Fault(path=("identities", name, each), what="it is empty", action=EMPTY_ACTION)
            for each in empty_fields(identity)
        ]
        if record.identity_id not in now.identities and record.identity_id not in new:
            new[record.identity_id] = record
            plan.add(f"identities[{name}]", None, identity, record)
    return new


def _tenants(plan: FleetPlan, fleet: Fleet, now: Around, seen: Seen) -> Mapping[str, Quota]:
    for name, quota in sorted(fleet.tenants.items()):
        before = now.quotas.get(name)
        if before == quota:
            continue
        change = SetTenant(tenant_id=name, quota=quota).plan(seen)
        if isinstance(change, Refused):
            plan.faults += _of_quota(name, change)
        else:
            plan.add(f"tenants[{name}]", before, quota, change.records[0])
    return fleet.tenants


def _of_quota(name: str, refused: Refused) -> Iterator[Fault]:
    """Each problem at the field that it begins with the name of."""
    for problem in refused.problems or (refused.message,):
        word, _, rest = problem.partition(" ")
        if word in Quota.__struct_fields__:
            what, _, action = rest.partition("; ")
            path: Path = ("tenants", name, word)
            yield Fault(path=path, what=f"it {what}", action=action.capitalize() or "Correct it")
        else:
            yield Fault(path=("tenants", name), what=problem, action="Correct it")


def _rate_tables(plan: FleetPlan, fleet: Fleet, now: Around, seen: Seen) -> tuple[RateTable, ...]:
    new: list[RateTable] = []
    for index, table in enumerate(fleet.rate_tables):
        path: Path = ("rate_tables", index)
        record = stored.rate_table(seen.connection, table.version)
        if record is not None:
            if msgspec.json.decode(record.body_json, type=RateTable) != table:
                plan.faults.append(_immutable((*path, "version"), "rate table", table.version))
            continue
        if any(each.version == table.version for each in new):
            plan.faults.append(_twice((*path, "version")))
        plan.faults += [_under(path, each) for each in table_faults(table, seen)]
        base = [
            each for each in now.rate_tables if each.effective_from_us <= table.effective_from_us
        ]
        at = f"rate_tables[{table.version}]"
        plan.add(at, base[-1] if base else None, table, record_of_table(table, seen))
        new.append(table)
    return tuple(new)


def _evaluations(plan: FleetPlan, fleet: Fleet, after: Around, seen: Seen) -> None:
    known = {each.evaluation_id: each for each in stored.evaluations(seen.connection)[0]}
    new: set[str] = set()
    for index, evidence in enumerate(fleet.evaluations):
        path: Path = ("evaluations", index)
        record = known.get(evidence.evaluation_id)
        if evidence.evaluation_id in new:
            plan.faults.append(_twice((*path, "evaluation_id")))
            continue
        if record is not None:
            if evidence_of(record) != evidence:
                plan.faults.append(
                    _immutable((*path, "evaluation_id"), "evaluation", evidence.evaluation_id)
                )
            continue
        plan.faults += [_under(path, each) for each in _evidence_faults(evidence, after)]
        new.add(evidence.evaluation_id)
        row = _evaluation_record(evidence)
        plan.add(f"evaluations[{evidence.evaluation_id}]", None, evidence, row)


def _evidence_faults(evidence: Evidence, after: Around) -> Iterator[Fault]:
    if evidence.identity_id not in after.identities:
        what, action = "no such model identity is registered", "Add it to the file's identities"
        yield Fault(path=("identity_id",), what=what, action=action)
    if not 0 <= evidence.score_milli <= 1000:
        what, action = f"it is {evidence.score_milli}", "Set it between 0 and 1000"
        yield Fault(path=("score_milli",), what=what, action=action)


def _evaluation_record(evidence: Evidence) -> EvaluationResult:
    fields = msgspec.structs.asdict(evidence) | {"passed": int(evidence.passed)}
    return EvaluationResult(**fields)


def _objectives(plan: FleetPlan, fleet: Fleet, seen: Seen) -> None:
    newest = {each.slo_id: objective_of(each) for each in objectives.revisions(seen.connection)}
    for name, objective in sorted(fleet.objectives.items()):
        before, after = newest.get(name), complete(objective)
        if before == after:
            continue
        change = DeclareSlo(slo_id=name, body_json=body_json(objective)).plan(seen)
        if isinstance(change, Refused):
            path: Path = ("objectives", name)
            for problem in change.problems or (change.message,):
                what = problem.rstrip(".")
                plan.faults.append(Fault(path=path, what=what, action="Correct it"))
        else:
            plan.add(f"objectives[{name}]", before, after, *change.records)


def _policy(plan: FleetPlan, fleet: Fleet, after: Around, seen: Seen) -> None:
    current, policy = declared_policy(seen.connection), fleet.policy
    at: Path = ("policy",)
    if policy is None or policy == current:
        if current is not None and plan.records:
            # Tenants and rates that are new among an old policy: what they mean for its prices.
            here = at if policy is not None else ()
            plan.faults += [_under(here, each) for each in price_faults(current, after)]
        return
    if stored.policy(seen.connection, policy.revision) is not None:
        plan.faults.append(_immutable((*at, "revision"), "policy", policy.revision))
        return
    wrong = name_problem(policy.revision, "revision")
    if wrong is not None:
        plan.faults.append(Fault(path=(*at, "revision"), what=wrong.message, action="Rename it"))
    plan.faults += [_under(at, each) for each in policy_faults(policy, after)]
    plan.add("policy", current, policy, *policy_records(policy, seen))


def _immutable(path: Path, what: str, name: str) -> Fault:
    return Fault(
        path=path,
        what=f"the {what} {name} is published with another content, or is not the one in force, "
        "and a published one never changes",
        action="Give it a new name",
    )


def _twice(path: Path) -> Fault:
    return Fault(path=path, what="the file has it twice", action="Keep one of them")


def _under(path: Path, fault: Fault) -> Fault:
    return replace(fault, path=(*path, *fault.path))
