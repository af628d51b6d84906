"""A gateway that runs, and one load on it measured with all that it costs."""

import asyncio
import contextlib
import http.client
import sys
import time
import urllib.request
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.peers.driving import Door, drive
from benchmarks.peers.processes import Group, machine_cpu_s, own_cpu_s
from benchmarks.peers.summing import cell
from benchmarks.peers.values import Cell, Load

UPSTREAM_SCRIPT = Path(__file__).resolve().parents[1] / "upstream.py"
START_SECONDS = 120.0
POLL_SECONDS = 0.02
ASK_SECONDS = 5.0
WARM_UP_SECONDS = 0.3
SETTLE_SECONDS = 15.0
LOOK_SECONDS = 0.2
IDLE_SHARE = 0.1  # of a core, at which a gateway has nothing left to do


class DidNotStart(Exception):
    """A gateway that gave no answer; the message is the reason for whoever reads the results."""


@dataclass(slots=True, kw_only=True, eq=False)
class Running:
    """A started gateway. `sent` counts every request that it was given, warm-up included."""

    group: Group
    door: Door
    start_s: float
    rss_mb: float
    sent: int


async def started(group: Group, door: Door, *, path: str | None = None) -> Running:
    """Return once it gives its first answer: to a chat, or of a path to a GET.

    Raises DidNotStart, with the group stopped.
    """
    began, sent, status = time.perf_counter(), 0, 0
    while time.perf_counter() - began < START_SECONDS and not group.gone:
        status, reached = await asyncio.to_thread(_ask, door, path)
        sent += reached
        if status == 200:
            return Running(
                group=group,
                door=door,
                start_s=time.perf_counter() - began,
                rss_mb=group.rss_mb(),
                sent=sent,
            )
        await asyncio.sleep(POLL_SECONDS)
    why = (
        f"ended with {group.process.returncode}" if group.gone else f"last answer: {status or '–'}"
    )
    group.stop()
    raise DidNotStart(f"no answer in {START_SECONDS:.0f} s ({why}): {group.last_words()}")


def _ask(door: Door, path: str | None) -> tuple[int, bool]:
    """Return (the status of one answer, 0: none; whether a chat was sent)."""
    with contextlib.closing(
        http.client.HTTPConnection("127.0.0.1", door.port, timeout=ASK_SECONDS)
    ) as connection:
        try:
            connection.connect()
        except OSError:
            return 0, False
        try:
            if path is not None:
                connection.request("GET", path)
            else:
                body = door.request(1, stream=False).numbered(0).partition(b"\r\n\r\n")[2]
                headers = {"content-type": "application/json", **door.headers}
                connection.request("POST", door.path, body, headers)
            response = connection.getresponse()
            response.read()
        except (OSError, http.client.HTTPException):
            return 0, path is None
        return response.status, path is None


async def measured(
    running: Running, load: Load, upstream: Group, *, warm_up_s: float = WARM_UP_SECONDS
) -> Cell:
    """Put a load on a gateway, after a short one that isn't counted; return what it came to.

    Raises OSError where it takes no connection.
    """
    if not load.pace_us:
        warm_up = await drive(running.door, replace(load, seconds=warm_up_s))
        running.sent += warm_up.sent
    group = running.group
    before = (group.cpu_s(), upstream.cpu_s(), own_cpu_s(), *machine_cpu_s())
    taken = await drive(running.door, load)
    after = (group.cpu_s(), upstream.cpu_s(), own_cpu_s(), *machine_cpu_s())
    running.sent += taken.sent
    await settled(group)
    cpu_s, upstream_cpu_s, load_cpu_s, worked_s, there_were_s = (
        end - start for start, end in zip(before, after, strict=True)
    )
    # Straight at the upstream, the gateway is the upstream.
    ours_s = load_cpu_s + upstream_cpu_s + (0 if group is upstream else cpu_s)
    return cell(
        taken,
        cpu_s=cpu_s,
        upstream_cpu_s=upstream_cpu_s,
        load_cpu_s=load_cpu_s,
        rss_mb=group.rss_mb(),
        others_share=max(0.0, (worked_s - ours_s) / there_were_s) if there_were_s else 0.0,
    )


async def settled(group: Group) -> None:
    """Wait until a gateway has worked off what its callers left, so that the next has the cores."""
    ends = time.perf_counter() + SETTLE_SECONDS
    while time.perf_counter() < ends:
        before = group.cpu_s()
        await asyncio.sleep(LOOK_SECONDS)
        if group.cpu_s() - before <= LOOK_SECONDS * IDLE_SHARE:
            return


def set_pace(upstream_port: int, pace_us: int) -> None:
    """Have the upstream's streams send a chunk each so often from now on."""
    asked = urllib.request.Request(
        f"http://127.0.0.1:{upstream_port}/pace/{pace_us}", data=b"", method="PUT"
    )
    with urllib.request.urlopen(asked, timeout=ASK_SECONDS) as response:
        response.read()


def start_upstream(folder: Path, port: int) -> Group:
    """Start the upstream; its log is in the folder."""
    return Group(
        [sys.executable, "-P", str(UPSTREAM_SCRIPT), str(port)],
        log=folder / "upstream.log",
        environment={},
        folder=folder,
    )
