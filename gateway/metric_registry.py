"""Where metrics live, and what keeps their labels bounded (SEC-1)."""

from bisect import bisect_left
from functools import lru_cache
from typing import Any, TypeVar

import prometheus_client
from prometheus_client import CollectorRegistry, Gauge, disable_created_metrics
from prometheus_client.registry import Collector

from gateway.exposition import Exposition

LABEL_VALUES_LIMIT = 64

# When each series began is a line for each that nothing here reads.
disable_created_metrics()  # type: ignore[no-untyped-call]  # it has no annotations


class Registry(CollectorRegistry):
    """The library's registry, whose metrics are also written by our own, faster writer."""

    def __init__(self) -> None:
        super().__init__()
        self.exposition = Exposition()

    def register(self, collector: Collector) -> None:
        super().register(collector)
        self.exposition.add(collector)


REGISTRY = Registry()


class BoundedLabel:
    """Passes a bounded number of distinct values through; every further one becomes "other"."""

    def __init__(self, limit: int = LABEL_VALUES_LIMIT) -> None:
        self._limit = limit
        self._seen: set[str] = set()

    def __call__(self, value: str | None) -> str:
        """Returns the label for a value: itself, "other", or "none" where there is no value."""
        if not value:
            return "none"
        if value in self._seen:
            return value
        if len(self._seen) >= self._limit:
            return "other"
        self._seen.add(value)
        return value


class PerRoute:
    """Gauges that have a series for each of the routes that there are, and for no other one.

    Their series are made anew only when the routes are others: that costs far more than setting.
    """

    def __init__(self, *gauges: Gauge) -> None:
        self._gauges = gauges
        self._routes: tuple[object, ...] = ()

    def of(self, *routes: object) -> None:
        """Forget all series where these routes aren't those of last time."""
        if routes != self._routes:
            self._routes = routes
            for gauge in self._gauges:
                gauge.clear()


class Counter(prometheus_client.Counter):
    """The library's counter, with a way to count that takes no lock and checks nothing."""

    _value: Any

    def add(self, amount: int = 1) -> None:
        """Count up. By the event loop alone: other threads call `inc`, on series of their own."""
        self._value._value += amount


class Histogram(prometheus_client.Histogram):
    """The library's histogram, likewise."""

    _sum: Any
    _buckets: Any

    def add(self, value_us: int | None) -> None:
        """Take a time, seconds of it. By the event loop alone. None: there is none to take."""
        if value_us is not None:
            seconds = value_us / 1e6
            self._sum._value += seconds
            self._buckets[bisect_left(self._upper_bounds, seconds)]._value += 1


_M = TypeVar("_M", Counter, Histogram)


@lru_cache(maxsize=4_096)
def child(metric: _M, *labels: str) -> _M:
    """Returns a metric's time series of these labels; `labels()` takes a lock and checks each."""
    return metric.labels(*labels)
