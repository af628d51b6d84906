"""Attempts on any OpenAI-compatible HTTP server: vLLM, SGLang, llama.cpp, a vendor (PRV-1)."""

from typing import assert_never

import orjson

from gateway.policy.values import Route
from gateway.providers.answer import Answer
from gateway.providers.base import Call
from gateway.providers.http_exchange import OPTIONAL, Exchange
from gateway.providers.http_pool import Patience
from gateway.providers.http_provider import HttpProvider
from gateway.providers.openai_address import Backend, backend_of
from gateway.providers.openai_request import request_fields
from gateway.providers.openai_shapes import EventReader
from gateway.providers.openai_status import chat_outcome, response_outcome
from gateway.providers.outcomes import Outcome
from ledger.usage import convention_of

__all__ = ["OpenAIProvider", "Patience"]


class OpenAIProvider(HttpProvider[Backend]):
    """Runs attempts on the backends of the `openai` routes."""

    KIND = "openai"

    def _backend_of(self, route: Route) -> Backend:
        return backend_of(route, allow_link_local=self._allow_link_local)

    def _exchange(self, call: Call, backend: Backend) -> Exchange:
        fields, convention = request_fields(call, backend), convention_of(backend.usage)
        reader = EventReader(convention)
        return Exchange(
            content=orjson.dumps(fields),
            optional=OPTIONAL.intersection(fields),
            read=reader,
            texts=reader.texts,
            answer=Answer(call),
            # Where the backend can be asked, it is asked by the id in the body.
            named_by_header=backend.asks is None,
        )

    def _enquiry(self, backend: Backend, quoted_id: str) -> str | None:
        match backend.asks:
            case None:
                return None
            case "chat":
                return f"{backend.api_url}/chat/completions/{quoted_id}"
            case "responses":
                return f"{backend.api_url}/responses/{quoted_id}"
            case never:
                assert_never(never)

    def _told(self, body: bytes, backend: Backend) -> Outcome | None:
        if backend.asks == "responses":
            return response_outcome(body)
        return chat_outcome(body, convention_of(backend.usage))
