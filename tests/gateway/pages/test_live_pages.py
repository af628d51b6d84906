"""Pages of a running server show its own state: routes, in flight, the writer; and its files."""

import asyncio
import http.cookiejar
import re
import threading
import urllib.parse
import urllib.request
from pathlib import Path

import pytest

from gateway import live
from ledger.store import StoreStatus
from tests import forked
from tests.gateway.pages.test_receipts import text_of
from tests.server import Server, environment_of

WRITER = StoreStatus(
    healthy=True, queued_rows=0, queue_limit_rows=1, fault=None, last_error=None,
    since_checkpoint_s=None,
)  # fmt: skip


@pytest.fixture
def loop():
    running = asyncio.new_event_loop()
    thread = threading.Thread(target=running.run_forever)
    thread.start()
    yield running
    running.call_soon_threadsafe(running.stop)
    thread.join()
    running.close()


def test_a_look_is_taken_on_the_server_s_loop_and_none_without_one(loop, tmp_path: Path):
    ledger, threads = tmp_path / "ledger.sqlite3", []

    def take() -> live.Live:
        threads.append(threading.current_thread())
        return live.Live(at_us=7, routes={}, writer=WRITER, problems=())

    async def show() -> None:
        live.show(ledger, take)

    assert live.look(ledger) is None
    asyncio.run_coroutine_threadsafe(show(), loop).result()
    found = live.look(ledger)
    assert found is not None
    assert found.at_us == 7
    assert threads != [threading.current_thread()]
    live.hide(ledger)
    assert live.look(ledger) is None


class Visitor:
    """A browser without a screen: keeps cookies, logs in, reads pages."""

    def __init__(self, base_url: str) -> None:
        self.base_url = base_url
        self.cookies = http.cookiejar.CookieJar()
        self.opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(self.cookies))

    def get(self, path: str):
        return self.opener.open(self.base_url + path, timeout=60)

    def log_in(self, username: str, password: str) -> None:
        form = self.get("/login").read().decode()
        token = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', form)
        assert token is not None
        fields = {"csrfmiddlewaretoken": token[1], "username": username, "password": password}
        sent = urllib.request.Request(  # noqa: S310 - the test's own server
            self.base_url + "/login",
            data=urllib.parse.urlencode(fields).encode(),
            headers={"Referer": self.base_url + "/login"},
        )
        self.opener.open(sent, timeout=60).read()


class Answer:
    """What `text_of` reads of an answer."""

    def __init__(self, content: bytes) -> None:
        self.content = content


@pytest.fixture
def visitor(server: Server) -> Visitor:
    name = f"visitor-{id(server)}"

    def manage(*arguments: str) -> str:
        command = ("manage.py", *arguments, "--skip-checks")
        return forked.run(command, env=environment_of(server.ledger), check=True).stdout

    manage("migrate")
    password = manage("create_operator", name, "--role", "operator").split()[-1]
    made = Visitor(server.base_url)
    made.log_in(name, password)
    return made


def test_a_running_server_shows_its_own_routes_and_writer_and_streams_its_files(
    server: Server, visitor: Visitor
):
    """PRV-4, SCH-2, LED-7, CST-9: under uvicorn, as it is served."""
    status, _, _ = server.chat("hello", key=server.keys["support-desk"], max_tokens=8)
    assert status == 200
    said = text_of(Answer(visitor.get("/routes").read()))
    assert "the running server's own state" in said.replace("&#x27;", "'")
    assert "5 of 5" in said
    assert said.count("takes requests") >= 5
    said = text_of(Answer(visitor.get("/health").read()))
    assert "WRITER_QUEUE" in said
    assert "with the running server" in said
    assert visitor.get("/health/checkpoint.json").headers["content-type"] == "application/json"
    focus = visitor.get("/focus.csv?within=1h")
    assert focus.headers["content-disposition"] == 'attachment; filename="focus.csv"'
    assert focus.read().count(b"\r\n") > 1
