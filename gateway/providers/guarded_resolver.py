"""Names of backends as addresses, without those that no backend is expected at (SEC-3)."""

import socket

from aiohttp.abc import ResolveResult
from aiohttp.resolver import ThreadedResolver

from gateway.providers.backend_address import is_off_limits


class GuardedResolver(ThreadedResolver):
    """Resolves as the system does; a name that leads to link-local or metadata can't be resolved.

    The address of a route is checked when it is read; what its name leads to may change later.
    """

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        found = await super().resolve(host, port, family)
        allowed = [each for each in found if not is_off_limits(each["host"])]
        if not allowed:
            raise OSError("the backend's name leads to a link-local or metadata address")
        return allowed
