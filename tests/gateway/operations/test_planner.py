"""What takes long is planned in a process of its own, with the same rows, and dies alone."""

import asyncio
import os
import signal
from contextlib import closing

import msgspec
import pytest

from gateway.operations import planner as planning
from gateway.operations.base import Actor, Done, Refused, Seen
from gateway.operations.control import CorrectSlos, EvaluateSlos
from gateway.operations.executor import Executor
from gateway.operations.planner import COMMAND, Planner, packed, unpacked
from gateway.operations.planning import Prepared, prepare
from gateway.operations.registry import OPERATIONS
from gateway.operations.routes import DrainRoute
from ledger.reading import connect_read_only
from ledger.records import RECORDS, ControlAction, SloEvaluation
from ledger.rollups.projection import Rollups
from ledger.store import Store
from tests.gateway.clock import VirtualClock
from tests.gateway.control.ledger_of import NOW_US, closed, experiment_one, pour, rows
from tests.server_fixtures import Fleet

EVALUATOR = Actor(name="evaluator", role="operator", via="server")
VIEWER = Actor(name="ada", role="viewer", via="console")
AT_US = closed(NOW_US)
SAMPLES = {str: "ü", int: -(2**63), bytes: b"\x00\xff"}


def sample(kind):
    """A record of its class with a value of the right type in each field; the extremes of each."""
    values = {}
    for field in msgspec.structs.fields(kind):
        types = getattr(field.type, "__args__", (field.type,))
        values[field.name] = next((SAMPLES[one] for one in types if one in SAMPLES), None)
    return kind(**values)


@pytest.mark.parametrize("kind", RECORDS, ids=lambda kind: kind.TABLE)
def test_a_row_of_each_table_comes_back_from_the_process_as_it_was_planned(kind):
    row = sample(kind)
    done = Done(summary="Done.", subject="all", records=1, after={"windows": 1}, shown_once="key")
    assert unpacked(packed(Prepared(records=(row,), done=done))) == Prepared(
        records=(row,), done=done
    )


def running(planner: Planner) -> int:
    """The number of its process; never 0, which would signal this one and its like."""
    assert planner.process_id
    return planner.process_id


def planned(fleet: Fleet, operation, actor=EVALUATOR):
    with closing(fleet.reader()) as connection:
        return prepare(operation, Seen(connection=connection, now_us=AT_US, actor=actor))


def test_a_plan_made_apart_is_the_plan_made_here(fleet: Fleet):
    async def over():
        pour(fleet, experiment_one(NOW_US - 300_000_000))
        here = planned(fleet, EvaluateSlos())
        planner = Planner(fleet.ledger)
        try:
            assert await planner.prepare(EvaluateSlos(), EVALUATOR, AT_US) == here
            assert isinstance(here, Prepared)
            assert await planner.prepare(CorrectSlos(), VIEWER, AT_US) == planned(
                fleet, CorrectSlos(), VIEWER
            )
        finally:
            await planner.close()

    asyncio.run(over())


def test_a_planning_process_that_is_killed_is_told_and_the_next_one_serves(fleet: Fleet):
    async def over():
        planner = Planner(fleet.ledger)
        try:
            refused = await planner.prepare(EvaluateSlos(), EVALUATOR, AT_US)
            assert (type(refused), refused.code) == (Refused, "NOTHING_DUE")
            process = running(planner)
            asked = asyncio.create_task(planner.prepare(EvaluateSlos(), EVALUATOR, AT_US))
            os.kill(process, signal.SIGSTOP)  # it has the ask, and never answers
            await asyncio.sleep(0)
            os.kill(process, signal.SIGKILL)
            assert (await asked).code in (
                "PLANNING_FAILED",
                "NOTHING_DUE",
            )  # it may have been faster
            again = await planner.prepare(EvaluateSlos(), EVALUATOR, AT_US)
            assert again.code == "NOTHING_DUE"
            assert planner.process_id != process
        finally:
            await planner.close()
        assert planner.process_id is None

    asyncio.run(over())


def test_a_fault_in_a_plan_ends_the_process_and_says_so(tmp_path, capfd):
    async def over():
        planner = Planner(tmp_path / "ledger.sqlite3")  # there is no such file
        refused = await planner.prepare(EvaluateSlos(), EVALUATOR, AT_US)
        assert (refused.code, planner.process_id) == ("PLANNING_FAILED", None)
        assert "LedgerNotReady" in capfd.readouterr().err

    asyncio.run(over())


def test_a_plan_that_takes_too_long_is_given_up(fleet: Fleet, monkeypatch):
    async def over():
        monkeypatch.setattr(planning, "PLAN_SECONDS", 0.0)
        planner = Planner(fleet.ledger)
        refused = await planner.prepare(EvaluateSlos(), EVALUATOR, AT_US)
        assert (refused.code, planner.process_id) == ("PLANNING_FAILED", None)

    asyncio.run(over())


def test_the_process_ends_with_its_pipe_so_that_it_outlives_no_killed_server(fleet: Fleet):
    async def over():
        process = await asyncio.create_subprocess_exec(
            *COMMAND, str(fleet.ledger),
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        out, _ = await process.communicate(b"")
        assert (process.returncode, out) == (0, b"")

    asyncio.run(over())


def test_nothing_waits_for_a_plan_which_is_made_again_where_something_was_done_meanwhile(
    fleet: Fleet,
):
    pour(fleet, experiment_one(NOW_US - 300_000_000))

    async def over():
        planner = Planner(fleet.ledger)
        with (
            Store.open(fleet.ledger, projections=(Rollups(),)) as store,
            closing(connect_read_only(fleet.ledger)) as reader,
        ):
            executor = Executor(
                store=store, reader=lambda: reader, clock=VirtualClock(AT_US), apply=nothing,
                planner=planner,
            )  # fmt: skip
            try:
                await planner.prepare(EvaluateSlos(at_us=0), EVALUATOR, AT_US)
                process = running(planner)
                os.kill(process, signal.SIGSTOP)
                evaluating = asyncio.create_task(executor.perform(EvaluateSlos(), EVALUATOR))
                while not planner.busy:
                    await asyncio.sleep(0)
                drain = DrainRoute(route_id="fast-v2", reason="it answers garbage")
                assert isinstance(await executor.perform(drain, EVALUATOR), Done)
                assert not evaluating.done()
                os.kill(process, signal.SIGCONT)
                assert isinstance(await evaluating, Done)
            finally:
                await planner.close()

    asyncio.run(over())
    drained = [one.subject for one in rows(fleet, ControlAction) if one.action == "drain_route"]
    assert drained == ["fast-v2"]
    assert rows(fleet, SloEvaluation) != []


async def nothing(records):
    """Nobody follows."""


def test_what_reads_a_period_is_planned_apart_and_what_changes_a_row_is_not(fleet: Fleet):
    apart = {name for name, kind in OPERATIONS.items() if kind.LONG}
    assert apart == {
        "correct_slos", "import_invoice", "lock_period", "reconcile", "sign_reconciliation",
    }  # fmt: skip
    with closing(fleet.reader()) as connection:
        seen = Seen(connection=connection, now_us=AT_US, actor=EVALUATOR)
        assert not EvaluateSlos().takes_long(seen)  # nobody has asked for anything
        assert not DrainRoute(route_id="fast-v2").takes_long(seen)
    pour(fleet, experiment_one(NOW_US - 300_000_000))
    with closing(fleet.reader()) as connection:
        assert EvaluateSlos().takes_long(Seen(connection=connection, now_us=AT_US, actor=EVALUATOR))
