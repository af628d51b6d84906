"""Hands facts over to a thread that tells them; the event loop only puts them into a queue."""

import logging
import threading
import traceback
from queue import SimpleQueue

from opentelemetry.sdk.resources import SERVICE_NAME, Resource

from gateway import metrics
from gateway.telemetry.facts import RequestFacts
from gateway.telemetry.meters import Meters
from gateway.telemetry.spans import Spans

log = logging.getLogger(__name__)

WAITING_LIMIT = 8_192
"""Requests that wait to be told; of further ones only their number is."""


class Exporter:
    """Tells requests to a collector. `tell` and `sampled` belong to the event loop."""

    def __init__(self, *, traces: bool, measures: bool) -> None:
        resource = Resource.create()
        if str(resource.attributes.get(SERVICE_NAME, "")).startswith("unknown_service"):
            resource = resource.merge(Resource({SERVICE_NAME: "weighbridge"}))
        self._spans = Spans(resource) if traces else None
        self._meters = Meters(resource) if measures else None
        self._waiting: SimpleQueue[RequestFacts | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="telemetry", daemon=True)
        self._thread.start()

    def sampled(self, trace_id: str) -> bool:
        return self._spans is None or self._spans.sampled(trace_id)

    def tell(self, facts: RequestFacts) -> None:
        """Leave a request to be told; it is dropped, and counted, where too many wait."""
        if self._waiting.qsize() >= WAITING_LIMIT:
            metrics.telemetry_dropped()
        else:
            self._waiting.put(facts)

    def close(self, seconds: float) -> None:
        """Tell what waits, for so long at most; a collector that is away holds nobody up."""
        self._waiting.put(None)
        self._thread.join(seconds)

    def _run(self) -> None:
        while (facts := self._waiting.get()) is not None:
            try:
                self._tell(facts)
            except Exception as fault:  # what can't be told must not keep the rest from being told
                where = "".join(traceback.format_tb(fault.__traceback__))
                log.error("%s: a request could not be told\n%s", type(fault).__name__, where)
        for each in (self._spans, self._meters):
            if each is not None:
                each.close()

    def _tell(self, facts: RequestFacts) -> None:
        if self._spans is not None:
            self._spans.tell(facts)
        if self._meters is not None:
            self._meters.tell(facts)
