"""What providers billed, how it compares with what we ran, and which periods are closed (SPEC 11).

Amounts are exact decimal text in units ("16.7180474"): a line in a small currency, such as ten
million won, or a sum, can exceed what 64 bits hold in pico units. They are read into Python
integers of pico units (`ledger.money.parse_units`) and never into a float.
"""

from typing import ClassVar

from ledger.records.base import Index, Indexes, Record, Unique


class Invoice(Record, frozen=True, kw_only=True):
    """One import of a provider's usage or cost report, of one file or of all its pages (REC-1)."""

    TABLE: ClassVar[str] = "invoice"
    UNIQUE: ClassVar[Unique] = (("invoice_id",),)
    INDEXES: ClassVar[Indexes] = (Index("invoice_provider", "provider", "start_us"),)
    invoice_id: str  # from the hashes of its files: the same files are the same import
    provider: str
    format: str
    role: str  # usage: quantities alone | cost: money
    files_sha256: str  # space-separated, in page order
    start_us: int
    end_us: int
    lines: int  # in the files
    new_lines: int  # of these, how many the ledger did not have yet or had with another amount
    totals_json: str  # currency -> amount of all lines in the files
    finer_than_pico_lines: int  # amounts that were rounded half even to a pico unit
    gaps_json: str  # [[start_us, end_us], …]: time between two buckets of which nothing is said
    empty_json: str  # the same of buckets that are there and say that nothing was used
    imported_at_us: int
    imported_by: str


class InvoiceLine(Record, frozen=True, kw_only=True):
    """One line of a provider's report; a changed amount is a new revision of it (REC-1)."""

    TABLE: ClassVar[str] = "invoice_line"
    VERSION: ClassVar[int] = 2
    SINCE: ClassVar[dict[str, int]] = {"native_id": 2}
    UNIQUE: ClassVar[Unique] = (("line_id", "revision"),)
    INDEXES: ClassVar[Indexes] = (
        Index("invoice_line_period", "provider", "start_us"),
        Index("invoice_line_invoice", "invoice_id"),
    )
    line_id: str  # from what the line is about, not from its amount: the same in a later export
    revision: int  # 0, 1, …: the highest is in force
    invoice_id: str
    provider: str
    format: str
    role: str  # usage | cost
    kind: str  # usage | credit | refund | tax | commitment | fee | adjustment | rounding
    start_us: int
    end_us: int  # exclusive
    model: str | None
    project: str | None
    api_key: str | None
    tier: str | None  # batch, priority, flex, …; None: the standard one
    meter: str  # input (uncached) | cached_input | cache_write | output | other
    tokens: int | None
    quantity: str | None  # of what is no token, as printed, with its unit
    currency: str | None  # None of usage lines
    amount: str | None  # what is billed; None of usage lines
    rounded: int  # 1: the amount was finer than a pico unit and was rounded half even to one
    step: str | None  # what the provider rounds each row to ("0.01"), where it does
    list_amount: str | None
    effective_amount: str | None  # after spreading commitments
    provider_request_id: str | None
    repeats: int  # 1: the file has this very line before
    description: str
    tags_json: str
    invoice_number: str | None
    file_sha256: str
    line_number: int
    exported_at_us: int | None
    native_id: str | None = None  # the provider's own id of the line, in formats that have one


class CurrencyRate(Record, frozen=True, kw_only=True):
    """What one unit of a currency was worth in another on a day, and who says so (REC-2)."""

    TABLE: ClassVar[str] = "currency_rate"
    UNIQUE: ClassVar[Unique] = (("from_currency", "to_currency", "on_day", "revision"),)
    from_currency: str
    to_currency: str
    on_day: str  # 2026-09-30
    revision: int
    rate: str  # exact decimal
    source: str
    recorded_at_us: int
    recorded_by: str


class Reconciliation(Record, frozen=True, kw_only=True):
    """One comparison of a provider's lines with our attempts, for one period (REC-2, REC-3)."""

    TABLE: ClassVar[str] = "reconciliation"
    UNIQUE: ClassVar[Unique] = (("run_id",),)
    INDEXES: ClassVar[Indexes] = (Index("reconciliation_period", "provider", "start_us"),)
    run_id: str  # from plan, inputs and outcome: the same again is the same run
    provider: str
    period: str  # 2026-09
    zone: str
    start_us: int
    end_us: int
    currency: str
    plan_json: str  # ledger.reconcile.values.Plan: what is compared with what, and tolerances
    as_of_seq: int  # what stood in the chain after this row was not looked at
    invoices: str  # ids, space-separated
    rates_json: str  # the currency rates that were used
    inputs_digest: bytes
    digest: bytes  # of every row of the comparison, in order: what the exports hold
    ours: str
    theirs: str
    difference: str  # theirs - ours
    opening: str
    closing: str
    classes_json: str  # class -> [attempts, lines, ours, theirs]
    apart_json: str  # what is out of scope, counted
    discrepancies: int
    ran_at_us: int
    ran_by: str


class Discrepancy(Record, frozen=True, kw_only=True):
    """One unit of a comparison (a provider's request, or a period x model group) not matched."""

    TABLE: ClassVar[str] = "discrepancy"
    UNIQUE: ClassVar[Unique] = (("run_id", "ordinal"),)
    run_id: str
    ordinal: int
    class_name: str
    detail: str
    unit: str
    late: int  # 1: it belongs to a period that was locked
    attempts: int
    lines: int
    ours: str
    theirs: str
    ours_tokens_json: str  # [input, cached input, output] or null
    theirs_tokens_json: str
    members_json: str  # the first attempts and lines: ids
    proposal_json: str | None  # how an unknown would be settled, with this as evidence


class ReconciliationSignOff(Record, frozen=True, kw_only=True):
    """A second person agrees with a run: not who ran it, nor who imported its lines (REC-3)."""

    TABLE: ClassVar[str] = "reconciliation_sign_off"
    UNIQUE: ClassVar[Unique] = (("run_id",),)
    run_id: str
    signed_at_us: int
    signed_by: str
    note: str


class PeriodLock(Record, frozen=True, kw_only=True):
    """A closed period: what arrives for it later is an adjustment in the next one (REC-3)."""

    TABLE: ClassVar[str] = "period_lock"
    UNIQUE: ClassVar[Unique] = (("provider", "period"), ("run_id",))
    LABEL: ClassVar[str] = "period"
    provider: str
    period: str
    start_us: int
    end_us: int
    run_id: str
    as_of_seq: int
    closing: str
    locked_at_us: int
    locked_by: str
