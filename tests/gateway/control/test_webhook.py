"""Notifications: signed, retried a few times, each delivered or given up on record."""

import asyncio
import hmac
import json
from hashlib import sha256

import aiohttp
import pytest
from aiohttp import web

from gateway.control.webhook import ATTEMPTS_LIMIT, Webhook
from ledger.reading import connect_read_only
from ledger.records import Notification
from ledger.rows import record_of, select
from tests import factories
from tests.gateway.clock import VirtualClock

SECRET = "shared"


async def receiver(answers):
    """A webhook that answers with these statuses in turn, the last one for ever; what it got."""
    got = []

    async def take(request):
        got.append((request.headers["X-Weighbridge-Signature"], await request.read()))
        return web.Response(status=answers[min(len(got), len(answers)) - 1])

    application = web.Application()
    application.router.add_post("/hook", take)
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    return runner, f"http://user:secret@127.0.0.1:{port}/hook", got


def told(store, ledger_path, answers, times=1):
    """(what came of each round, what the receiver got) of telling a ledger's actions."""

    async def scenario():
        runner, url, got = await receiver(answers)
        hook = Webhook(
            url=url, secret=SECRET, store=store, clock=VirtualClock(factories.NOW_US),
            reader=lambda: connect_read_only(ledger_path), first_wait_s=0.0,
        )  # fmt: skip
        async with aiohttp.ClientSession() as session:
            rounds = [await hook.tell(session) for _ in range(times)]
        await runner.cleanup()
        return rounds, got

    return asyncio.run(scenario())


def notifications(reader):
    rows = reader.execute(f"{select(Notification)} ORDER BY seq").fetchall()
    return [record_of(Notification, row) for row in rows]


@pytest.fixture
def acted(store):
    (place,) = store.append((factories.control_action(action="slo.shed_priority"),)).result()
    return place.seq


def test_an_action_is_told_once_and_its_signature_can_be_checked(store, ledger_path, reader, acted):
    rounds, ((header, body),) = told(store, ledger_path, [204], times=2)
    assert rounds == [1, 0]
    at, sign = (part.partition("=")[2] for part in header.split(","))
    signed = f"{at}.".encode() + body
    assert sign == hmac.new(SECRET.encode(), signed, sha256).hexdigest()
    sent = json.loads(body)
    assert (sent["id"], sent["action"]) == (acted, "slo.shed_priority")
    (row,) = notifications(reader)
    assert (row.action_seq, row.outcome, row.attempts) == (acted, "delivered", 1)
    assert "secret" not in row.target


def test_a_failing_receiver_is_tried_again(store, ledger_path, reader, acted):
    _, got = told(store, ledger_path, [500, 503, 200])
    assert len(got) == 3
    assert [(one.outcome, one.attempts) for one in notifications(reader)] == [("delivered", 3)]


def test_after_some_attempts_a_receiver_is_given_up_on_record(store, ledger_path, reader, acted):
    _, got = told(store, ledger_path, [302], times=2)
    assert len(got) == ATTEMPTS_LIMIT
    assert [one.outcome for one in notifications(reader)] == ["given_up"]


def test_what_an_objective_did_is_told_first_and_one_given_up_ends_a_round(
    store, ledger_path, reader
):
    acts = [factories.control_action(action=each) for each in ("drain_route", "slo.shed_priority")]
    older, newer = (place.seq for place in store.append(acts).result())
    rounds, _ = told(store, ledger_path, [500], times=3)
    assert rounds == [1, 1, 0]
    assert [one.action_seq for one in notifications(reader)] == [newer, older]


def test_nothing_is_told_of_what_is_a_day_old_or_the_demonstrations(store, ledger_path, reader):
    old_us = factories.NOW_US - 2 * 86_400_000_000
    store.append(
        (
            factories.control_action(action="slo.cut_route", acted_at_us=old_us),
            factories.control_action(action="demo.loaded"),
        )
    ).result()
    rounds, got = told(store, ledger_path, [200])
    assert (rounds, got) == ([0], [])
