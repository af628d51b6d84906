"""What one caller can have the server keep, and how much of it runs at once (SEC-3)."""

import json
from typing import Any, cast

import pytest

from gateway.idempotency import RETAINED_CHARS
from gateway.run import Run
from gateway.submission import Caller, Message, Parameters, Submission
from tests.security.raw import statuses, turned_away
from tests.server import Server
from tests.server_fixtures import SMALL_TEAM, SMALL_TEAM_IN_FLIGHT
from tests.system.crowd import Noted, crowd
from tests.system.watching import held, until

TENANT = "support-desk"


def test_led_5_what_is_retained_for_a_key_counts_its_prompt_too():
    """Else a thousand keys with prompts of a megabyte would stay for ten minutes."""
    caller = Caller(tenant_id="acme", key_id="key_1", scopes=frozenset())
    prompt = Message(role="user", content="x" * 1_000, tool_calls_json="[]")
    parameters = Parameters(
        stop=("ab", "c"), logit_bias_json='{"1":1}', tool_choice_json='"auto"',
        response_format_json='{"type":"json_object"}',
    )  # fmt: skip
    submission = Submission(
        caller=caller, logical_model="assist", messages=(prompt,), tools_json="[{}]",
        parameters=parameters,
    )  # fmt: skip
    run = Run(
        request_id="req_1", created_us=0, logical_model="assist", submission=submission,
        weighed=cast(Any, None), legs=[], direct=True,
    )  # fmt: skip
    asked = len('abc{"1":1}"auto"') + 2 * len('{"type":"json_object"}')
    assert run.kept_output() == (False, 1_000 + len("[]") + len("[{}]") + asked)
    assert RETAINED_CHARS <= 16 << 20


@pytest.mark.parametrize("length", [b"1048577", b"99999999999", b"9" * 18])
def test_a_body_over_its_limit_is_refused_before_it_is_kept(server: Server, length: bytes):
    before = turned_away(server, "BODY_TOO_LARGE")
    head = (
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: test\r\nconnection: close\r\n"
        b"authorization: Bearer " + server.keys[TENANT].encode() + b"\r\n"
    )
    assert statuses(server, head + b"content-length: " + length + b"\r\n\r\n{") == [413]
    assert turned_away(server, "BODY_TOO_LARGE") == before + 1


def test_a_body_that_grows_over_its_limit_in_chunks_is_cut_off(server: Server):
    head = (
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: test\r\ntransfer-encoding: chunked\r\n"
        b"authorization: Bearer " + server.keys[TENANT].encode() + b"\r\n\r\n"
    )
    chunk = b"10000\r\n" + b"x" * 65_536 + b"\r\n"
    assert statuses(server, head + chunk * 20) in ([413], [])
    until(lambda: held(server) == (0, 0, 0), "nothing is held")


def test_streams_at_once_are_those_of_the_tenants_limit(server: Server):
    noted = Noted()
    crowd(server, server.keys[SMALL_TEAM], noted, clients=12, max_tokens=200, ignore_eos=True)
    assert len(noted.statuses) == 12
    assert noted.statuses.count(200) >= SMALL_TEAM_IN_FLIGHT
    assert set(noted.statuses) <= {200, 429}
    until(lambda: held(server) == (0, 0, 0), "nothing is held")


def test_a_text_of_any_depth_is_answered_with_a_structured_error(server: Server):
    for body in (b"[" * 200_000, b'{"a":' * 100_000, b'"' + b"\\u0041" * 100_000):
        answer = server.call("/v1/chat/completions", key=server.keys[TENANT], body=body)
        assert answer[0] == 400
        assert json.loads(answer[2])["error"]["code"] == "INVALID_REQUEST"
