"""What a server takes while it serves: memory, descriptors and its write-ahead log."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """A server at one moment. `resident_kib`: memory of its own that is in RAM."""

    at_s: float
    resident_kib: int
    descriptors: int
    log_bytes: int
    requests: int


def sample(pid: int, ledger: Path, at_s: float, requests: int) -> Sample:
    status = Path(f"/proc/{pid}/status").read_text()
    (resident,) = (line for line in status.splitlines() if line.startswith("RssAnon:"))
    log = ledger.with_name(ledger.name + "-wal")
    return Sample(
        at_s=at_s,
        resident_kib=int(resident.split()[1]),
        descriptors=len(list(Path(f"/proc/{pid}/fd").iterdir())),
        log_bytes=log.stat().st_size if log.exists() else 0,
        requests=requests,
    )


def slope_kib(samples: Sequence[Sample], over_s: float) -> float:
    """KiB by which memory grows in `over_s`, by least squares over all samples."""
    times = np.array([each.at_s for each in samples])
    sizes = np.array([each.resident_kib for each in samples], dtype=float)
    times -= times.mean()
    return float((times * (sizes - sizes.mean())).sum() / (times * times).sum() * over_s)
