"""The OpenAPI 3.1 document, made of the table of URLs, the wire types and the reason codes.

GET /api/openapi.json serves it, and the page /api/docs shows it.
"""

import asyncio
import re
from collections.abc import Iterable, Sequence
from http import HTTPStatus
from typing import Any

import msgspec
import orjson

from gateway.api import shapes
from gateway.api.described import DESCRIBED, JSON, Described, Parameter
from gateway.api.errors import http_codes
from gateway.api.http import Endpoint, Request, Response
from gateway.policy.reasons import REASONS

PATH = "/api/openapi.json"
VERSION = "1"
PROBLEM = "application/problem+json"
CLIENT_CLOSED = 499
_FAILURES = (shapes.OpenAIError, shapes.ProblemShape, shapes.ProtocolError)
_PLACE = re.compile(r"\{([a-z]+)\}")
_SCHEMA_PLACE = "#/components/schemas/{name}"

ABOUT = """\
An inference gateway with a ledger. Point an OpenAI client at /v1; each request that got an id has
one receipt, under /api/v1. Failures on /v1 are OpenAI's error object, elsewhere problems of
RFC 9457; both carry a stable code, listed under x-reason-codes, and whether a retry makes sense.
Every answer has an x-request-id."""


class OpenApi:
    """Serves the document; it is made at the first question (0.2 s), of a table that stays."""

    def __init__(self, endpoints: Sequence[Endpoint]) -> None:
        self._endpoints = endpoints
        self._body = b""

    async def shown(self, request: Request) -> Response:
        if not self._body:
            made = await asyncio.to_thread(document, self._endpoints)
            self._body = orjson.dumps(made, option=orjson.OPT_INDENT_2)
        return Response(body=self._body)


def document(endpoints: Sequence[Endpoint]) -> dict[str, Any]:
    """Returns the document of a table. Raises KeyError for an endpoint that isn't described."""
    rows = [(each, DESCRIBED[(each.method, each.path)]) for each in endpoints]
    types = _types(row for _, row in rows)
    made, components = msgspec.json.schema_components(types, ref_template=_SCHEMA_PLACE)
    schema_of = dict(zip(map(id, types), made, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for endpoint, row in rows:
        operation = _operation(endpoint, row, schema_of)
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = operation
    return {
        "openapi": "3.1.0",
        "info": {"title": "Weighbridge", "version": VERSION, "description": ABOUT},
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
        "x-reason-codes": reason_codes(),
    }


def reason_codes() -> list[dict[str, Any]]:
    """Returns every code that a failure may have, with its status, advice and meaning."""
    decided = [
        {
            "code": reason.code,
            "status": reason.http_status,
            "retryable": reason.retryable,
            "what": reason.description,
            "caller_action": reason.caller_action,
        }
        for reason in REASONS.values()
    ]
    of_http = [
        {"code": code, "status": status, "retryable": False, "what": "", "caller_action": action}
        for code, status, action in http_codes()
    ]
    return decided + of_http


def _types(rows: Iterable[Described]) -> list[Any]:
    found: dict[int, Any] = {id(one): one for one in _FAILURES}
    for row in rows:
        found |= {id(one): one for one in (row.body, row.answer) if one is not None}
    return list(found.values())


def _operation(endpoint: Endpoint, row: Described, schema_of: dict[int, Any]) -> dict[str, Any]:
    native = endpoint.path.startswith("/api/")
    failure: Any = shapes.ProblemShape if native else shapes.OpenAIError
    if endpoint.path.startswith("/v2"):
        failure = shapes.ProtocolError
    failed = {PROBLEM if native else JSON: {"schema": schema_of[id(failure)]}}
    answered = {kind: {"schema": _content_schema(kind, row, schema_of)} for kind in row.content}
    responses = {str(status): _response(status, answered, row.headers) for status in row.statuses}
    if native and endpoint.method == "GET":
        responses["304"] = {"description": "Not modified: the body has the ETag that was sent."}
    for status in _failures(endpoint, row):
        responses.setdefault(str(status), _response(status, failed))
    operation: dict[str, Any] = {
        "operationId": endpoint.name.replace("/", "_"),
        "summary": row.summary,
        "tags": [row.tag],
        "security": [{"key": []}] if endpoint.access == "key" else [],
        "parameters": [*_path_parameters(endpoint), *map(_parameter, row.parameters)],
        "responses": dict(sorted(responses.items())),
    }
    if endpoint.scopes:
        operation["description"] = f"Needs the scope {' or '.join(endpoint.scopes)}."
    if row.body is not None:
        content = {JSON: {"schema": schema_of[id(row.body)]}}
        operation["requestBody"] = {"required": row.body_needed, "content": content}
    return operation


def _content_schema(kind: str, row: Described, schema_of: dict[int, Any]) -> dict[str, Any]:
    if kind != JSON:
        return {"type": "string"}
    if row.answer is None:
        return {"type": "object"}
    schema: dict[str, Any] = schema_of[id(row.answer)]
    return schema


def _failures(endpoint: Endpoint, row: Described) -> list[int]:
    """Every endpoint may fail; with a key it may be refused; with an id nothing may be found."""
    found = {500, *row.failures}
    if endpoint.access == "key":
        found |= {400, 401, 403}
    if "{" in endpoint.path:
        found.add(404)
    if row.body is not None:
        found |= {408, 413}
    return sorted(found)


def _response(
    status: int, content: dict[str, Any], headers: tuple[str, ...] = ()
) -> dict[str, Any]:
    phrase = "Client closed request" if status == CLIENT_CLOSED else HTTPStatus(status).phrase
    text = {"schema": {"type": "string"}}
    return {
        "description": phrase,
        "headers": dict.fromkeys(("x-request-id", *headers), text),
        "content": content,
    }


def _path_parameters(endpoint: Endpoint) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in _PLACE.findall(endpoint.path)
    ]


def _parameter(one: Parameter) -> dict[str, Any]:
    return {
        "name": one.name,
        "in": one.place,
        "required": False,
        "description": one.what,
        "schema": {"type": "string"},
    }
