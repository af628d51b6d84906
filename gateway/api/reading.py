"""GET /api/docs: the OpenAPI document as a page, without scripts or anything from elsewhere."""

import asyncio
from collections.abc import Sequence
from typing import Any

from django.template.loader import render_to_string

from gateway.api.http import Endpoint, Request, Response
from gateway.api.openapi import document

PATH = "/api/docs"
HTML = b"text/html; charset=utf-8"
POLICY = b"default-src 'none'; style-src 'self'; img-src 'self'; font-src 'self'; " + (
    b"frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)


class ApiPage:
    """Serves the page; it is made once, when it is first asked for."""

    def __init__(self, endpoints: Sequence[Endpoint]) -> None:
        self._endpoints = endpoints
        self._body: bytes | None = None

    async def shown(self, request: Request) -> Response:
        if self._body is None:
            context = page_context(await asyncio.to_thread(document, self._endpoints))
            self._body = render_to_string("api_docs.html", context).encode()
        headers = ((b"content-security-policy", POLICY), (b"x-frame-options", b"DENY"))
        return Response(body=self._body, content_type=HTML, headers=headers)


def page_context(made: dict[str, Any]) -> dict[str, Any]:
    """Returns what the page shows: endpoints by tag in the table's order, then the codes."""
    by_tag: dict[str, list[dict[str, Any]]] = {}
    for path, methods in made["paths"].items():
        for method, operation in methods.items():
            by_tag.setdefault(operation["tags"][0], []).append(
                {
                    "anchor": operation["operationId"],
                    "method": method.upper(),
                    "path": path,
                    "summary": operation["summary"],
                    "needs": operation.get("description", "Open to whoever asks."),
                    "body": _body_fields(made, operation),
                    "parameters": operation["parameters"],
                    "statuses": [
                        {"status": status, "what": response["description"]}
                        for status, response in operation["responses"].items()
                    ],
                }
            )
    return {
        "about": made["info"]["description"],
        "tags": list(by_tag.items()),
        "codes": made["x-reason-codes"],
    }


def _body_fields(made: dict[str, Any], operation: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns the body's fields, the needed ones marked; [] where it has no fixed ones."""
    content = operation.get("requestBody", {}).get("content", {})
    schema = content.get("application/json", {}).get("schema", {})
    name = schema.get("$ref", "").rpartition("/")[2]
    found = made["components"]["schemas"].get(name, {})
    needed = set(found.get("required", ()))
    return [{"name": each, "needed": each in needed} for each in found.get("properties", {})]
