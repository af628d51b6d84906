"""A prompt and an answer, sent and made in every way, are nowhere afterwards (SEC-1)."""

import json

from tests.server import Server
from tests.server_fixtures import Fleet
from tests.system.watching import held, until
from tests.system.wire import (
    chat_body,
    hang_up_before_the_answer,
    hang_up_while_sending,
    hang_up_while_streaming,
)

PROMPT = "canary-5d1e77 weighs nine tonnes"
CANARY = b"canary-5d1e77"
ANSWER = b"Simulated answer"  # what every simulated text begins with
TENANT = "support-desk"


def bodies() -> list[bytes]:
    """The canary at every place of a request that could be quoted, kept or counted."""
    tool = {
        "type": "function",
        "function": {"name": "weigh", "description": PROMPT, "parameters": {"title": PROMPT}},
    }
    schema = {"type": "object", "title": PROMPT, "properties": {"answer": {"const": PROMPT}}}
    calling = {"type": "function", "function": {"name": "weigh", "parameters": schema}}
    wanted = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    part = {"role": "user", "content": [{"type": "text", "text": PROMPT}]}
    image = {"role": "user", "content": [{"type": PROMPT, "image_url": PROMPT}]}
    return [
        chat_body(PROMPT, max_tokens=5),
        chat_body(PROMPT, max_tokens=5, stream=True),
        chat_body(PROMPT, max_tokens=5, tools=[tool], user=PROMPT, stop=[PROMPT]),
        chat_body(PROMPT, max_tokens=60, response_format=wanted),
        chat_body(PROMPT, max_tokens=200, tools=[calling]),  # the answer's call quotes it
        chat_body(PROMPT, max_tokens=200, tools=[calling], n=2, stream=True, stop=PROMPT),
        chat_body(PROMPT, max_tokens=5, tools=[tool], tool_choice=PROMPT),
        chat_body(PROMPT, max_tokens=5, logit_bias={PROMPT: 1}, reasoning_effort=PROMPT),
        chat_body(messages=[{"role": "system", "content": PROMPT}, part], max_tokens=5),
        chat_body(messages=[image]),
        chat_body(messages=[{"role": PROMPT, "content": PROMPT}]),
        chat_body(messages=PROMPT),
        chat_body(PROMPT, max_tokens=PROMPT),
        chat_body(PROMPT, max_tokens=0),
        chat_body(PROMPT, max_tokens=10**12),
        chat_body(PROMPT, model=PROMPT),
        chat_body(PROMPT, tools=[{"type": PROMPT}]),
        chat_body(PROMPT, metadata={"x-priority": PROMPT}),
        chat_body(PROMPT, **{PROMPT: PROMPT, "max_tokens": 5}),
        chat_body(PROMPT + "\ud800"),
        chat_body(PROMPT + "\x00"),
        chat_body(PROMPT * 80_000),
        chat_body(PROMPT)[:-20],
        PROMPT.encode(),
    ]


def fill(server: Server) -> list[bytes]:
    """Send it all, and hang up where that can be done; returns the answers' bodies."""
    key = server.keys[TENANT]
    answers = [server.call("/v1/chat/completions", key=key, body=body)[2] for body in bodies()]
    for name, value in (
        ("x-priority", PROMPT), ("x-deadline-ms", PROMPT), ("x-max-cost-units", PROMPT),
        ("x-region", PROMPT), ("authorization", f"Bearer {PROMPT}"),
    ):  # fmt: skip
        sent = {} if name == "authorization" else {"key": key}
        answers.append(server.chat(PROMPT, headers={name: value}, **{"key": None, **sent})[2])
    long = chat_body(PROMPT, max_tokens=1_000, stream=True, ignore_eos=True)
    hang_up_while_sending(server, key, long)
    hang_up_before_the_answer(server, key, long)
    hang_up_while_streaming(server, key, long)
    until(lambda: held(server) == (0, 0, 0), "all have ended")
    return answers


def assert_nowhere(fleet: Fleet, metrics: bytes) -> None:
    files = [path for path in fleet.ledger.parent.rglob("*") if path.is_file()]
    assert {"ledger.sqlite3", "ledger.log"} <= {path.name for path in files}
    for secret in (CANARY, ANSWER):
        assert secret not in metrics
        assert [path.name for path in files if secret in path.read_bytes()] == []


def test_neither_a_prompt_nor_an_answer_is_kept_in_any_file_or_metric(fleet: Fleet):
    """Searched while the server runs, with its write-ahead log, after a kill and after a stop."""
    with fleet.serving() as server:
        answers = fill(server)
        whole = json.loads(answers[0])
        assert whole["choices"][0]["message"]["content"].encode().startswith(ANSWER)
        errors = [body for body in answers if b'"error"' in body[:12]]
        assert len(errors) >= 15
        assert [body for body in errors if CANARY in body] == []
        assert fleet.ledger.with_name("ledger.sqlite3-wal").stat().st_size > 0
        assert_nowhere(fleet, server.call("/metrics")[2])
        server.process.kill()
        server.process.wait()
    assert_nowhere(fleet, b"")
    with fleet.serving() as server:
        metrics = server.call("/metrics")[2]
        server.stop()
    assert_nowhere(fleet, metrics)
