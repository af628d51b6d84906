"""One fault of every kind on one running server; the long form is `python -m tests.faults`."""

import asyncio
from random import Random

from tests.faults.disk import NoCompiler, library
from tests.faults.injections import KINDS, NEED_DISK
from tests.faults.storm import order, storm

SEED = 20261130


def test_led_1_4_6_7_everything_holds_after_one_fault_of_every_kind(ledger_template, tmp_path):
    """Each receipt once, sums, chain, and service back: see Checks and Rig.back."""
    try:
        library()
    except NoCompiler as problem:
        kinds = [name for name in KINDS if name not in NEED_DISK]
        print(f"without a failing disk and a jumping clock: {problem}")
    else:
        kinds = list(KINDS)
    report = asyncio.run(
        storm(
            ledger_template, tmp_path, order(kinds, len(kinds), Random(SEED)), seed=SEED,
            disk=len(kinds) == len(KINDS), most_connections=200, clients=4, tell=print,
        )
    )  # fmt: skip
    assert report.findings == []
    assert set(report.back_s) == set(kinds)
    assert report.receipts_told > len(kinds)


def test_a_run_has_each_kind_as_often_and_the_same_order_from_the_same_seed():
    names = order(list(KINDS), 500, Random(7))
    assert names == order(list(KINDS), 500, Random(7)) != order(list(KINDS), 500, Random(8))
    counts = {names.count(name) for name in KINDS}
    assert len(names) == 500 and max(counts) - min(counts) <= 1
