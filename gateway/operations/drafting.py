"""What drafting, publishing and returning have in common, of policies and of rate tables."""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Literal, TypeVar

from gateway.fleet_file.differences import Difference
from gateway.fleet_file.named import Fault, read
from gateway.fleet_file.secrets import credential_faults, looks_like_credential
from gateway.operations.base import PROBLEMS_LIMIT, Plan, Refused, Seen
from ledger.queries import drafts
from ledger.records import Draft

T = TypeVar("T")
Kind = Literal["route_policy", "rate_table"]

NAME_LIMIT_CHARS = 100
NOTE_LIMIT_CHARS = 500
CHANGES_LIMIT = 100  # kept in the audit log; the whole difference is that of the two revisions
_NAME = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._/@:-]{{0,{NAME_LIMIT_CHARS - 1}}}")


def name_problem(name: str, what: str) -> Refused | None:
    """Why a name can't be that of a revision, version or draft; None where it can."""
    if _NAME.fullmatch(name) and not looks_like_credential(name):
        return None
    return Refused(
        code="BAD_NAME",
        message=f"A {what} has 1 to {NAME_LIMIT_CHARS} letters, digits and . _ / @ : - and "
        "begins with a letter or digit.",
    )


def read_body(kind: type[T], tree: Mapping[str, Any], code: str, **filled: str) -> T | Refused:
    """The value of a tree, the fields of `filled` added, or every fault of it, by path."""
    clash = [name for name, value in filled.items() if tree.get(name, value) != value]
    whole = {**tree, **filled}
    try:
        secret = credential_faults(whole)
    except RecursionError:
        return Refused(code=code, message="It is nested too deeply.")
    if secret:
        return refused(code, secret, whole)
    if clash:
        message = f"{clash[0]} is given twice and differs; give it once."
        return Refused(code=code, message=message)
    value, faults = read(kind, whole)
    return refused(code, faults, whole) if value is None else value


def refused(
    code: str, faults: Iterable[Fault], tree: object = None, *, advice: str = ""
) -> Refused:
    """Every fault with its path, up to PROBLEMS_LIMIT of them; `advice`: what to do about all."""
    lines = [fault.shown(tree) for fault in faults]
    more = len(lines) - PROBLEMS_LIMIT
    count = "1 problem" if len(lines) == 1 else f"{len(lines)} problems"
    shown = tuple(lines[:PROBLEMS_LIMIT]) + ((f"and {more} more",) if more > 0 else ())
    message = f"It has {count}; nothing was written. {lines[0]}"
    return Refused(code=code, message=f"{message} {advice}".rstrip(), problems=shown)


def changes(found: Iterable[Difference]) -> list[str]:
    """Differences as the audit log keeps them."""
    lines = [str(each) for each in found]
    more = len(lines) - CHANGES_LIMIT
    return lines[:CHANGES_LIMIT] + ([f"and {more} more"] if more > 0 else [])


def drafted(
    seen: Seen, *, kind: Kind, name: str, body_json: str, based_on: str | None, note: str,
    faults: Iterable[Fault], tree: object,
) -> Plan | Refused:  # fmt: skip
    """The plan of a new revision of a draft, which may still have faults: they are told."""
    if len(note) > NOTE_LIMIT_CHARS:
        message = f"The note has {len(note)} characters; {NOTE_LIMIT_CHARS} are allowed."
        return Refused(code="NOTE_TOO_LONG", message=message)
    if looks_like_credential(note):
        return Refused(code="CREDENTIAL", message="The note looks like it holds a credential.")
    before = drafts.draft(seen.connection, kind, name)
    if before is not None and (before.body_json, before.note) == (body_json, note):
        message = f"Revision {before.revision} of the draft {name} is the same already."
        return Refused(code="NO_CHANGE", message=message)
    revision = 1 if before is None else before.revision + 1
    record = Draft(
        kind=kind,
        name=name,
        revision=revision,
        body_json=body_json,
        based_on=based_on,
        drafted_at_us=seen.now_us,
        drafted_by=seen.actor.label,
        note=note,
    )
    lines = changes_left(faults, tree)
    left = f", with {len(lines)} to be put right before it can be published" if lines else ""
    return Plan(
        records=(record,),
        summary=f"Kept revision {revision} of the draft {name}{left}.",
        subject=name,
        before={} if before is None else {"draft": before.revision},
        after={"draft": revision, "based_on": based_on, "problems": lines},
    )


def changes_left(faults: Iterable[Fault], tree: object) -> list[str]:
    return [fault.shown(tree) for fault in faults][:PROBLEMS_LIMIT]


def missing_draft(name: str, revision: int | None) -> Refused:
    which = "" if revision is None else f" revision {revision} of"
    message = f"There is no{which} draft {name!r}; draft it first, or give the body."
    return Refused(code="NO_SUCH_DRAFT", message=message)


def moved(in_force: str | None, based_on: str | None, what: str) -> Refused | None:
    """Why the asker is told instead of overwriting what they may not have seen; None: they have."""
    if in_force == based_on:
        return None
    seen = f"is based on {based_on}" if based_on else "does not say what it is based on"
    return Refused(
        code="MOVED",
        message=f"The {what} is {in_force or 'none'}, and this {seen}. Look at what "
        f"differs, then publish with based_on set to {in_force or 'nothing'}.",
    )
