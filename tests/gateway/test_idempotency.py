"""Idempotency-Key: one execution, one receipt, however often a request is sent (LED-5)."""

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from gateway.idempotency import RETAINED_CHARS, RETAINED_US, Claimed, Claims, Conflict, Past
from ledger.reading import reader
from ledger.records import IdempotencyKey, Receipt, RouteDecision
from ledger.rows import select
from tests.gateway.clock import VirtualClock

NOW_US = 1_800_000_000_000_000


def claims_over(ledger_path, clock=None):
    return Claims(clock or VirtualClock(NOW_US), "a secret", lambda: reader(ledger_path))


def in_loop(work):
    return asyncio.run(work)


def test_the_first_caller_claims_the_key_and_the_next_one_joins(ledger_path):
    async def work():
        claims = claims_over(ledger_path)
        first = claims.claim("tenant-a", "k", b"body")
        second = claims.claim("tenant-a", "k", b"body")
        assert isinstance(first, Claimed) and first.first
        assert isinstance(second, Claimed) and not second.first
        claims.settle("tenant-a", first, "the run", lambda: (False, 0), keep=True)
        assert await second.admitted == "the run"

    in_loop(work())


def test_another_body_under_the_same_key_is_a_conflict(ledger_path):
    async def work():
        claims = claims_over(ledger_path)
        claims.claim("tenant-a", "k", b"body")
        assert isinstance(claims.claim("tenant-a", "k", b"other body"), Conflict)

    in_loop(work())


def test_a_key_is_the_tenants_own(ledger_path):
    async def work():
        claims = claims_over(ledger_path)
        claims.claim("tenant-a", "k", b"body")
        other = claims.claim("tenant-b", "k", b"other body")
        assert isinstance(other, Claimed) and other.first

    in_loop(work())


def test_a_refusal_and_a_fault_free_the_key(ledger_path):
    async def work():
        claims = claims_over(ledger_path)
        first = claims.claim("tenant-a", "k", b"body")
        claims.settle("tenant-a", first, "refused", lambda: (True, 0), keep=False)
        again = claims.claim("tenant-a", "k", b"body")
        assert isinstance(again, Claimed) and again.first
        claims.abandon("tenant-a", again, RuntimeError("no ledger"))
        third = claims.claim("tenant-a", "k", b"body")
        assert isinstance(third, Claimed) and third.first

    in_loop(work())


@pytest.mark.parametrize(
    ("passed_us", "chars"), [(RETAINED_US + 1, 10), (1, RETAINED_CHARS + 1)], ids=["old", "large"]
)
def test_an_output_is_dropped_when_it_is_old_or_memory_is_full(
    ledger_path, store, passed_us, chars
):
    async def work():
        clock = VirtualClock(NOW_US)
        claims = claims_over(ledger_path, clock)
        first = claims.claim("tenant-a", "k", b"body")
        store.append(
            [
                IdempotencyKey(
                    tenant_id="tenant-a",
                    key_mac=first.claim.key_mac,
                    body_mac=first.claim.body_mac,
                    request_id="req_1",
                    claimed_at_us=NOW_US,
                )
            ]
        ).result()
        claims.settle("tenant-a", first, "the run", lambda: (True, chars), keep=True)
        clock.set_us(NOW_US + passed_us)
        assert claims.claim("tenant-a", "k", b"body") == Past(request_id="req_1")
        assert isinstance(claims.claim("tenant-a", "k", b"another"), Conflict)

    in_loop(work())


def test_a_claim_costs_a_few_looks_however_many_are_kept(ledger_path):
    looks = 0

    def output():
        nonlocal looks
        looks += 1
        return True, 1

    async def work():
        claims = claims_over(ledger_path)
        for number in range(2_000):
            made = claims.claim("tenant-a", f"key-{number}", b"body")
            claims.settle("tenant-a", made, "the run", output, keep=True)

    in_loop(work())
    assert looks < 2_000 * 2 * 2 * 16  # a look reads twice; a quadratic one would be 4,000,000


def count(fleet, record_type):
    return len(fleet.reader().execute(select(record_type)).fetchall())


def together(server, times, **sent):
    with ThreadPoolExecutor(times) as pool:
        return list(pool.map(lambda _: server.chat("hello", **sent), range(times)))


def test_concurrent_calls_with_one_key_are_one_request_with_one_receipt(fleet):
    with fleet.serving() as server:
        sent = {
            "key": server.keys["support-desk"],
            "max_tokens": 8,
            "headers": {"idempotency-key": "order-7"},
        }
        answers = together(server, 6, **sent)
        bodies = [json.loads(body) for _, _, body in answers]
        assert [status for status, _, _ in answers] == [200] * 6
        assert len({body["receipt"]["entry_hash"] for body in bodies}) == 1
        assert len({body["choices"][0]["message"]["content"] for body in bodies}) == 1

        streamed = server.chat("hello", stream=True, **sent)
        assert streamed[0] == 422  # another body: it asks for a stream
        assert json.loads(streamed[2])["error"]["code"] == "IDEMPOTENCY_CONFLICT"
    assert count(fleet, RouteDecision) == count(fleet, Receipt) == 1


def test_after_a_restart_the_key_still_stands_for_its_request(fleet):
    sent = {"max_tokens": 8, "headers": {"idempotency-key": "order-7"}}
    with fleet.serving() as server:
        key = server.keys["support-desk"]
        first = json.loads(server.chat("hello", key=key, **sent)[2])
    with fleet.serving() as server:
        status, headers, body = server.chat("hello", key=key, **sent)
        other, _, _ = server.chat("another text", key=key, **sent)
    assert status == 410
    error = json.loads(body)
    assert error["error"]["code"] == "OUTPUT_NOT_RETAINED"
    assert error["receipt"]["entry_hash"] == first["receipt"]["entry_hash"]
    assert headers["x-should-retry"] == "false"
    assert other == 422
    assert count(fleet, Receipt) == 1


def test_a_refused_request_leaves_its_key_to_the_corrected_one(fleet):
    key_header = {"idempotency-key": "order-7"}
    with fleet.serving() as server:
        sent = {"key": server.keys["support-desk"], "max_tokens": 8}
        refused = server.chat("hello", headers={**key_header, "x-deadline-ms": "0"}, **sent)
        assert (refused[0], count(fleet, IdempotencyKey)) == (400, 0)
        corrected = server.chat("hello", headers={**key_header, "x-deadline-ms": "60000"}, **sent)
        assert (corrected[0], count(fleet, IdempotencyKey)) == (200, 1)
        other = server.chat("hello", headers={**key_header, "x-deadline-ms": "59000"}, **sent)
        assert other[0] == 422
    assert count(fleet, Receipt) == 2


def test_neither_key_nor_body_is_in_the_ledger(fleet):
    with fleet.serving() as server:
        server.chat(
            "canary-in-the-body",
            key=server.keys["support-desk"],
            max_tokens=4,
            headers={"idempotency-key": "canary-in-the-key"},
        )
    for file in fleet.ledger.parent.iterdir():
        if file.is_file():
            assert b"canary-in-the" not in file.read_bytes(), file.name
