"""Where a backend's URL leads, and the head of a request to it, as bytes. Pure."""

from collections.abc import Iterable
from functools import lru_cache
from urllib.parse import quote, urlsplit

from gateway.quiet import Quiet

AGENT = b"weighbridge"
_PATH_SAFE = "/%:=&?~#+!$,;'@()*[]"
_BREAKS = ("\r", "\n", "\0")


class Target(Quiet, frozen=True, kw_only=True, gc=False):
    """One URL: where to connect to, and what is asked there. `path` has its query."""

    secure: bool
    host: str  # a name in ASCII, or an address without brackets
    port: int
    path: bytes
    authority: bytes  # the Host header

    @property
    def origin(self) -> tuple[bool, str, int]:
        """Return what a connection is to: requests to the same one may share it."""
        return self.secure, self.host, self.port


@lru_cache(maxsize=4_096)
def target_of(url: str) -> Target:
    """Return where a URL leads. Raises ValueError for one that isn't http or https, or no URL."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("a backend's URL begins with http:// or https:// and names a host")
    secure = parts.scheme == "https"
    host = parts.hostname
    if not host.isascii():
        host = host.encode("idna").decode()
    usual = 443 if secure else 80
    port = parts.port or usual
    named = f"[{host.partition('%')[0]}]" if ":" in host else host
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Target(
        secure=secure,
        host=host,
        port=port,
        path=quote(path, safe=_PATH_SAFE).encode(),
        authority=(named if port == usual else f"{named}:{port}").encode(),
    )


def head(method: bytes, target: Target, fields: Iterable[tuple[str, str]]) -> bytes:
    """Return a request's head without the empty line that ends it, so that more may be added.

    Raises ValueError for a value with a line break, which would be read as another header; the
    message names the header only: the value may be a credential.
    """
    lines = [
        method + b" " + target.path + b" HTTP/1.1",
        b"Host: " + target.authority,
        b"User-Agent: " + AGENT,
        b"Accept-Encoding: identity",
    ]
    for name, value in fields:
        if any(each in value for each in _BREAKS):
            raise ValueError(f"the value of the header {name} has a line break in it")
        lines.append(f"{name}: {value}".encode())
    return b"\r\n".join(lines) + b"\r\n"
