"""Exchanges that no well-behaved client has: raw bytes, and hanging up in the middle."""

import contextlib
import json
import socket

from tests.server import Server

LIMIT_SECONDS = 30.0


def chat_body(text: str = "How heavy is it?", **fields) -> bytes:
    message = {"role": "user", "content": text}
    return json.dumps({"model": "assist", "messages": [message], **fields}).encode()


def connected(server: Server) -> socket.socket:
    host, port = server.base_url.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=LIMIT_SECONDS)


def head_of(key: str | None, length: int) -> bytes:
    authorization = f"authorization: Bearer {key}\r\n" if key else ""
    return (
        f"POST /v1/chat/completions HTTP/1.1\r\nhost: test\r\n{authorization}"
        f"content-length: {length}\r\n\r\n"
    ).encode()


def hang_up_while_sending(server: Server, key: str, body: bytes) -> None:
    """Announce the whole body, send half of it, and hang up."""
    with contextlib.closing(connected(server)) as connection:
        connection.sendall(head_of(key, len(body)) + body[: len(body) // 2])


def hang_up_while_streaming(server: Server, key: str, body: bytes, after: bytes = b"data: ") -> str:
    """Hang up once `after` was received; returns the request's id."""
    with contextlib.closing(connected(server)) as connection:
        connection.sendall(head_of(key, len(body)) + body)
        received = b""
        while after not in received:
            piece = connection.recv(65_536)
            assert piece, received
            received += piece
    for line in received.split(b"\r\n"):
        if line.lower().startswith(b"x-request-id: "):
            return line.split(b": ")[1].decode()
    raise AssertionError(received)


def hang_up_before_the_answer(server: Server, key: str, body: bytes) -> None:
    """Send a whole request and hang up at once."""
    with contextlib.closing(connected(server)) as connection:
        connection.sendall(head_of(key, len(body)) + body)
