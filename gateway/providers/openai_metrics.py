"""A backend's own metrics, in Prometheus' text format, as a capacity snapshot (SCH-2). Pure.

vLLM's and SGLang's names are known. What a backend doesn't tell is bounded from above: waiting
requests count with the mean prompt, or with the longest that the route takes; of the oldest wait
see `QueueBound`.
"""

import math
import re
from collections.abc import Mapping
from types import MappingProxyType

from gateway.policy.values import CapacitySnapshot, Route

_WAITING = ("vllm:num_requests_waiting", "sglang:num_queue_reqs")
_RUNNING = ("vllm:num_requests_running", "sglang:num_running_reqs")
_KV_SHARE = ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc", "sglang:token_usage")
_GENERATED = ("vllm:generation_tokens_total", "sglang:generation_tokens_total")
_FINISHED = ("vllm:request_success_total", "sglang:num_requests_total")
_PROMPT_TOKENS = ("vllm:request_prompt_tokens_sum",)
_PROMPTS = ("vllm:request_prompt_tokens_count",)
_USED: Mapping[str, str] = MappingProxyType(
    {
        name: kind
        for kind, names in (
            ("waiting", _WAITING), ("running", _RUNNING), ("kv_share", _KV_SHARE),
            ("generated", _GENERATED), ("finished", _FINISHED),
            ("prompt_tokens", _PROMPT_TOKENS), ("prompts", _PROMPTS),
        )
        for name in names
    }
)  # fmt: skip
_LINE = re.compile(r"([A-Za-z_:][A-Za-z0-9_:]*)(\{[^\n]*\})?\s+(\S+)(?:\s+-?\d+)?\s*")
_ABORTED = 'finished_reason="abort"'
"""Of a finished request: it may have left the queue from any place, so it shows no progress."""
COUNT_LIMIT = 2**53
MARKS_LIMIT = 600  # ten minutes of readings


def read_metrics(text: bytes) -> dict[str, list[float]]:
    """Return the values of the metrics that are used, by kind, one for each engine behind it.

    Lines that can't be read, and values that are no finite number from 0 to COUNT_LIMIT, are left
    out.
    """
    values: dict[str, list[float]] = {}
    for line in text.decode("utf-8", "replace").splitlines():
        match = _LINE.fullmatch(line)
        kind = _USED.get(match[1]) if match else None
        if match is None or kind is None or (kind == "finished" and _ABORTED in (match[2] or "")):
            continue
        try:
            value = float(match[3])
        except ValueError:
            continue
        if 0 <= value <= COUNT_LIMIT:
            values.setdefault(kind, []).append(value)
    return values


class QueueBound:
    """How long the longest-waiting request can have waited, of a queue that is first in, first out.

    Since a reading at which W waited, those that left the queue are those that finished and those
    that run more. Once they are W, nobody of then waits any more: the oldest wait is at most the
    time since that reading. Without a count of the finished, that is mostly the time since nobody
    waited. Of several engines it holds of all together.
    """

    def __init__(self) -> None:
        self._marks: list[tuple[int, int, float]] = []  # when, how many waited, left until then
        self._finished = 0.0

    def take(self, now_us: int, waiting: int, running: float, finished: float) -> int:
        """Add a reading; return the bound in µs, 0 of the first and of a restarted backend."""
        if finished < self._finished:
            self._marks.clear()
        self._finished = finished
        left, marks = finished + running, self._marks
        marks.append((now_us, waiting, left))
        gone = [
            place
            for place, (_, waited, before) in enumerate(marks)
            if not waited or left - before >= waited
        ]
        del marks[: gone[-1] if gone else 0]
        if len(marks) > MARKS_LIMIT:
            del marks[1]  # which can only make the bound longer
        return now_us - marks[0][0]


class Watch:
    """Makes snapshots of one route from its backend's metrics, each with its own revision."""

    def __init__(self, route: Route, kv_tokens: int, first_revision: int) -> None:
        self._route, self._kv_tokens, self._revision = route, kv_tokens, first_revision
        self._generated: tuple[int, float] | None = None  # when, how many
        self._queue = QueueBound()
        self.snapshot: CapacitySnapshot | None = None

    @property
    def next_revision(self) -> int:
        return self._revision

    def take(self, text: bytes, now_us: int) -> None:
        """Take one reading. Without queue, batch and KV share it is none, and changes nothing."""
        values = read_metrics(text)
        if not all(values.get(kind) for kind in ("waiting", "running", "kv_share")):
            return
        waiting = math.ceil(sum(values["waiting"]))
        # Room is that of the roomiest engine: a request needs one.
        share = min(1.0, min(values["kv_share"]))
        reserved = min(self._kv_tokens, math.ceil(self._kv_tokens * share))
        running = sum(values["running"])
        oldest_wait_us = self._queue.take(now_us, waiting, running, sum(values.get("finished", ())))
        self.snapshot = CapacitySnapshot(
            route_id=self._route.route_id,
            revision=self._revision,
            observed_at_us=now_us,
            waiting_requests=waiting,
            running_requests=math.ceil(running),
            waiting_input_tokens=waiting * self._prompt_tokens(values),
            reserved_kv_tokens=reserved,
            free_kv_tokens=self._kv_tokens - reserved,
            recent_output_tokens_per_second=self._rate(sum(values.get("generated", ())), now_us),
            queue_p95_us=oldest_wait_us,
            oldest_wait_us=oldest_wait_us,
        )
        self._revision += 1

    def _prompt_tokens(self, values: Mapping[str, list[float]]) -> int:
        prompts = sum(values.get("prompts", ()))
        if prompts <= 0:
            return self._route.max_input_tokens
        return math.ceil(sum(values.get("prompt_tokens", ())) / prompts)

    def _rate(self, generated: float, now_us: int) -> int:
        before, self._generated = self._generated, (now_us, generated)
        # A count that went back is that of a backend which was started again.
        if before is None or now_us <= before[0] or generated < before[1]:
            return 0
        return round((generated - before[1]) * 1_000_000 / (now_us - before[0]))
