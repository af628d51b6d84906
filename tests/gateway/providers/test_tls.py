"""PRV-2, RTY-2: a backend behind TLS. What can't be connected to has run nothing; what was written
and lost may have."""

import asyncio
import ssl

import pytest
import uvloop

from gateway.providers import http_pool
from gateway.providers.http_pool import Patience
from gateway.providers.outcomes import Completed, Rejected, Unknown
from tests.gateway.providers.calls import call
from tests.gateway.providers.certificates import self_signed, served, trusting
from tests.gateway.providers.raw import ANSWER, Raw, at
from tests.gateway.providers.upstream import TEXT, whole

VERSIONS = (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)
LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The paths of a certificate and of its key."""
    return self_signed(tmp_path_factory.mktemp("certificate"))


@pytest.fixture
def trusted(made, monkeypatch):
    """The same, where the certificate is trusted."""
    context = trusting(made[0])
    monkeypatch.setattr(http_pool, "_trusted", lambda: context)
    return made


class HangsUp(Raw):
    """Answers so many requests, then reads one whole and closes without a word."""

    def __init__(self, answered, certificate):
        super().__init__(ANSWER, certificate=certificate)
        self.answered = answered

    async def read(self, writer):
        self.requests += 1
        if self.requests > self.answered:
            writer.transport.abort()
        else:
            writer.write(self.said)


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("version", VERSIONS, ids=lambda version: version.name)
@pytest.mark.parametrize("answered", [0, 1], ids=["a new connection", "a kept one"])
def test_a_request_that_was_written_whole_is_sent_once_and_its_loss_is_unknown(
    trusted, loop, version, answered
):
    raw = HangsUp(answered, served(*trusted, most=version))

    async def scenario(provider, declared):
        return [await whole(provider.start(call(declared))) for _ in range(answered + 1)]

    *before, (_, lost) = at(raw, scenario, scheme="https", loop_factory=LOOPS[loop])
    assert [type(outcome) for _, outcome in before] == [Completed] * answered
    assert (type(lost), lost.reason) == (Unknown, "PROVIDER_CONNECTION_LOST")
    assert (raw.requests, raw.connections) == (answered + 1, 1)


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("version", VERSIONS, ids=lambda version: version.name)
def test_a_request_that_is_cancelled_before_a_word_of_its_answer_was_sent_all_the_same(
    trusted, loop, version
):
    """DLV-2: a backend that isn't known to stop may still run it."""
    raw = Raw(b"", certificate=served(*trusted, most=version))

    async def scenario(provider, declared):
        attempt = provider.start(call(declared))
        carrying = asyncio.create_task(attempt.carry(lambda piece: None))
        while not raw.requests:
            await asyncio.sleep(0)
        attempt.cancel("CLIENT_GONE")
        return await carrying

    outcome = at(raw, scenario, scheme="https", loop_factory=LOOPS[loop])
    assert (type(outcome), outcome.reason) == (Unknown, "CANCEL_NOT_ACKNOWLEDGED")


def refused(raw, caplog, *, scheme="https", patience=None):
    """(reasons of two attempts, what was logged of them)."""

    async def scenario(provider, declared):
        return [await whole(provider.start(call(declared))) for _ in range(2)]

    ends = at(raw, scenario, scheme=scheme, patience=patience)
    assert {type(outcome) for _, outcome in ends} == {Rejected}
    assert raw.requests == 0
    return {outcome.reason for _, outcome in ends}, [
        each.getMessage().partition(f":{raw.port}: ")[2] for each in caplog.records
    ]


def test_a_certificate_that_nobody_vouches_for_is_refused_and_the_log_says_so_once(made, caplog):
    raw = Raw(ANSWER, certificate=served(*made))
    assert refused(raw, caplog) == (
        {"PROVIDER_UNREACHABLE"},
        ["its certificate is refused: self-signed certificate"],
    )


def test_so_is_one_that_has_expired(tmp_path, monkeypatch, caplog):
    certificate, key = self_signed(tmp_path, expired=True)
    monkeypatch.setattr(http_pool, "_trusted", lambda: trusting(certificate))
    codes, (said,) = refused(Raw(ANSWER, certificate=served(certificate, key)), caplog)
    assert codes == {"PROVIDER_UNREACHABLE"}
    assert said == "its certificate is refused: certificate has expired"


def test_so_is_another_hosts(tmp_path, monkeypatch, caplog):
    certificate, key = self_signed(tmp_path, host="DNS:other.example")
    monkeypatch.setattr(http_pool, "_trusted", lambda: trusting(certificate))
    codes, (said,) = refused(Raw(ANSWER, certificate=served(certificate, key)), caplog)
    assert codes == {"PROVIDER_UNREACHABLE"}
    assert said.startswith("its certificate is refused: IP address mismatch")


class Handshake(Raw):
    """Speaks no TLS: says these bytes to a handshake's first ones, or nothing at all."""

    async def _met(self, reader, writer):
        self.open.add(writer)
        await reader.read(1)
        writer.write(self.said)


def test_a_handshake_that_stalls_is_no_connection(caplog):
    assert refused(Handshake(b""), caplog, patience=Patience(connect_s=0.05)) == (
        {"PROVIDER_UNREACHABLE"},
        ["it didn't answer in time"],
    )


def test_neither_is_a_port_that_speaks_plain_http(caplog):
    said = b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n"
    codes, (why,) = refused(Handshake(said), caplog)
    assert codes == {"PROVIDER_UNREACHABLE"}
    assert why.startswith("TLS failed: ")


def test_a_certificate_that_is_trusted_is_taken(trusted):
    raw = Raw(ANSWER, certificate=served(*trusted))

    async def scenario(provider, declared):
        return await whole(provider.start(call(declared)))

    text, outcome = at(raw, scenario, scheme="https")
    assert (text, type(outcome), raw.requests) == (TEXT, Completed, 1)
