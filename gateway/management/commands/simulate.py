"""`manage.py simulate TRACE`: what a load would see on so many replicas (SIM-1)."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from gateway.management.outputs import because, refuse_outputs
from gateway.management.progress import progress_bar
from gateway.simulated_policy import NAME, admission
from simulator.calibration_file import read_calibration
from simulator.capacity import MAX_SWEEP, Target, caveats, fewest, sweep
from simulator.profiles import DEFAULT_PROFILE, PROFILES, Profile, profile
from simulator.replay import MAX_REPLICAS, POLICIES, Replay, Scenario
from simulator.report import html_report, json_report, summary_table, write_whole
from simulator.timing import MAX_TRACE_US
from simulator.trace_files import read_trace
from simulator.traces import Trace
from simulator.workload import (
    AZURE_CONV_REQUESTS,
    MAX_RATE,
    MIN_RATE,
    generate_conversation_hour,
    scaled,
)

INTERRUPTED = 130


def replica_counts(text: str) -> list[int]:
    """The numbers of `replicas=1..8`, `replicas=1,2,4` or a mix; ValueError if it is neither."""
    name, _, spans = text.partition("=")
    counts: list[int] = []
    for span in spans.split(","):
        found = re.fullmatch(r"(\d{1,4})(?:\.\.(\d{1,4}))?", span.strip())
        if name.strip() != "replicas" or found is None:
            raise ValueError(f"--sweep {text!r}; write replicas=1..8 or replicas=1,2,4")
        low, high = int(found[1]), int(found[2] or found[1])
        counts += range(low, high + 1)
        if not 1 <= low <= high <= MAX_REPLICAS or len(counts) > MAX_SWEEP:
            raise ValueError(f"--sweep takes 1..{MAX_REPLICAS}, rising, {MAX_SWEEP} at most")
    return list(dict.fromkeys(counts))


class Command(BaseCommand):
    help = "Replays a request trace on simulated replicas and tells what its users would see."
    requires_system_checks: tuple[str, ...] = ()
    _written: tuple[Path, ...] = ()

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "trace",
            nargs="?",
            type=Path,
            help="CSV or JSONL, also .gz; without it, a generated hour of conversations",
        )
        parser.add_argument("--seed", type=int, help="of the generated hour; 1 if left out")
        parser.add_argument(
            "--requests", type=int, help=f"in that hour; {AZURE_CONV_REQUESTS} if left out"
        )
        parser.add_argument("--replicas", type=int, help="how many serve; 1 if left out")
        parser.add_argument("--sweep", help="replicas=1..8: one run for each number")
        parser.add_argument(
            "--profile",
            help=f"{', '.join(p.key for p in PROFILES)}; {DEFAULT_PROFILE} if left out",
        )
        parser.add_argument("--calibration", type=Path, help="a file that calibrate wrote")
        parser.add_argument("--policy", default="least-loaded", help=", ".join((*POLICIES, NAME)))
        parser.add_argument(
            "--scale",
            type=float,
            default=1.0,
            help="times the trace's rate; deadlines and cancels stay as long after arrival",
        )
        parser.add_argument(
            "--ttft-p99-ms",
            type=float,
            help="target: fewest replicas that meet it and complete 99%% of what callers let run",
        )
        parser.add_argument("--itl-p99-ms", type=float, help="target, as above")
        parser.add_argument("--html", type=Path, help="write the report with pictures here")
        parser.add_argument("--json", type=Path, help="write all numbers here, for machines")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            self._run(options)
        except OSError as error:
            raise CommandError(because(error)) from error
        except (ValueError, OverflowError) as error:
            raise CommandError(str(error)) from error
        except KeyboardInterrupt:
            written = " and ".join(str(path) for path in self._written) or "no report"
            raise CommandError(
                f"interrupted; {written} was written", returncode=INTERRUPTED
            ) from None

    def _run(self, options: dict[str, Any]) -> None:
        _check(options)
        counts = [1 if options["replicas"] is None else options["replicas"]]
        if options["sweep"] is not None:
            counts = replica_counts(options["sweep"])
        scenario = Scenario(
            trace=scaled(self._trace(options), options["scale"]),
            profile=_profile(options),
            replicas=counts[0],
            policy=options["policy"],
            routing=admission if options["policy"] == NAME else None,
        )
        with progress_bar(self.stderr, "simulating") as progress:
            runs = sweep(scenario, counts, progress)
        self._tell(runs, options)

    def _trace(self, options: dict[str, Any]) -> Trace:
        path = options["trace"]
        if path is None:
            seed, requests = options["seed"], options["requests"]
            return generate_conversation_hour(
                1 if seed is None else seed, AZURE_CONV_REQUESTS if requests is None else requests
            )
        if self.stderr.isatty():
            self.stderr.write(f"reading {path}", style_func=str)
        return read_trace(path, max_span_us=int(MAX_TRACE_US * options["scale"]))

    def _tell(self, runs: tuple[Replay, ...], options: dict[str, Any]) -> None:
        target = Target(ttft_p99_ms=options["ttft_p99_ms"], itl_p99_ms=options["itl_p99_ms"])
        asked = target.ttft_p99_ms is not None or target.itl_p99_ms is not None
        answer = fewest(runs, target) if asked else None
        reports: tuple[tuple[Path | None, Callable[[], str]], ...] = (
            (options["html"], lambda: html_report(runs, answer)),
            (options["json"], lambda: json_report(runs, answer)),
        )
        # Both are rendered before the first is written: between the writes nothing takes long.
        texts = [(path, text()) for path, text in reports if path is not None]
        for path, text in texts:
            write_whole(path, text)
            self._written = (*self._written, path)
        summary = runs[0].summary
        plural = "" if summary.requests == 1 else "s"
        self.stdout.write(f"{summary.requests:,} request{plural} from {summary.source}")
        # Each note stands in a line of its own, so neither the profile nor the answer repeats it.
        served_by = summary.profile
        for note in caveats(runs):
            served_by = served_by.removesuffix(f" ({note})")
        self.stdout.write(f"on {served_by}")
        for note in caveats(runs):
            self.stdout.write(f"note: {note}")
        rows = summary_table(runs)
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for row in rows:
            self.stdout.write("  ".join(f"{c:>{w}}" for c, w in zip(row, widths, strict=True)))
        if answer is not None:
            self.stdout.write(answer.sentence.partition(" [")[0])
        for path in self._written:
            self.stdout.write(f"wrote {path}")


def _check(options: dict[str, Any]) -> None:
    """Raise ValueError for what would otherwise be found out only after the simulation."""
    if options["sweep"] is not None and options["replicas"] is not None:
        raise ValueError("--sweep says how many replicas: leave --replicas out")
    if options["trace"] is not None:
        for name in ("seed", "requests"):
            if options[name] is not None:
                raise ValueError(f"--{name} is of the generated hour: leave it or the trace out")
    if options["calibration"] is not None and options["profile"] is not None:
        raise ValueError("--calibration names the replica: leave --profile out")
    if options["seed"] is not None and options["seed"] < 0:
        raise ValueError("--seed may not be negative")
    if not MIN_RATE <= options["scale"] <= MAX_RATE:
        raise ValueError(f"--scale takes a factor between {MIN_RATE} and {MAX_RATE:,}")
    policies = (*POLICIES, NAME)
    if options["policy"] not in policies:
        raise ValueError(f"no policy {options['policy']!r}; there are {', '.join(policies)}")
    for name in ("ttft_p99_ms", "itl_p99_ms"):
        if options[name] is not None and not 0 < options[name] < float("inf"):
            raise ValueError(f"--{name.replace('_', '-')} must be a positive number")
    refuse_outputs(
        {"--html": options["html"], "--json": options["json"]},
        {"the trace": options["trace"], "--calibration": options["calibration"]},
    )


def _profile(options: dict[str, Any]) -> Profile:
    if options["calibration"] is not None:
        return read_calibration(options["calibration"])
    return profile(options["profile"] or DEFAULT_PROFILE)
