"""GET /api/v1/capabilities: what can be relied on behind each route, and what can't (PRV-4)."""

import asyncio
import sqlite3
from typing import Any

import orjson

from gateway.api.http import Request, Response
from gateway.api.ports import Ports
from gateway.configuration import policy_in_force
from gateway.policy.values import Route
from gateway.providers.backend_address import BadAddress
from gateway.providers.base import Capabilities
from gateway.providers.capabilities import OF_KIND, capabilities_of
from gateway.submission import Caller


class CapabilityMatrix:
    """Answers from the policy in force; addresses and credentials' names are not shown."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports

    async def shown(self, request: Request, caller: Caller) -> Response:
        routes = await asyncio.to_thread(lambda: routes_json(self._ports.reader()))
        kinds = [matrix_json(each) for each in OF_KIND.values()]
        return Response(body=orjson.dumps({"kinds": kinds, "routes": routes}))


def routes_json(connection: sqlite3.Connection) -> list[dict[str, Any]]:
    """Returns each route's row, in the policy's order; none where no policy is published."""
    policy = policy_in_force(connection)
    return [] if policy is None else [_route_json(route) for route in policy.routes]


def _route_json(route: Route) -> dict[str, Any]:
    try:
        found: dict[str, Any] | None = matrix_json(capabilities_of(route))
    except BadAddress:  # of a policy that was published before its address could be read
        found = None
    return {
        "route_id": route.route_id,
        "declared": list(route.capabilities),
        "tokenizer_revision": route.tokenizer_revision,
        "provider": found,
    }


def matrix_json(row: Capabilities) -> dict[str, Any]:
    """Returns a row of the matrix; its error classes as name -> end state."""
    shown: dict[str, Any] = {name: getattr(row, name) for name in row.__slots__}
    return {**shown, "error_classes": dict(row.error_classes)}
