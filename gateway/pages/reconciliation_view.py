"""A run of a reconciliation as rows of its page: pure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import msgspec

from gateway.operations.unknowns import ResolveUnknown
from gateway.reconciling import resolution_of
from ledger.reconcile.reports import Found, Movement, Report
from ledger.records import Invoice

REQUESTS_SHOWN = 3
WORDS = {
    "matched": "matched",
    "differing": "differing",
    "only_ours": "only ours",
    "only_theirs": "only theirs",
    "duplicate_charge": "charged twice",
    "unknown_resolved": "unknown resolved",
    "credit_or_refund": "credit or refund",
    "tax": "tax",
    "commitment_or_fee": "commitment or fee",
}
CHIPS = {
    "matched": "ok", "differing": "watch", "only_ours": "alert", "only_theirs": "alert",
    "duplicate_charge": "alert", "unknown_resolved": "watch",
}  # fmt: skip
VERDICTS = {
    "exact": ("ok", "agrees, to the last digit"),
    "within_tolerance": ("watch", "agrees within the tolerance"),
    "differs": ("alert", "differs"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One discrepancy, with the form that settles its unknown where there is one to settle."""

    found: Found
    chip: str
    words: str
    requests: tuple[str, ...]
    more_requests: int
    settle: dict[str, str] | None
    settled: bool


def rows(
    run_id: str, found: Sequence[Found], wanted: str, is_open: Callable[[str], bool]
) -> list[Row]:
    """The discrepancies of a class, or of all. `is_open`: whether an attempt is still unknown."""
    return [_row(run_id, one, is_open) for one in found if not wanted or one.class_name == wanted]


def _row(run_id: str, one: Found, is_open: Callable[[str], bool]) -> Row:
    still_open = one.proposal is not None and is_open(one.proposal.attempt_id)
    asked = resolution_of(run_id, one.proposal) if one.proposal and still_open else None
    return Row(
        found=one,
        chip=CHIPS.get(one.class_name, "no_data"),
        words=WORDS.get(one.class_name, one.class_name),
        requests=one.request_ids[:REQUESTS_SHOWN],
        more_requests=one.attempts - min(REQUESTS_SHOWN, len(one.request_ids)),
        settle=None if asked is None else _fields(asked),
        settled=one.proposal is not None and not still_open,
    )


def _fields(asked: ResolveUnknown) -> dict[str, str]:
    given = msgspec.structs.asdict(asked)
    return {name: str(value) for name, value in given.items() if value not in (None, "")}


def classes(report: Report) -> list[tuple[Movement, str, str]]:
    """(movement, chip, words) of each class, in their order."""
    return [
        (one, CHIPS.get(one.class_name, "no_data"), WORDS.get(one.class_name, one.class_name))
        for one in report.movements
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Import:
    """An import as a row: its totals by currency, and whether its buckets have gaps."""

    invoice: Invoice
    totals: tuple[tuple[str, str], ...]
    gaps: int


def imports(found: Sequence[Invoice]) -> list[Import]:
    return [
        Import(
            invoice=one,
            totals=tuple(sorted(msgspec.json.decode(one.totals_json, type=dict[str, str]).items())),
            gaps=len(msgspec.json.decode(one.gaps_json, type=list[list[int]])),
        )
        for one in found
    ]


def last_month(now_us: int) -> str:
    """The month before this one, in UTC: "2026-09"."""
    now = datetime.fromtimestamp(now_us // 1_000_000, tz=UTC)
    year, month = (now.year, now.month - 1) if now.month > 1 else (now.year - 1, 12)
    return f"{year:04}-{month:02}"
