"""Bytes to a server as no client library sends them, and what comes back."""

import contextlib
import re

from tests.server import Server
from tests.system.wire import connected

LAST = b"GET /healthz HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n"
"""A whole request after which the server hangs up: with it the end of the answers is known."""


def statuses(server: Server, sent: bytes) -> list[int]:
    """The status of each answer until the server hangs up, as it must after these bytes.

    A hang-up with bytes unread may take an answer with it: then the list is empty.
    """
    with contextlib.closing(connected(server)) as connection:
        received = b""
        with contextlib.suppress(ConnectionError):
            connection.sendall(sent)
        with contextlib.suppress(ConnectionError):
            while piece := connection.recv(65_536):
                received += piece
    return [int(status) for status in re.findall(rb"HTTP/1\.1 ([0-9]{3})", received)]


def turned_away(server: Server, reason: str) -> float:
    """How many exchanges the server has counted under a reason."""
    counter = f'weighbridge_turned_away_total{{reason="{reason}"}} '
    lines = server.call("/metrics")[2].decode().splitlines()
    return sum(float(line.removeprefix(counter)) for line in lines if line.startswith(counter))
