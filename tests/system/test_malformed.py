"""What can't be a request: a structured error, nothing half written, and the server lives on."""

import json
from dataclasses import dataclass

import pytest

from tests.server import Server
from tests.system.watching import assert_each_decision_has_one_receipt, held, one, until
from tests.system.wire import chat_body, hang_up_before_the_answer, hang_up_while_sending

SECRET = "unweighed-cargo-7f3a"
TENANT, OTHER = "support-desk", "research-lab"


@dataclass(frozen=True, kw_only=True)
class Bad:
    """A bad exchange: what is sent, and the status and code that it gets."""

    body: bytes
    status: int
    code: str
    key: str | None = TENANT
    filed: bool = False  # it was a request: it has an id and a receipt


CASES = {
    "malformed JSON": Bad(
        body=b'{"model": "assist", "messages": [{"' + SECRET.encode(), status=400,
        code="INVALID_REQUEST",
    ),
    "JSON that is no object": Bad(
        body=f'["{SECRET}"]'.encode(), status=400, code="INVALID_REQUEST"
    ),
    "an empty body": Bad(body=b"", status=400, code="INVALID_REQUEST"),
    "bytes that are no UTF-8": Bad(
        body=b'{"model": "assist", "messages": "\xff\xfe"}', status=400, code="INVALID_REQUEST"
    ),
    "an unknown model": Bad(
        body=chat_body(SECRET, model=SECRET), status=404, code="MODEL_NOT_FOUND"
    ),
    "no key": Bad(body=chat_body(SECRET), key=None, status=401, code="UNAUTHENTICATED"),
    "a wrong key": Bad(body=chat_body(SECRET), key="", status=401, code="UNAUTHENTICATED"),
    "max_tokens 0": Bad(
        body=chat_body(SECRET, max_tokens=0), status=400, code="INVALID_TOKEN_BUDGET", filed=True
    ),
    "max_tokens -1": Bad(
        body=chat_body(SECRET, max_tokens=-1), status=400, code="INVALID_TOKEN_BUDGET", filed=True
    ),
    "max_tokens of text": Bad(
        body=chat_body(SECRET, max_tokens="x"), status=400, code="INVALID_REQUEST"
    ),
    "max_tokens 10^12": Bad(
        body=chat_body(SECRET, max_tokens=10**12), status=400, code="TOKEN_BUDGET_EXCEEDED",
        filed=True,
    ),
    "max_tokens beyond any number": Bad(
        body=chat_body(SECRET, max_tokens=10**400), status=400, code="INVALID_REQUEST"
    ),
    "2 MB of body": Bad(
        body=chat_body(SECRET * 110_000), status=413, code="BODY_TOO_LARGE"
    ),
    "a lone surrogate": Bad(
        body=chat_body(SECRET + "\ud83d"), status=400, code="INVALID_REQUEST"
    ),
    "a NUL": Bad(body=chat_body(SECRET + "\x00"), status=400, code="INVALID_REQUEST"),
    "deep nesting": Bad(
        body=b'{"model":"assist","messages":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        status=400, code="INVALID_REQUEST",
    ),
}  # fmt: skip


def rows(reader) -> dict[str, int]:
    """Rows by table, rollups included; which snapshots are filed depends on when they are taken."""
    tables = reader.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    counted = [name for (name,) in tables if name != "capacity_snapshot"]
    return {name: one(reader, f"SELECT count(*) FROM {name}") for name in counted}


@pytest.fixture
def reader(shared_fleet):
    connection = shared_fleet.reader()
    yield connection
    connection.close()


def log_of(server: Server) -> str:
    return server.log.read_text()


def served_as_ever(server: Server) -> None:
    status, _, body = server.chat("Hello", key=server.keys[TENANT], max_tokens=2)
    assert (status, json.loads(body)["receipt"]["status"]) == (200, "completed")


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_bad_input_gets_a_structured_error_and_writes_nothing_or_a_whole_refusal(
    server: Server, reader, case: Bad
):
    before = rows(reader)
    key = server.keys.get(case.key or "", "wb_unknown" if case.key is not None else None)
    status, headers, body = server.call("/v1/chat/completions", key=key, body=case.body)
    error = json.loads(body)["error"]
    assert (status, error["code"]) == (case.status, case.code)
    assert error["message"] and error["type"] and headers["x-should-retry"] == "false"
    assert SECRET not in body.decode() and "Traceback" not in body.decode()

    request_id = headers["x-request-id"]
    assert request_id.startswith("req_" if case.filed else "xch_")
    after = rows(reader)
    if case.filed:
        grown = {table: after[table] - before[table] for table in after}
        assert (grown["route_decision"], grown["receipt"]) == (1, 1)
        # The decision carries its trace event, and there is nothing else to tell.
        apart = ("trace_event", "reservation", "attempt", "attempt_event", "settlement")
        assert [grown[table] for table in apart] == [0] * len(apart)
        shown = server.call(f"/api/v1/requests/{request_id}/receipt", key=key)
        assert json.loads(shown[2])["terminal_error_code"] == case.code
    else:
        assert after == before
    assert SECRET not in log_of(server) and "Traceback" not in log_of(server)


@pytest.mark.parametrize("what", ["", "/receipt", "/decision"])
def test_a_request_of_another_tenant_and_one_that_never_was_look_the_same(server: Server, what):
    _, headers, _ = server.chat("Hello", key=server.keys[TENANT], max_tokens=2)
    never = "req_" + "0" * 27
    answers = [
        server.call(f"/api/v1/requests/{request_id}{what}", key=server.keys[OTHER])
        for request_id in (headers["x-request-id"], never)
    ]
    own = server.call(f"/api/v1/requests/{headers['x-request-id']}{what}", key=server.keys[TENANT])
    assert [answer[0] for answer in answers] == [404, 404] and own[0] == 200
    assert answers[0][2] == answers[1][2]
    others, nobodys = (
        {name: text for name, text in headers.items() if name not in ("x-request-id", "date")}
        for _, headers, _ in answers
    )
    assert others == nobodys


def test_a_client_that_hangs_up_while_sending_leaves_nothing(server: Server, reader):
    def gone() -> float:
        lines = server.call("/metrics")[2].decode().splitlines()
        counter = 'weighbridge_turned_away_total{reason="CLIENT_GONE"} '
        return sum(float(line.removeprefix(counter)) for line in lines if line.startswith(counter))

    before, gone_before = rows(reader), gone()
    for _ in range(3):
        hang_up_while_sending(server, server.keys[TENANT], chat_body(SECRET * 500))
    until(lambda: gone() == gone_before + 3, "three clients hung up while sending")
    assert rows(reader) == before
    served_as_ever(server)
    assert SECRET not in log_of(server)


def test_a_client_that_hangs_up_before_its_answer_has_a_receipt_and_holds_nothing(
    server: Server, reader
):
    asked = one(reader, "SELECT count(*) FROM receipt")
    for _ in range(5):
        hang_up_before_the_answer(server, server.keys[TENANT], chat_body(SECRET, max_tokens=900))
    until(lambda: one(reader, "SELECT count(*) FROM receipt") == asked + 5, "five receipts")
    until(lambda: held(server) == (0, 0, 0), "nothing is held")
    assert_each_decision_has_one_receipt(reader)
    served_as_ever(server)
    assert SECRET not in log_of(server) and "Traceback" not in log_of(server)
