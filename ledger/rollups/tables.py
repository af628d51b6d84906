"""The rollups' tables: what they hold, and the SQL that makes and fills them.

`<prefix>_series` names each combination of dimensions once. `<prefix>_total` holds sums by quarter
hour and series while an hour is open; when it is over, they become one packed row a bucket in
`<prefix>_packed`, for the quarter hour and each coarser grain. `<prefix>_latency` holds packed
histograms, `<prefix>_sli` good and valid requests by objective and minute, both by coarser grains
too once those are over. `<prefix>_state` is one row: how far the rollups have come.

Buckets are UTC, in microseconds, of the time of acceptance (SLO-7). What lies before a grain's
`_until` mark is complete in that grain. Sums of money are two limbs (`ledger.money.split`), because
they outgrow int64.
"""

from dataclasses import dataclass
from functools import cached_property

MINUTE_US = 60_000_000
MINUTE, QUARTER, HOUR, SHIFT, DAY = 1, 15, 60, 360, 1440  # minutes
GRAINS_MIN: tuple[int, ...] = (QUARTER, HOUR, SHIFT, DAY)
COARSE_MIN: tuple[int, ...] = (HOUR, SHIFT, DAY)
LIVE_PREFIX = "rollup"
SHADOW_PREFIX = "rollup_shadow"
ARCHIVED_PREFIX = "archived_rollup"

# Every dimension is text; "" stands for none (a rejected request has no route).
DIMENSIONS: tuple[str, ...] = (
    "tenant_id",
    "key_id",
    "logical_model",
    "identity_id",
    "route_id",
    "priority",
    "user_path",
    "task_type",
    "release_id",
    "arm",
    "status",
    "reason",  # terminal_error_code
    "degraded",  # "1" or ""
    "schema_valid",  # "1", "0" or "": none was asked for
    "tags",  # as on the receipt, {"cost-centre":"a"}; OTHER_TAGS beyond a tenant's limit
)
TAG_SETS_LIMIT = 1_000
"""Different sets of tags of one tenant that are kept apart: a caller may choose any values."""
OTHER_TAGS = "*"
LATENCY_DIMENSIONS: tuple[str, ...] = (
    "logical_model",
    "identity_id",
    "route_id",
    "priority",
    "release_id",
    "arm",
)
OUTCOME_COUNTS: tuple[str, ...] = (
    "outcomes",  # requests with an outcome report
    "quality_passed",
    "citations_verified",
    "tasks_completed",
    "taken_over",
)
COUNTS: tuple[str, ...] = (
    "receipts",
    "judged",  # the denominator of valid completion (SLO-0)
    "valid",  # valid completions
    "input_tokens",
    "cached_input_tokens",
    "output_tokens",
    "attempts",
    "unpriced",  # what ran without a rate, which costs nothing here (CST-7)
    *OUTCOME_COUNTS,
)
COSTS: tuple[str, ...] = (
    "cost_input",
    "cost_cached_input",
    "cost_output",
    "cost_fixed",
    "cost_other",
    "cost_retry_and_hedge",
    "cost_total",
)
LIMBS: tuple[str, ...] = tuple(f"{cost}_{limb}" for cost in COSTS for limb in ("high", "low"))
MEASURES: tuple[str, ...] = COUNTS + LIMBS
LATENCIES: tuple[str, ...] = ("ttft", "itl", "e2e", "queue")
KINDS: tuple[str, ...] = (
    "series",
    "latency_series",
    "total",
    "packed",
    "latency",
    "sli",
    "state",
)


def grain_us(grain_min: int) -> int:
    return grain_min * MINUTE_US


@dataclass(frozen=True)
class Tables:
    """The SQL for one set of tables. The prefix is one of the three constants, never input."""

    prefix: str = LIVE_PREFIX

    def name(self, kind: str) -> str:
        return f"{self.prefix}_{kind}"

    @cached_property
    def create(self) -> tuple[str, ...]:
        """The statements that make the empty tables."""
        return (
            _series_table(self.name("series"), DIMENSIONS),
            _series_table(self.name("latency_series"), LATENCY_DIMENSIONS),
            f"CREATE TABLE {self.name('total')} "
            "(bucket_us INTEGER NOT NULL, series_id INTEGER NOT NULL, "
            + "".join(f"{measure} INTEGER NOT NULL, " for measure in MEASURES)
            + "PRIMARY KEY (bucket_us, series_id)) WITHOUT ROWID",
            f"CREATE TABLE {self.name('packed')} (grain_min INTEGER NOT NULL, "
            "bucket_us INTEGER NOT NULL, sums BLOB NOT NULL, PRIMARY KEY (grain_min, bucket_us))",
            f"CREATE TABLE {self.name('latency')} (grain_min INTEGER NOT NULL, "
            "bucket_us INTEGER NOT NULL, series_id INTEGER NOT NULL, "
            + "".join(f"{latency} BLOB NOT NULL, " for latency in LATENCIES)
            + "PRIMARY KEY (grain_min, bucket_us, series_id))",
            f"CREATE TABLE {self.name('sli')} (slo_key TEXT NOT NULL, "
            "grain_min INTEGER NOT NULL, bucket_us INTEGER NOT NULL, "
            "good INTEGER NOT NULL, valid INTEGER NOT NULL, "
            "PRIMARY KEY (slo_key, grain_min, bucket_us)) WITHOUT ROWID",
            f"CREATE TABLE {self.name('state')} (id INTEGER PRIMARY KEY CHECK (id = 1), "
            "position INTEGER NOT NULL, hour_until_us INTEGER NOT NULL, "
            "shift_until_us INTEGER NOT NULL, day_until_us INTEGER NOT NULL)",
            f"INSERT INTO {self.name('state')} VALUES (1, 0, 0, 0, 0)",
        )

    @cached_property
    def drop(self) -> tuple[str, ...]:
        return tuple(f"DROP TABLE IF EXISTS {self.name(kind)}" for kind in KINDS)

    @cached_property
    def columns(self) -> str:
        """Reads nothing, and fails where the tables are an older version's."""
        return f"SELECT {', '.join(MEASURES)} FROM {self.name('total')} LIMIT 0"

    @cached_property
    def add_total(self) -> str:
        """Adds one row's measures to what stands under its bucket and series."""
        columns = ("bucket_us", "series_id", *MEASURES)
        adding = ", ".join(f"{measure} = {measure} + excluded.{measure}" for measure in MEASURES)
        return (
            f"INSERT INTO {self.name('total')} ({', '.join(columns)}) "
            f"VALUES ({', '.join('?' * len(columns))}) "
            f"ON CONFLICT (bucket_us, series_id) DO UPDATE SET {adding}"
        )

    @cached_property
    def range_total(self) -> str:
        return (
            f"SELECT bucket_us, series_id, {', '.join(MEASURES)} "
            f"FROM {self.name('total')} WHERE bucket_us >= ? AND bucket_us < ?"
        )

    @cached_property
    def clear_total(self) -> str:
        return f"DELETE FROM {self.name('total')} WHERE bucket_us >= ? AND bucket_us < ?"

    @cached_property
    def find_packed(self) -> str:
        return f"SELECT sums FROM {self.name('packed')} WHERE grain_min = ? AND bucket_us = ?"

    @cached_property
    def range_packed(self) -> str:
        return (
            f"SELECT bucket_us, sums FROM {self.name('packed')} "
            "WHERE grain_min = ? AND bucket_us >= ? AND bucket_us < ?"
        )

    @cached_property
    def put_packed(self) -> str:
        return (
            f"INSERT INTO {self.name('packed')} (grain_min, bucket_us, sums) "
            "VALUES (?, ?, ?) ON CONFLICT (grain_min, bucket_us) DO UPDATE SET sums = excluded.sums"
        )

    @cached_property
    def find_latency(self) -> str:
        return (
            f"SELECT {', '.join(LATENCIES)} FROM {self.name('latency')} "
            "WHERE grain_min = ? AND bucket_us = ? AND series_id = ?"
        )

    @cached_property
    def put_latency(self) -> str:
        setting = ", ".join(f"{latency} = excluded.{latency}" for latency in LATENCIES)
        return (
            f"INSERT INTO {self.name('latency')} "
            f"(grain_min, bucket_us, series_id, {', '.join(LATENCIES)}) "
            f"VALUES (?, ?, ?, ?, ?, ?, ?) "
            f"ON CONFLICT (grain_min, bucket_us, series_id) DO UPDATE SET {setting}"
        )

    @cached_property
    def range_latency(self) -> str:
        return (
            f"SELECT bucket_us, series_id, {', '.join(LATENCIES)} "
            f"FROM {self.name('latency')} "
            "WHERE grain_min = ? AND bucket_us >= ? AND bucket_us < ?"
        )

    @cached_property
    def add_sli(self) -> str:
        return (
            f"INSERT INTO {self.name('sli')} "
            "(slo_key, grain_min, bucket_us, good, valid) VALUES (?, ?, ?, ?, ?) "
            "ON CONFLICT (slo_key, grain_min, bucket_us) "
            "DO UPDATE SET good = good + excluded.good, valid = valid + excluded.valid"
        )

    @cached_property
    def fold_sli(self) -> str:
        """Sums an objective's minutes into hours. Parameters: key, from and until in µs."""
        return (
            f"INSERT INTO {self.name('sli')} "
            f"SELECT slo_key, {HOUR}, bucket_us / {grain_us(HOUR)} * {grain_us(HOUR)}, "
            f"SUM(good), SUM(valid) FROM {self.name('sli')} WHERE slo_key = ? "
            f"AND grain_min = {MINUTE} AND bucket_us >= ? AND bucket_us < ? GROUP BY 3"
        )

    @cached_property
    def read_state(self) -> str:
        return (
            "SELECT position, hour_until_us, shift_until_us, day_until_us "
            f"FROM {self.name('state')}"
        )

    @cached_property
    def write_state(self) -> str:
        return (
            f"UPDATE {self.name('state')} SET position = ?, "
            "hour_until_us = ?, shift_until_us = ?, day_until_us = ?"
        )

    @cached_property
    def count_tag_sets(self) -> str:
        """How many different sets of tags a tenant has; parameter: tenant_id."""
        return f"SELECT count(DISTINCT tags) FROM {self.name('series')} WHERE tenant_id = ?"

    def find_series(self, kind: str, dimensions: tuple[str, ...]) -> str:
        matching = " AND ".join(f"{dimension} = ?" for dimension in dimensions)
        return f"SELECT series_id FROM {self.name(kind)} WHERE {matching}"

    def put_series(self, kind: str, dimensions: tuple[str, ...]) -> str:
        return (
            f"INSERT INTO {self.name(kind)} ({', '.join(dimensions)}) "
            f"VALUES ({', '.join('?' * len(dimensions))})"
        )


def _series_table(name: str, dimensions: tuple[str, ...]) -> str:
    columns = "".join(f"{dimension} TEXT NOT NULL, " for dimension in dimensions)
    return (
        f"CREATE TABLE {name} (series_id INTEGER PRIMARY KEY, {columns}"
        f"UNIQUE ({', '.join(dimensions)}))"
    )


LIVE = Tables(LIVE_PREFIX)
SHADOW = Tables(SHADOW_PREFIX)
ARCHIVED = Tables(ARCHIVED_PREFIX)
"""The sums of receipts that are in archives: what a rebuild starts from."""
