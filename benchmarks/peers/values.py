"""What is asked of every gateway, and what is found. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

UPSTREAM: Final = "upstream"  # the keys of what is measured and is no peer
OURS: Final = "weighbridge"
SIMULATED: Final = "weighbridge-simulator"
RELAY: Final = "relay"  # our server without a gateway in it


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """So many connections, each asking again as soon as it was answered, for so long.

    `pace_us` 0: the upstream sends a stream's chunks all at once. `prompts`: how often the prompt
    of 47 tokens is repeated.
    """

    name: str
    title: str
    connections: int
    seconds: float
    tokens: int  # of each answer
    stream: bool = False
    pace_us: int = 0
    prompts: int = 1

    @property
    def stream_s(self) -> float:
        """How long one stream lasts by its pace."""
        return self.pace_us * self.tokens / 1e6


@dataclass(slots=True, kw_only=True)
class Taken:
    """What one load came to, raw. Times in ns, of answers that were whole."""

    latencies_ns: list[int] = field(default_factory=list)
    first_ns: list[int] = field(default_factory=list)  # until the first piece of text
    sent: int = 0
    whole: int = 0  # answered 200, with every token, at any time
    whole_in_time: int = 0  # of these, before the load's time was over
    statuses: dict[int, int] = field(default_factory=dict)  # of answers other than 200
    short: int = 0  # answered 200 with fewer tokens than asked for
    lost: int = 0  # the connection was closed in the middle
    unfinished: int = 0  # given up on after the load's time and a grace
    seconds: float = 0.0

    @property
    def failed(self) -> int:
        return sum(self.statuses.values()) + self.short + self.lost + self.unfinished


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One load on one gateway in one round. None: nothing was answered, or it isn't asked.

    `others_share` is the part of all cores that programs outside the benchmark took meanwhile.
    """

    requests_per_s: float
    p50_ms: float | None
    p99_ms: float | None
    first_p50_ms: float | None
    first_p99_ms: float | None
    cpu_us: float | None  # of the gateway, for each whole answer
    upstream_cpu_us: float | None
    load_cpu_us: float | None
    rss_mb: float | None  # of the gateway, after the load
    whole: int
    failed: int
    others_share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """A gateway under one load: the median of its rounds. `added`: over straight at the upstream.

    `spread` is the lowest and the highest requests/s of the rounds.
    """

    requests_per_s: float
    spread: tuple[float, float]
    p50_ms: float | None
    p99_ms: float | None
    added_p50_ms: float | None
    added_p99_ms: float | None
    added_first_p50_ms: float | None
    added_first_p99_ms: float | None
    cpu_us: float | None
    rss_mb: float | None
    whole: int
    failed: int
    rounds: int
    others_share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Gateway:
    """One gateway's whole run. `absent`: why it was not measured, or not to the end; else "".

    `cells` has, for each load that it was asked, a place for each round.
    """

    key: str
    title: str
    version: str
    note: str
    absent: str = ""
    start_s: float | None = None  # from its command to its first answer
    rss_mb: float | None = None  # then
    cells: Mapping[str, tuple[Cell | None, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Books:
    """What became of our accounts. `problem`: why the figures don't count; "" where they do."""

    key: str
    sent: int
    receipts: int
    completed: int
    bytes_each: int
    verified: str
    problem: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    cores: int
    cpu: str
    memory_gb: float
    python: str
    kernel: str
    load_before: float  # programs that ran or waited for a core, over a minute
    load_after: float
    nice: int  # the priority that everything measured had; 0: the usual one
    loop_ns: tuple[float, float]  # CPU of a turn of a plain Python loop: least and most
    sync_ms: float  # until 8 KB are durable where the ledgers are, median


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """All that a run found."""

    at: str  # ISO 8601, UTC
    seconds: float
    rounds: int
    machine: Machine
    loads: tuple[Load, ...]
    gateways: tuple[Gateway, ...]
    books: tuple[Books, ...]
    rss_before_mb: float | None  # our server without any vocabulary
    start_before_s: float | None

    def gateway(self, key: str) -> Gateway | None:
        return next((each for each in self.gateways if each.key == key), None)
