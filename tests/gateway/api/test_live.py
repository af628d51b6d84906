"""The whole server, as a client meets it: real ledger, real simulator, real sockets."""

import contextlib
import json
import socket
import sqlite3
from typing import Any

import openai
import pytest

from ledger.carrying import source
from ledger.reading import connect_read_only
from ledger.records import RECORDS, Reservation, Settlement
from tests.ledger_fixtures import migrate_ledger
from tests.server import load_fleet, serving

CANARY = "canary-91c4"
TENANT, OTHER = "support-desk", "research-lab"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    ledger = tmp_path_factory.mktemp("live") / "ledger.sqlite3"
    migrate_ledger(ledger)
    with serving(ledger, load_fleet(ledger)) as running:
        yield running


def receipt_of(server, request_id, tenant=TENANT):
    status, _, body = server.call(f"/api/v1/requests/{request_id}/receipt", key=server.keys[tenant])
    return json.loads(body) if status == 200 else status


def test_the_official_client_gets_a_simulated_answer_with_a_durable_receipt(server):
    with openai.OpenAI(base_url=f"{server.base_url}/v1", api_key=server.keys[TENANT]) as client:
        answer: Any = client.chat.completions.create(
            model="assist",
            messages=[{"role": "user", "content": "Explain token budgets in two sentences."}],
            max_tokens=8,
            extra_headers={"x-priority": "normal", "x-tag-team": "a"},
        )
    assert answer.system_fingerprint.startswith("sim-")
    assert answer.usage.prompt_tokens == 14  # o200k_base/chat-1, as counted by hand
    assert answer.choices[0].finish_reason in ("stop", "length")
    assert receipt_of(server, answer._request_id) == answer.receipt
    assert (answer.receipt["priority"], answer.receipt["tags"]) == ("normal", {"team": "a"})


def test_a_stream_and_a_whole_answer_of_one_call_cost_the_same(server):
    with openai.OpenAI(base_url=f"{server.base_url}/v1", api_key=server.keys[TENANT]) as client:
        asked: dict[str, Any] = {
            "model": "assist",
            "messages": [{"role": "user", "content": "Hi"}],
            "max_tokens": 6,
            "extra_body": {"ignore_eos": True},
            "extra_headers": {"x-region": "eu-west"},
        }
        whole = client.chat.completions.create(**asked)
        *_, last = client.chat.completions.create(**asked, stream=True)
    assert whole.usage.completion_tokens == 6
    shown = [(r["output_tokens"], r["input_tokens"]) for r in (whole.receipt, last.receipt)]
    assert shown == [(6, 8), (6, 8)]
    if whole.receipt["rate_key"] == last.receipt["rate_key"]:  # the canary's arm is by request
        assert whole.receipt["cost"] == last.receipt["cost"]


@pytest.mark.parametrize(
    ("max_tokens", "code"),
    [(0, "INVALID_TOKEN_BUDGET"), (-1, "INVALID_TOKEN_BUDGET"), (10**12, "TOKEN_BUDGET_EXCEEDED")],
)
def test_a_senseless_output_cap_is_refused_with_a_receipt(server, max_tokens, code):
    status, headers, body = server.chat("Hi", key=server.keys[TENANT], max_tokens=max_tokens)
    error = json.loads(body)["error"]
    assert (status, error["code"], error["param"]) == (400, code, "max_tokens")
    shown = receipt_of(server, headers["x-request-id"])
    assert (shown["status"], shown["terminal_error_code"]) == ("rejected", code)
    assert shown["cost"]["total_pico"] == 0


def test_another_tenants_receipt_is_not_found(server):
    _, headers, _ = server.chat("Hi", key=server.keys[TENANT], max_tokens=2)
    assert receipt_of(server, headers["x-request-id"], OTHER) == 404
    assert receipt_of(server, headers["x-request-id"], TENANT)["status"] == "completed"


def test_a_cap_on_cost_below_the_estimate_is_refused_and_an_exact_one_passes(server):
    key = server.keys[TENANT]
    _, _, body = server.chat("Hi", key=key, max_tokens=2)
    exact = json.loads(body)["receipt"]["cost"]["estimated_at_admission_units"]
    status, _, body = server.chat(
        "Hi", key=key, max_tokens=2, headers={"x-max-cost-units": "0.000000000001"}
    )
    assert (status, json.loads(body)["error"]["code"]) == (422, "COST_BUDGET_EXCEEDED")
    assert exact is not None


def test_no_prompt_is_anywhere_after_bad_good_and_abandoned_requests(tmp_path):
    """Ledger, console database, log and metrics are searched byte by byte (SEC-1)."""
    ledger = tmp_path / "ledger.sqlite3"
    migrate_ledger(ledger)
    with serving(ledger, load_fleet(ledger), time_scale=1.0) as server:
        key = server.keys[TENANT]
        assert server.chat(CANARY, key=key, max_tokens=2)[0] == 200
        for body in (
            b'{"model": "assist", "' + CANARY.encode(),
            json.dumps({"model": CANARY, "messages": []}).encode(),
            json.dumps(
                {"model": "assist", "messages": [{"role": "user", "content": f"{CANARY}\ud83d"}]}
            ).encode(),
            CANARY.encode() * 200_000,
        ):
            status, _, reply = server.call("/v1/chat/completions", key=key, body=body)
            assert status in (400, 404, 413)
            assert CANARY.encode() not in reply and b"Traceback" not in reply
        abandon(server, key)
        metrics = server.call("/metrics")[2]
        server.stop()
    files = [path for path in tmp_path.iterdir() if path.is_file()]
    assert CANARY.encode() not in metrics
    assert [path.name for path in files if CANARY.encode() in path.read_bytes()] == []
    statuses = receipts_by_status(ledger)
    assert statuses["completed"] == 1
    assert statuses.get("cancelled", 0) == 1  # acknowledged by the simulator (DLV-2)
    assert sum(statuses.values()) == 2  # what could not be read has no receipt (ADM-1)
    assert open_holds(ledger) == 0


def abandon(server, key):
    """Start a long stream, read its first bytes, and hang up."""
    host, port = server.base_url.removeprefix("http://").split(":")
    message = {"role": "user", "content": CANARY}
    body = json.dumps(
        {
            "model": "assist",
            "messages": [message],
            "max_tokens": 1_000,
            "stream": True,
            "ignore_eos": True,
        }
    ).encode()
    with contextlib.closing(socket.create_connection((host, int(port)))) as connection:
        connection.sendall(
            b"POST /v1/chat/completions HTTP/1.1\r\nhost: test\r\nauthorization: Bearer "
            + key.encode()
            + f"\r\ncontent-length: {len(body)}\r\n\r\n".encode()
            + body
        )
        assert connection.recv(12) == b"HTTP/1.1 200"


def receipts_by_status(ledger):
    connection = connect_read_only(ledger)
    return dict(
        connection.execute("SELECT status, count(*) FROM receipt GROUP BY status").fetchall()
    )


def open_holds(ledger):
    return (
        connect_read_only(ledger)
        .execute(
            f"SELECT count(*) FROM {source(Reservation)} WHERE reservation_id NOT IN "
            f"(SELECT reservation_id FROM {source(Settlement)})"
        )
        .fetchone()[0]
    )


def test_every_table_of_the_ledger_is_there_to_be_searched(server):
    connection = sqlite3.connect(f"file:{server.ledger}?mode=ro", uri=True)
    with contextlib.closing(connection):
        found = {row[0] for row in connection.execute("SELECT name FROM sqlite_master")}
    assert {record.TABLE for record in RECORDS} <= found
