"""Attempts on servers of the Open Inference Protocol v2: KServe, Triton (PRV-1, PRV-2)."""

import orjson

from gateway.policy.values import Route
from gateway.providers.answer import Answer
from gateway.providers.base import Call
from gateway.providers.http_exchange import OPTIONAL, Exchange
from gateway.providers.http_fetch import fetched
from gateway.providers.http_pool import Pool
from gateway.providers.http_provider import METRICS_SECONDS, HttpProvider
from gateway.providers.kserve_address import Backend, backend_of
from gateway.providers.kserve_shapes import Reader, request_fields
from gateway.tokenizers import TextTooLarge, UnknownRevision, tokenizer

METADATA_LIMIT_BYTES = 1 << 16


class KServeProvider(HttpProvider[Backend]):
    """Runs attempts on the backends of the `kserve` routes."""

    KIND = "kserve"

    def _backend_of(self, route: Route) -> Backend:
        return backend_of(route, allow_link_local=self._allow_link_local)

    def _exchange(self, call: Call, backend: Backend) -> Exchange:
        fields, reader = request_fields(call, backend), Reader(backend.counts)
        return Exchange(
            content=orjson.dumps(fields),
            optional=OPTIONAL.intersection(fields["parameters"]),
            read=reader.event,
            read_whole=reader.whole,
            answer=Answer(
                call,
                # A chunk of this protocol may be any number of tokens.
                count_text=lambda text: output_tokens(call.route.tokenizer_revision, text),
                version=backend.version,
            ),
        )

    async def _is_ready(self, backend: Backend, key: str | None, pool: Pool) -> bool:
        """Whether the server says that the model is ready and, if one is declared, the version.

        While it is not, the route's last snapshot grows old, so that it turns conservative (ADM-6).
        """
        limits = (METRICS_SECONDS, METADATA_LIMIT_BYTES)
        if await fetched(pool, f"{backend.model_url}/ready", key, *limits) is None:
            return False
        told = await fetched(pool, backend.model_url, key, *limits)
        return told is not None and serves(told, backend.version)


def serves(metadata: bytes, version: str | None) -> bool:
    """Return whether a model's metadata leave it open, or say, that it has a version."""
    try:
        told = orjson.loads(metadata)
    except orjson.JSONDecodeError:
        return False
    if not isinstance(told, dict) or not told.get("name"):
        return False
    versions = told.get("versions")
    return version is None or not isinstance(versions, list) or version in versions


def output_tokens(revision: str, text: str) -> int | None:
    """Return the tokens of a text under a tokenizer revision; None where they can't be counted."""
    try:
        return tokenizer(revision).count_text(text)
    except (TextTooLarge, UnknownRevision):
        return None
