"""The native API over a running server: lists by key, traces, snapshots, asynchronous requests."""

import json
import socket

import msgspec

from gateway.api import shapes
from tests.clients.conftest import EVERYTHING
from tests.server import Server
from tests.server_fixtures import Fleet
from tests.system.watching import until


def raw(server: Server, request: bytes) -> tuple[bytes, bytes]:
    """The head and the body of what comes back until the server closes."""
    host, _, port = server.base_url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        connection.sendall(request)
        with connection.makefile("rb") as answer:
            head, _, body = answer.read().partition(b"\r\n\r\n")
    return head.lower(), body


def got(server: Server, path: str, key: str):
    status, _, body = server.call(path, key=key)
    return status, json.loads(body)


def test_pages_of_receipts_hold_each_once_and_only_the_keys_own(fleet: Fleet):
    with fleet.serving() as server:
        key, other = server.keys["support-desk"], server.keys["research-lab"]
        for number in range(5):
            server.chat(f"Number {number}", key=key, max_tokens=2)
        server.chat("Another's", key=other, max_tokens=2)
        seen, path = [], "/api/v1/receipts?limit=2"
        while path:
            page = msgspec.convert(got(server, path, key)[1], shapes.ReceiptsPage)
            seen += [receipt.request_id for receipt in page.receipts]
            assert all(receipt.tenant_id == "support-desk" for receipt in page.receipts)
            path = f"/api/v1/receipts?limit=2&after={page.next}" if page.next else ""
        assert len(seen) == len(set(seen)) == 5
        assert got(server, "/api/v1/receipts?status=failed", key)[1]["receipts"] == []
        assert got(server, "/api/v1/receipts?tenant=research-lab", key)[0] == 403
        for wrong in ("limit=0", "limit=201", "after=x", "offset=5", "status="):
            assert got(server, f"/api/v1/receipts?{wrong}", key)[0] == 400
        trace = got(server, f"/api/v1/requests/{seen[0]}/trace", key)[1]
        assert trace["events"] and "Number" not in json.dumps(trace)
        assert got(server, f"/api/v1/requests/{seen[0]}/trace", other)[0] == 404
        snapshots = got(server, "/api/v1/snapshots?limit=1", key)[1]
        (one,) = snapshots["snapshots"]
        assert one["free_kv_tokens"] > 0
        more = got(server, f"/api/v1/snapshots?limit=1&after={snapshots['next']}", key)[1]
        assert [each["seq"] < one["seq"] for each in more["snapshots"]] in ([True], [])


def test_an_asynchronous_request_is_polled_until_its_output_is_there(open_server: Server):
    key = open_server.keys[EVERYTHING]
    body = {
        "model": "assist", "mode": "async", "messages": [{"role": "user", "content": "Hi"}],
        "budget": {"max_output_tokens": 8, "deadline_ms": 60_000, "max_cost_units": "0.5"},
    }  # fmt: skip
    sent = json.dumps(body).encode()
    status, headers, _ = open_server.call("/api/v1/requests", key=key, body=sent)
    assert status == 202
    where = headers["location"]
    until(lambda: open_server.call(where, key=key)[0] == 200, "the output is there")
    answer = msgspec.convert(got(open_server, where, key)[1], shapes.AnswerShape)
    assert answer.receipt.deadline_ms == 60_000 and answer.usage.completion_tokens <= 8


def test_a_client_of_http_1_0_gets_a_stream_without_chunks(open_server: Server):
    asked = {"model": "assist", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 3}
    body = json.dumps({**asked, "stream": True}).encode()
    key = open_server.keys[EVERYTHING]
    head, told = raw(
        open_server,
        b"POST /v1/chat/completions HTTP/1.0\r\nAuthorization: Bearer %s\r\n"
        b"Content-Length: %d\r\n\r\n%s" % (key.encode(), len(body), body),
    )
    assert b"transfer-encoding" not in head and b"content-length: %d" % len(told) in head
    assert told.startswith(b"data: {") and told.endswith(b"data: [DONE]\n\n")


def test_a_base_url_without_v1_is_told_so_in_json(open_server: Server):
    status, headers, body = open_server.call("//v1/chat/completions", body=b"{}")
    assert (status, headers["content-type"]) == (404, "application/json")
    assert "/v1 as base URL" in json.loads(body)["error"]["message"]
