"""A ledger with a few days of varied receipts, written through the store with its rollups."""

import random

from ledger.rollups.projection import Rollups
from ledger.store import Store
from tests.ledger.receipts import HOUR_US, T0_US, receipt

SEEDED = 600
SPAN_US = 5 * 24 * HOUR_US + 3 * HOUR_US


def seeded_receipts(count=SEEDED, seed=3):
    """Receipts in order of acceptance over five days and three hours from T0_US, all end states."""
    rng = random.Random(seed)
    made = []
    for number in range(count):
        status = rng.choices(
            ["completed", "rejected", "cancelled", "failed", "unknown"], [80, 8, 5, 4, 3]
        )[0]
        served = status != "rejected"
        canary = rng.random() < 0.3
        made.append(
            receipt(
                request_id=f"req_{number:06}",
                tenant_id=rng.choice(["acme", "globex", "initech"]),
                priority=rng.choice(["interactive", "normal", "batch"]),
                user_path=rng.choice(["interactive", "background"]),
                logical_model=(model := rng.choice(["chat-large", "chat-small"])),
                route_id=f"{model}-{'b' if canary else 'a'}" if served else None,
                identity_id=f"mid-{model}-{'b' if canary else 'a'}" if served else None,
                release_id="release-1" if served else None,
                arm=("canary" if canary else "stable") if served else None,
                status=status,
                terminal_error_code="CAPACITY_SHED" if status == "rejected" else None,
                degraded_from="elsewhere" if served and rng.random() < 0.1 else None,
                schema_valid=rng.choice([None, None, 1, 0]),
                input_tokens=rng.randrange(4_000),
                output_tokens=rng.randrange(800) if served else 0,
                first_token_us=int(rng.lognormvariate(12.5, 0.8)) if served else None,
                queue_us=int(rng.lognormvariate(10, 1)) if served else None,
                itl_mean_us=int(rng.lognormvariate(9.5, 0.3)) if served else None,
                e2e_us=int(rng.lognormvariate(15, 0.7)),
                cost_input_pico=rng.randrange(2**62) if served else 0,
                cost_output_pico=rng.randrange(10**12) if served else 0,
                cost_retry_and_hedge_pico=rng.choice([0, 0, 12_345]) if served else 0,
                cost_total_pico=0,
                accepted_at_us=T0_US + number * SPAN_US // count + rng.randrange(1_000),
            )
        )
    return [_totalled(one) for one in made]


def _totalled(one):
    parts = one.cost_input_pico // 2 + one.cost_output_pico + one.cost_retry_and_hedge_pico
    fields = {name: getattr(one, name) for name in one.__struct_fields__}
    return receipt(
        **fields | {"cost_input_pico": one.cost_input_pico // 2, "cost_total_pico": parts}
    )


def fill(path, receipts, batch=50):
    """Appends receipts to the ledger at `path` in commits of `batch`."""
    with Store.open(path, projections=(Rollups(),)) as store:
        for start in range(0, len(receipts), batch):
            store.append(receipts[start : start + batch]).result()


class Plans:
    """The query plans of every statement that runs over a connection while it is watched."""

    SMALL = (
        "seg",
        "slo_definition",
        "rollup_state",
        "rollup_series",
        "s",
    )  # one row a combination, not a request

    def __init__(self, connection):
        self._connection = connection
        self.statements = []

    def __enter__(self):
        self._connection.set_trace_callback(self.statements.append)
        return self

    def __exit__(self, *_):
        self._connection.set_trace_callback(None)

    def steps(self):
        """Each step of each plan, as SQLite words it: SCAN seg, SEARCH t USING PRIMARY KEY (…)."""
        found = []
        for statement in self.statements:
            if statement.lstrip().upper().startswith(("SELECT", "WITH")):
                plan = self._connection.execute(f"EXPLAIN QUERY PLAN {statement}").fetchall()
                found += [row[3] for row in plan]
        return found

    def scans_of_large_tables(self):
        """The steps that read a whole table or index of unbounded size."""
        return [
            step
            for step in self.steps()
            if step.startswith("SCAN")
            and "CONSTANT" not in step
            and step.split()[1] not in self.SMALL
        ]
