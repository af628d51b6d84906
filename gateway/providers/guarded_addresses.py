"""Names of backends as addresses, without those that no backend is expected at (SEC-3)."""

import asyncio
import ipaddress
import socket

from gateway.providers.backend_address import is_off_limits

ADDRESSES_LIMIT = 4  # of one name that are tried


async def addresses_of(host: str, port: int, *, allow_link_local: bool = False) -> tuple[str, ...]:
    """Return where to connect to for a host, in the system's order, at most ADDRESSES_LIMIT.

    The address of a route is checked when it is read; what its name leads to may change later.
    Raises OSError for a name that can't be resolved, or leads to link-local or metadata addresses
    alone.
    """
    if not allow_link_local and is_off_limits(host):
        raise OSError("the backend's name leads to a link-local or metadata address")
    try:
        return (str(ipaddress.ip_address(host)),)
    except ValueError:
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    addresses = dict.fromkeys(str(address[0]) for *_, address in found)
    allowed = [each for each in addresses if allow_link_local or not is_off_limits(each)]
    if not allowed:
        raise OSError("the backend's name leads to a link-local or metadata address")
    return tuple(allowed[:ADDRESSES_LIMIT])
