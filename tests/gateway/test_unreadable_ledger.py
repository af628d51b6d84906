"""A ledger that can't be read for a while: said as that, and got over by itself (LED-1, SEC-3)."""

import asyncio
import re
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from gateway import runtime
from gateway.clock import SystemClock
from gateway.control.evaluator import EVALUATOR
from gateway.operations.base import Refused
from gateway.operations.control import EvaluateSlos
from gateway.operations.executor import Executor
from gateway.runtime import Runtime
from ledger.errors import LedgerNotReady, write_fault_of
from tests.gateway.api.client import Client, SmallGateway

ENDPOINTS = SmallGateway().application().table.endpoints
GETS = [re.sub(r"{[a-z]+}", "x", each.path) for each in ENDPOINTS if each.method == "GET"]
FAULTS = (
    LedgerNotReady("ledger.sqlite3", "there is no such file"),
    sqlite3.OperationalError("disk I/O error"),
    sqlite3.DatabaseError("database disk image is malformed"),
)


class Unreadable(SmallGateway):
    """A gateway whose ledger was there at its start, and is away now."""

    def reader(self):
        raise FAULTS[0]


@pytest.fixture
def client() -> Client:
    return Client(Unreadable())


@pytest.mark.parametrize("path", GETS)
def test_a_question_that_it_can_not_answer_may_be_asked_again_and_is_no_fault(client, path):
    reply = client.get(path)
    assert reply.status != 500
    if reply.status == 503:
        assert reply.json["code"] == "LEDGER_UNAVAILABLE"
        assert reply.headers["retry-after"] == "1"


def test_enough_questions_need_it_to_be_tried(client):
    assert len([path for path in GETS if client.get(path).status == 503]) > 10


def test_a_cancel_may_be_sent_again(client):
    assert client.call("POST", "/api/v1/requests/x/cancel").status == 503


def test_nothing_runs_under_a_key_of_which_it_can_not_say_whether_it_was_used(client):
    reply = client.chat(headers={"idempotency-key": "k"})
    assert (reply.status, reply.error["code"]) == (503, "LEDGER_UNAVAILABLE")
    assert client.gateway.journey.submissions == []


def test_a_fault_of_a_request_that_may_have_run_asks_for_no_retry(client):
    client.gateway.journey.fault = FAULTS[1]
    reply = client.chat()
    assert (reply.status, reply.headers["x-should-retry"]) == (500, "false")


def test_an_operation_is_refused():
    async def run():
        never: Any = None  # what comes after the read
        executor = Executor(
            store=never, reader=Unreadable().reader, clock=SystemClock(), apply=never, planner=never
        )
        refused = await executor.perform(EvaluateSlos(), EVALUATOR)
        assert isinstance(refused, Refused) and refused.code == "LEDGER_UNAVAILABLE"

    asyncio.run(run())


@pytest.mark.parametrize("fault", FAULTS)
def test_a_task_that_needs_it_is_begun_again_and_readiness_says_so_meanwhile(fault, monkeypatch):
    monkeypatch.setattr(runtime, "AGAIN_SECONDS", 0.0)
    server = Runtime(ledger=Path("ledger.sqlite3"), clock=SystemClock(), secret="a secret")
    begun, said = [], set()

    async def away_three_times() -> None:
        begun.append(True)
        if len(begun) <= 3:
            raise fault

    async def run():
        again = asyncio.create_task(server._again("learning", away_three_times))
        while not again.done():
            said.update(server.ready()[1])
            await asyncio.sleep(0)

    asyncio.run(run())
    assert len(begun) == 4
    assert f"the task 'learning' can't read the ledger: {write_fault_of(fault)}" in said
    assert server.ready()[1] == ("the server is starting",)
