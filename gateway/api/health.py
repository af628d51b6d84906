"""GET /healthz (the process runs), /readyz (requests are taken), /metrics (Prometheus)."""

import asyncio
import gzip

import orjson

from gateway import metrics
from gateway.api.http import Request, Response
from gateway.api.ports import Ports


class Health:
    def __init__(self, ports: Ports) -> None:
        self._ports = ports

    async def alive(self, request: Request) -> Response:
        return Response(body=b'{"status":"ok"}')

    async def ready(self, request: Request) -> Response:
        """Returns 503 with every reason while requests aren't taken."""
        ready, problems = self._ports.ready()
        body = orjson.dumps({"ready": ready, "problems": problems})
        return Response(body=body, status=200 if ready else 503)

    async def metrics(self, request: Request) -> Response:
        # Off the event loop: with many routes it takes tens of milliseconds.
        packed = "gzip" in request.headers.get("accept-encoding", "")
        body = await asyncio.to_thread(_packed if packed else metrics.exposition)
        return Response(
            body=body,
            content_type=metrics.CONTENT_TYPE.encode(),
            headers=((b"content-encoding", b"gzip"),) if packed else (),
        )


def _packed() -> bytes:
    """Returns the metrics as gzip, a twentieth of their size, as Prometheus asks for them."""
    return gzip.compress(metrics.exposition(), compresslevel=1)
