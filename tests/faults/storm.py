"""One injection after another on one ledger, and everything asked for after each."""

import asyncio
import math
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from tests.faults.checks import Checks
from tests.faults.injections import KINDS
from tests.faults.load import CLIENTS, Load
from tests.faults.rig import BACK_WITHIN_S, Rig, rigged


@dataclass(slots=True, kw_only=True)
class Report:
    """What a run did and found. `back_s`: by kind, how long service was away after its fault."""

    seed: int
    back_s: dict[str, list[float]] = field(default_factory=dict)
    statuses: dict[int, int] = field(default_factory=dict)
    findings: list[str] = field(default_factory=list)
    notes: dict[str, int] = field(default_factory=dict)
    requests: int = 0
    receipts_told: int = 0
    broken_off: int = 0
    longest_s: float = 0.0  # of an exchange, on this machine
    starts: int = 0
    rows: int = 0


def order(kinds: Sequence[str], injections: int, chance: Random) -> list[str]:
    """Each kind as often as any other, give or take one, in an order of chance."""
    rounds = [kinds[number % len(kinds)] for number in range(injections)]
    chance.shuffle(rounds)
    return rounds


async def storm(
    template: Path, folder: Path, names: Sequence[str], *, seed: int, disk: bool = True,
    most_connections: int = 0, clients: int = 0, seconds: float = math.inf,
    tell=lambda line: None, strict: bool = True,
) -> Report:  # fmt: skip
    """The report of these injections, one after another.

    `strict`: the first finding ends the run with its AssertionError; else it is noted, and the run
    goes on on the same ledger. `most_connections`, `clients`: fewer of them than by default.
    `seconds`: after which no further injection begins.
    """
    report, checks = Report(seed=seed), Checks()
    ends = time.monotonic() + seconds
    async with rigged(template, folder, disk=disk) as rig:
        rig.most_connections, rig.clients = most_connections, clients
        for number, name in enumerate(names):
            begun = time.monotonic()
            if begun > ends:
                break
            try:
                back_s = await _inject(rig, checks, report, name, Random(f"{seed}/{number}"))
            except Exception as error:
                if strict:
                    error.add_note(f"seed {seed}, injection {number} of {len(names)}: {name}")
                    raise
                report.findings.append(f"{number} {name}: {type(error).__name__}: {error}")
                tell("".join(traceback.format_exception(error)))
                await _mended(rig)
            else:
                tell(f"{number} {name}: back in {back_s:.2f} s, {time.monotonic() - begun:.1f} s")
        if rig.disk is not None:
            rig.disk.well()
        rig.kill(15)
        try:
            checks.at_the_end(rig)
        except AssertionError as error:
            if strict:
                raise
            report.findings.append(f"at the end: {error}")
        report.notes, report.starts, report.rows = rig.notes, rig.starts, checks.rows
        log = rig.log.read_text()
        if "Traceback" in log:
            report.findings.append(f"the log has {log.count('Traceback')} tracebacks")
    return report


async def _inject(rig: Rig, checks: Checks, report: Report, name: str, chance: Random) -> float:
    async with Load(rig, chance.getrandbits(32), clients=rig.clients or CLIENTS) as load:
        await KINDS[name](rig, load, chance)
        back_s = await rig.back()
    told = load.told
    report.longest_s = max(report.longest_s, told.longest_s)
    report.requests += len(told.ids)
    report.receipts_told += len(told.receipts)
    report.broken_off += told.lost
    for status, count in told.statuses.items():
        report.statuses[status] = report.statuses.get(status, 0) + count
    report.back_s.setdefault(name, []).append(back_s)
    await checks.after(rig, told)
    if back_s > BACK_WITHIN_S:
        report.findings.append(f"{name}: back after {back_s:.2f} s")
    return back_s


async def _mended(rig: Rig) -> None:
    """After a finding: whatever has ended is started again, and the disk is well."""
    if rig.disk is not None:
        rig.disk.well()
    if rig.upstream is None or rig.upstream.poll() is not None:
        rig.start_upstream()
    await rig.plan(tokens=16)
    if not rig.alive():
        rig.start()
    await rig.back()
    await asyncio.sleep(1)
