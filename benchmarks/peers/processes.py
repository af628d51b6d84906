"""Processes that are measured: each in a group of its own, with CPU and memory of the whole group.

Figures come from /proc, so this part runs on Linux alone.
"""

import contextlib
import os
import signal
import socket
import statistics
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

PROC = Path("/proc")
CLOCK_TICKS = os.sysconf("SC_CLK_TCK")
STOP_SECONDS = 30.0
LOG_TAIL_CHARS = 600
COMPILED = {"PYTHONDONTWRITEBYTECODE": ""}  # a second start reads what the first one compiled
LOOP_TURNS = 200_000
SYNCS = 51


class Group:
    """A started command and every process that it started.

    `stop` ends it as an operator would, and the whole group by force where that doesn't help.
    """

    def __init__(
        self, command: Sequence[str], *, log: Path, environment: Mapping[str, str], folder: Path
    ) -> None:
        self._log = log
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                command,
                cwd=folder,
                env={**os.environ, **COMPILED, **environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        prefer(self.process.pid, os.getpriority(os.PRIO_PROCESS, 0))

    @property
    def gone(self) -> bool:
        return self.process.poll() is not None

    def members(self) -> list[int]:
        """Return the living processes of the group."""
        found = []
        for name in os.listdir(PROC):
            if name.isdigit():
                with contextlib.suppress(OSError):
                    if int(_stat(int(name))[2]) == self.process.pid:
                        found.append(int(name))
        return found

    def cpu_s(self) -> float:
        """Return the user and system time taken so far, in steps of 10 ms."""
        ticks = 0
        for pid in self.members():
            with contextlib.suppress(OSError):
                ticks += sum(map(int, _stat(pid)[11:15]))  # its own and its ended children's
        return ticks / CLOCK_TICKS

    def rss_mb(self) -> float:
        """Return the resident memory of all members, in MB of 10^6 bytes."""
        total = 0
        for pid in self.members():
            with contextlib.suppress(OSError):
                for line in (PROC / str(pid) / "status").read_text().splitlines():
                    if line.startswith("VmRSS:"):
                        total += int(line.split()[1]) * 1_024
        return total / 1e6

    def stop(self) -> int | None:
        """Return the exit status; None where it had to be killed."""
        self.process.terminate()
        try:
            return self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            return None
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def last_words(self) -> str:
        """Return the end of what it printed, on one line."""
        text = " ".join(self._log.read_text(errors="replace").split())
        return text[-LOG_TAIL_CHARS:]


def prefer(pid: int, nice: int) -> None:
    """Give a process's session a priority, where Linux shares the cores among sessions.

    There a process's own priority counts only beside others of its session. `nice` 0: as it is.
    """
    if nice:
        with contextlib.suppress(OSError):
            (PROC / str(pid) / "autogroup").write_text(str(nice))


@contextlib.contextmanager
def stopped_after(group: Group) -> Iterator[Group]:
    try:
        yield group
    finally:
        group.stop()


def free_port() -> int:
    """Return a port that nobody listens on now."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


def machine_cpu_s() -> tuple[float, float]:
    """Return (seconds that all cores worked since boot, seconds that there were)."""
    fields = [int(each) for each in (PROC / "stat").read_text().split("\n", 1)[0].split()[1:9]]
    idle = fields[3] + fields[4]
    return (sum(fields) - idle) / CLOCK_TICKS, sum(fields) / CLOCK_TICKS


def loop_ns() -> float:
    """Return the CPU time that a turn of a plain Python loop takes now, in ns.

    A processor that others keep busy is slower for whoever gets it: this says by how much.
    """
    began, total = time.process_time_ns(), 0
    for turn in range(LOOP_TURNS):
        total += turn % 7
    return (time.process_time_ns() - began) / LOOP_TURNS


def sync_ms(folder: Path) -> float:
    """Return the median time until 8 KB that are written to a file are durable."""
    times_s = []
    with (folder / "sync").open("wb", buffering=0) as file:
        for _ in range(SYNCS):
            began = time.perf_counter()
            file.write(bytes(8_192))
            os.fdatasync(file.fileno())
            times_s.append(time.perf_counter() - began)
    return statistics.median(times_s) * 1e3


def own_cpu_s() -> float:
    """Return the user and system time of this process."""
    times = os.times()
    return times.user + times.system


def _stat(pid: int) -> list[str]:
    """Return the fields of a process's stat from its state on: [2] is its group, [11:15] times."""
    return (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
