"""Clients that go away, and deadlines that pass, in the middle of an answer (DLV-2)."""

import contextlib
import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from ledger.carrying import source
from ledger.money import PICO_PER_UNIT
from ledger.records import AttemptEvent, Settlement
from tests.server import Server
from tests.server_fixtures import SLOW, Fleet
from tests.system.watching import assert_sound, held, one, until
from tests.system.wire import chat_body, hang_up_while_streaming

TENANT = "support-desk"
LONG: dict[str, Any] = {"max_tokens": 1_000, "ignore_eos": True, "stream": True}


@pytest.fixture
def slow_server(fleet: Fleet) -> Iterator[Server]:
    """Simulated time as fast as real time: these answers would take many seconds."""
    with fleet.serving(time_scale=SLOW) as running:
        yield running


def receipt_of(server: Server, request_id: str) -> dict:
    """The receipt, as soon as it is there."""
    path = f"/api/v1/requests/{request_id}/receipt"
    until(lambda: server.call(path, key=server.keys[TENANT])[0] == 200, f"receipt of {request_id}")
    return json.loads(server.call(path, key=server.keys[TENANT])[2])


def test_a_client_that_goes_away_cancels_the_backend_and_pays_for_what_was_generated(
    slow_server: Server, fleet: Fleet
):
    request_id = hang_up_while_streaming(
        slow_server, slow_server.keys[TENANT], chat_body(**LONG), after=b"Simulated"
    )
    receipt = receipt_of(slow_server, request_id)
    assert (receipt["status"], receipt["terminal_error_code"]) == ("cancelled", "CLIENT_GONE")
    assert receipt["cancel_ack_ms"] is not None
    assert 1 <= receipt["output_tokens"] < 1_000
    cost = receipt["cost"]
    assert cost["input_pico"] == receipt["input_tokens"] * 2 * PICO_PER_UNIT // 10**6
    assert cost["output_pico"] == receipt["output_tokens"] * 8 * PICO_PER_UNIT // 10**6
    assert cost["total_pico"] == cost["input_pico"] + cost["output_pico"] > 0
    assert cost["total_pico"] < cost["estimated_at_admission_pico"]
    until(lambda: held(slow_server) == (0, 0, 0), "slot, KV and money are given back")

    slow_server.stop()
    with contextlib.closing(fleet.reader()) as reader:
        events = f"SELECT count(*) FROM {source(AttemptEvent)} WHERE request_id = ? AND event = ?"
        for event in ("cancel_sent", "cancel_acknowledged", "ended"):
            assert one(reader, events, request_id, event) == 1
        settled = f"SELECT kind || ' ' || cost_pico FROM {source(Settlement)} WHERE request_id = ?"
        assert one(reader, settled, request_id) == f"posted {cost['total_pico']}"
        assert_sound(reader)


def test_a_deadline_that_passes_in_flight_cancels_the_request(fleet: Fleet):
    """Predicted at 24 ms a token, simulated at a tenth of its speed: it fits, then it doesn't."""
    body: dict[str, Any] = {"max_tokens": 20, "ignore_eos": True}
    deadline = {"x-deadline-ms": "1200"}
    with fleet.serving(time_scale=0.1) as server:
        key = server.keys[TENANT]
        status, headers, whole = server.chat("Hello", key=key, headers=deadline, **body)
        assert (status, headers["x-should-retry"]) == (504, "false")
        error, receipt = json.loads(whole)["error"], json.loads(whole)["receipt"]
        assert error["code"] == receipt["terminal_error_code"] == "DEADLINE_EXCEEDED"
        assert error["request_id"] == receipt["request_id"] == headers["x-request-id"]

        _, headers, streamed = server.chat("Hello", key=key, headers=deadline, stream=True, **body)
        receipts = [receipt, receipt_of(server, headers["x-request-id"])]
        assert b"DEADLINE_EXCEEDED" in streamed and b"[DONE]" not in streamed
        for ended in receipts:
            assert ended["status"] == "cancelled"
            assert ended["terminal_error_code"] == "DEADLINE_EXCEEDED"
            assert ended["cancel_ack_ms"] is not None
            assert ended["output_tokens"] < 20
            assert ended["e2e_ms"] >= 1_200
        until(lambda: held(server) == (0, 0, 0), "slots, KV and money are given back")
        server.stop()
    with contextlib.closing(fleet.reader()) as reader:
        assert_sound(reader)


def cancel(server: Server, request_id: str, tenant: str = TENANT) -> tuple[int, dict]:
    path = f"/api/v1/requests/{request_id}/cancel"
    status, _, body = server.call(path, key=server.keys[tenant], body={})
    return status, json.loads(body)


def test_a_cancel_by_name_is_acknowledged_once_and_told_again_as_often_as_asked(
    slow_server: Server, fleet: Fleet
):
    """PRV-2, SEC-2: acknowledged, too late, and another tenant's are told apart as they may be."""
    key = slow_server.keys[TENANT]
    streamed: list[bytes] = []
    reading = threading.Thread(
        target=lambda: streamed.append(slow_server.chat("Hello", key=key, **LONG)[2])
    )
    reading.start()
    with contextlib.closing(fleet.reader()) as reader:
        until(lambda: held(slow_server)[0] == 1, "the request runs")
        (request_id,) = reader.execute("SELECT request_id FROM route_decision").fetchone()
    other = next(name for name in slow_server.keys if name != TENANT)
    assert cancel(slow_server, request_id, other)[0] == 404
    status, said = cancel(slow_server, request_id)
    assert (status, said["cancel"], said["status"]) == (200, "acknowledged", "cancelled")
    assert said["terminal_error_code"] == "CLIENT_CANCELLED"
    assert said["cancel_ack_ms"] is not None
    assert cancel(slow_server, request_id) == (200, said)
    assert cancel(slow_server, request_id, other)[0] == 404
    assert cancel(slow_server, "req_of_nobody")[0] == 404
    reading.join()
    assert b"CLIENT_CANCELLED" in streamed[0] and b"[DONE]" not in streamed[0]
    until(lambda: held(slow_server) == (0, 0, 0), "slot, KV and money are given back")

    _, headers, _ = slow_server.chat("Hello", key=key, max_tokens=2)
    status, said = cancel(slow_server, headers["x-request-id"])
    assert (status, said["cancel"], said["status"]) == (200, "too_late", "completed")
