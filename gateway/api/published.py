"""What is published and drafted, as data: route policies, rate tables and the fleet (SPEC 2).

GET /api/v1/policies                                     every revision, and the drafts
GET /api/v1/policies?revision=v2                         one, its fields by name
GET /api/v1/policies?revision=v2&compared_with=v1        with what differs from another
GET /api/v1/rate-tables[?version=…[&compared_with=…]]    the same of rate tables
GET /api/v1/fleet                                        what is in force, as a fleet file
"""

import asyncio
import sqlite3
from collections.abc import Callable
from typing import Any, Final

import msgspec

from gateway.api import errors
from gateway.api.http import Request, Response
from gateway.api.ports import Ports
from gateway.api.problems import invalid
from gateway.api.receipts import iso_time
from gateway.api.replies import failed_natively
from gateway.fleet_file.differences import differences
from gateway.fleet_file.document import write_fleet
from gateway.fleet_file.in_force import declared_policy, fleet_in_force
from gateway.fleet_file.named import named
from gateway.operations import policies, rates
from gateway.submission import Caller
from ledger.queries import configuration as stored
from ledger.queries import drafts

POLICIES: Final = "/api/v1/policies"
RATE_TABLES: Final = "/api/v1/rate-tables"
FLEET: Final = "/api/v1/fleet"
PATHS: Final = (POLICIES, RATE_TABLES, FLEET)

Find = Callable[[sqlite3.Connection, str], msgspec.Struct | None]


class Published:
    """Answers from the ledger, off the event loop."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports

    async def policies(self, request: Request, caller: Caller) -> Response:
        return await self._answered(request, "revision", policies.policy_of, _policies)

    async def rate_tables(self, request: Request, caller: Caller) -> Response:
        return await self._answered(request, "version", rates.rates_of, _rate_tables)

    async def fleet(self, request: Request, caller: Caller) -> Response:
        now_us = self._ports.clock.now_us()
        text = await asyncio.to_thread(
            lambda: write_fleet(fleet_in_force(self._ports.reader(), now_us))
        )
        return Response(body=text.encode(), content_type=b"application/toml")

    async def _answered(
        self,
        request: Request,
        name: str,
        find: Find,
        every: Callable[[sqlite3.Connection], dict[str, Any]],
    ) -> Response:
        """All of a kind, or the one that the query names, compared with another where it asks."""
        query = {key: values[-1] for key, values in request.query().items()}
        unknown = sorted(query.keys() - {name, "compared_with"})
        if unknown or ("compared_with" in query and name not in query):
            message = f"Parameters are {name} and, with it, compared_with."
            return failed_natively(errors.of_problem(invalid(message)))
        if not query:
            body = await asyncio.to_thread(lambda: every(self._ports.reader()))
            return Response(body=msgspec.json.encode(body))
        found = await asyncio.to_thread(
            lambda: {key: find(self._ports.reader(), value) for key, value in query.items()}
        )
        missing = [query[key] for key, value in found.items() if value is None]
        if missing:
            message = f"There is no published or drafted {name} of that name."
            return failed_natively(errors.of_http("NOT_FOUND", message))
        answer = {name: query[name], "fields": named(found[name])}
        if "compared_with" in query:
            answer["compared_with"] = query["compared_with"]
            answer["differences"] = differences(found["compared_with"], found[name])
        return Response(body=msgspec.json.encode(answer))


def _policies(connection: sqlite3.Connection) -> dict[str, Any]:
    current, declared = stored.current_policy(connection), declared_policy(connection)
    return {
        "in_force": current.revision if current else None,
        "declared": declared.revision if declared else None,
        "published": [
            {
                "revision": each.revision,
                "published_at": iso_time(each.published_at_us),
                "published_by": each.published_by,
            }
            for each in stored.policies(connection)
        ],
        "drafts": _drafts(connection, policies.KIND),
    }


def _rate_tables(connection: sqlite3.Connection) -> dict[str, Any]:
    return {
        "published": [
            {
                "version": each.version,
                "effective_from": iso_time(each.effective_from_us),
                "currency": each.currency,
                "published_at": iso_time(each.published_at_us),
                "published_by": each.published_by,
            }
            for each in stored.rate_tables(connection)
        ],
        "drafts": _drafts(connection, rates.KIND),
    }


def _drafts(connection: sqlite3.Connection, kind: str) -> list[dict[str, Any]]:
    return [
        {
            "name": each.name,
            "draft_revision": each.revision,
            "based_on": each.based_on,
            "drafted_at": iso_time(each.drafted_at_us),
            "drafted_by": each.drafted_by,
            "note": each.note,
        }
        for each in drafts.drafts(connection, kind)
    ]
