"""Our gateway under a load: as many receipts as requests, and books that prove themselves."""

import asyncio
import shutil
from pathlib import Path

import pytest

from benchmarks.peers import fleet, ours
from benchmarks.peers.driving import Door
from benchmarks.peers.processes import Group, free_port, stopped_after
from benchmarks.peers.running import DidNotStart, measured, start_upstream, started
from benchmarks.peers.values import Load

LOADS = (
    Load(name="many", title="", connections=4, seconds=0.1, tokens=8),
    Load(name="burst", title="", connections=2, seconds=0.1, tokens=50, stream=True),
)


def test_a_load_leaves_a_receipt_for_each_request_and_sound_books(ledger_template, tmp_path):
    """LED-1 and LED-2 under a load, and rollups that equal the receipts."""
    port = free_port()
    shutil.copyfile(ledger_template, tmp_path / "ledger.sqlite3")
    instance = ours.configured(tmp_path, fleet.upstream_address(port), free_port())

    async def run():
        with stopped_after(start_upstream(tmp_path, port)) as upstream:
            group = Group(
                instance.command, log=tmp_path / "log", environment=instance.environment,
                folder=ours.ROOT,
            )  # fmt: skip
            with stopped_after(group):
                running = await started(group, instance.door)
                cells = [await measured(running, load, upstream, warm_up_s=0.01) for load in LOADS]
                return cells, running.sent

    cells, sent = asyncio.run(run())
    assert [(each.failed, each.whole > 0, each.cpu_us is not None) for each in cells] == (
        [(0, True, True)] * len(LOADS)
    )
    account = ours.account(instance)
    assert account.problem(sent) == ""
    assert account.statuses == {"completed": sent}
    assert account.problem(sent + 1) == (
        f"{sent + 1:,} requests were sent, and {sent:,} have a receipt"
    )


def test_a_program_that_ends_instead_of_answering_is_told_with_its_last_words(tmp_path: Path):
    async def run():
        group = Group(
            ["sh", "-c", "echo no licence; exit 4"], log=tmp_path / "log", environment={},
            folder=tmp_path,
        )  # fmt: skip
        await started(group, Door(port=free_port(), headers={}))

    with pytest.raises(DidNotStart, match=r"\(ended with 4\): no licence"):
        asyncio.run(run())
