"""Requests that two servers in a row could read as different ones (SEC-3).

What has two readings gets a 400 and the connection is closed: nothing after it is taken for a
request. The first request of each shape would be a 401 by itself.
"""

import pytest

from tests.security.raw import LAST, statuses
from tests.server import Server

HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nhost: test\r\n"

TWO_READINGS = {
    "a length and chunks": HEAD
    + b"content-length: 6\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\nX",
    "chunks and a length": HEAD
    + b"transfer-encoding: chunked\r\ncontent-length: 6\r\n\r\n0\r\n\r\nX",
    "two lengths": HEAD + b"content-length: 2\r\ncontent-length: 3\r\n\r\n{}X",
    "one length twice": HEAD + b"content-length: 2\r\ncontent-length: 2\r\n\r\n{}",
    "a list of lengths": HEAD + b"content-length: 2, 2\r\n\r\n{}",
    "a length with a sign": HEAD + b"content-length: +2\r\n\r\n{}",
    "a length below nought": HEAD + b"content-length: -2\r\n\r\n{}",
    "a hexadecimal length": HEAD + b"content-length: 0x2\r\n\r\n{}",
    "a length beyond 64 bits": HEAD + b"content-length: 99999999999999999999\r\n\r\n{}",
    "a chunk size that is none": HEAD + b"transfer-encoding: chunked\r\n\r\nZ\r\n{}\r\n0\r\n\r\n",
    "a chunk size with 0x": HEAD + b"transfer-encoding: chunked\r\n\r\n0x2\r\n{}\r\n0\r\n\r\n",
    "a chunk size below nought": HEAD + b"transfer-encoding: chunked\r\n\r\n-2\r\n{}\r\n0\r\n\r\n",
    "a chunk size beyond 64 bits": HEAD
    + b"transfer-encoding: chunked\r\n\r\nfffffffffffffffff\r\n{}\r\n0\r\n\r\n",
    "a chunk size that ends in a bare LF": HEAD
    + b"transfer-encoding: chunked\r\n\r\n2\n{}\r\n0\r\n\r\n",
    "a chunk extension that ends in a bare LF": HEAD
    + b"transfer-encoding: chunked\r\n\r\n2;a\n{}\r\n0\r\n\r\n",
    "a chunk longer than its size": HEAD + b"transfer-encoding: chunked\r\n\r\n2\r\n{}XX0\r\n\r\n",
    "an encoding that is almost chunked": HEAD + b"transfer-encoding: xchunked\r\n\r\n0\r\n\r\n",
    "chunked, and not last": HEAD + b"transfer-encoding: chunked, identity\r\n\r\n0\r\n\r\n",
    "two encodings": HEAD
    + b"transfer-encoding: chunked\r\ntransfer-encoding: identity\r\n\r\n0\r\n\r\n",
    "a space before the colon": HEAD + b"transfer-encoding : chunked\r\n\r\n0\r\n\r\n",
    "a vertical tab before chunked": HEAD + b"transfer-encoding: \x0bchunked\r\n\r\n0\r\n\r\n",
    "a folded header": HEAD + b"x-a: b\r\n c: d\r\n\r\n",
    "bare LFs": b"GET /v1/models HTTP/1.1\nhost: test\n\n",
    "one bare LF": b"GET /v1/models HTTP/1.1\r\nhost: test\nx-a: b\r\n\r\n",
    "a bare CR": b"GET /v1/models HTTP/1.1\r\nhost: test\rx-a: b\r\n\r\n",
    "a NUL in a header": b"GET /v1/models HTTP/1.1\r\nhost: test\r\nx-a: b\x00c\r\n\r\n",
    "a space in a name": b"GET /v1/models HTTP/1.1\r\nhost: test\r\nx a: b\r\n\r\n",
    "a version that isn't": b"GET /v1/models HTTP/1.2\r\nhost: test\r\n\r\n",
    "HTTP/2's preface": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "a tunnel": b"CONNECT elsewhere:80 HTTP/1.1\r\nhost: test\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(60),
    "a target of another host": b"GET http://other/healthz HTTP/1.1\r\nhost: test\r\n\r\n",
    "a target of a user": b"GET http://test@other/healthz HTTP/1.1\r\nhost: test\r\n\r\n",
    "a target of another port": b"GET http://test:1/healthz HTTP/1.1\r\nhost: test\r\n\r\n",
    "two hosts": b"GET /healthz HTTP/1.1\r\nhost: test\r\nHost: other\r\n\r\n",
    "one host twice": b"GET /healthz HTTP/1.1\r\nhost: test\r\nhost: test\r\n\r\n",
    "two hosts of HTTP/1.0": b"GET /healthz HTTP/1.0\r\nhost: test\r\nhost: other\r\n\r\n",
    "no host": b"GET /healthz HTTP/1.1\r\n\r\n",
    "no version": b"GET /healthz\r\n\r\n",
    "a path that is no ASCII": b"GET /v1/\xff\xfe HTTP/1.1\r\nhost: test\r\n\r\n",
}


@pytest.mark.parametrize("shape", TWO_READINGS.values(), ids=TWO_READINGS)
def test_what_has_two_readings_is_refused_and_ends_the_connection(server: Server, shape: bytes):
    assert statuses(server, shape + LAST) == [400]


def test_a_body_is_never_read_as_the_next_request(server: Server):
    inner = b"GET /v1/models HTTP/1.1\r\nhost: test\r\n\r\n"
    length = b"content-length: %d\r\n\r\n" % len(inner)
    asked = b"GET /healthz HTTP/1.1\r\nhost: test\r\n" + length + inner
    assert statuses(server, asked + LAST) == [200, 200]


def test_a_body_of_an_old_protocols_request_ends_the_connection(server: Server):
    """HTTP/1.0 knows no chunks: whoever passed this on may have ended the body elsewhere."""
    head = b"POST /v1/chat/completions HTTP/1.0\r\nhost: test\r\ntransfer-encoding: chunked\r\n\r\n"
    assert statuses(server, head + b"0\r\n\r\n" + LAST) == [401]


@pytest.mark.parametrize("wanted", [b"websocket", b"h2c"])
def test_no_other_protocol_is_changed_to(server: Server, wanted: bytes):
    head = b"GET /healthz HTTP/1.1\r\nhost: test\r\nconnection: upgrade, close\r\n"
    assert statuses(server, head + b"upgrade: " + wanted + b"\r\n\r\n") == [200]


def test_a_target_that_names_its_host_is_read(server: Server):
    """RFC 9112, section 3.2.2: a server has to take the form that proxies get."""
    asked = b"GET http://TEST/healthz HTTP/1.1\r\nhost: test\r\n\r\n"
    assert statuses(server, asked + LAST) == [200, 200]


def test_a_request_of_http_1_0_needs_no_host(server: Server):
    assert statuses(server, b"GET /healthz HTTP/1.0\r\n\r\n") == [200]


def test_two_hosts_are_none_to_the_console(server: Server):
    hosts = b"host: 127.0.0.1\r\nhost: localhost\r\n"
    asked = b"GET /login HTTP/1.1\r\nconnection: close\r\n" + hosts + b"\r\n"
    assert statuses(server, asked) == [400]


def test_a_wrong_host_gets_a_400_without_a_stack_trace_in_the_log(server: Server):
    told = len(server.log.read_text())
    status, _, body = server.call("/login", headers={"host": "elsewhere.example"})
    assert (status, b"Traceback" in body) == (400, False)
    assert "Traceback" not in server.log.read_text()[told:]
