"""`manage.py calibrate`: a time model from receipts, with its backtest beside it (SIM-1)."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from gateway.management.outputs import because, refuse_outputs
from gateway.management.progress import progress_bar
from gateway.management.times import instant_us
from ledger.management.opened import opened
from ledger.queries.timings import Timing, completed_timings
from simulator.calibrate import (
    MIN_BACKTESTED_RECEIPTS,
    SPLITS,
    Calibration,
    backtest,
    calibrate,
    latest,
)
from simulator.calibration_file import calibration_json
from simulator.profiles import DEFAULT_PROFILE, PROFILES, profile
from simulator.receipts import QUANTILES, MetricError, Receipts, read_receipts
from simulator.report import write_whole
from simulator.scheduler import ReplicaConfig

ALL_TIME_US = 2**62
INTERRUPTED = 130


def receipts_of(timings: tuple[Timing, ...], source: str) -> Receipts:
    """The ledger's rows as columns; ValueError where there are none."""
    table = np.array(
        [
            (t.accepted_at_us, t.first_token_at_us, t.ended_at_us, t.input_tokens, t.output_tokens)
            for t in timings
        ],
        dtype=np.int64,
    ).reshape(-1, 5)
    if not len(table):
        raise ValueError(f"no completed receipt with a first token: {source}")
    return Receipts(
        source=source,
        arrival_us=table[:, 0],
        first_token_us=table[:, 1],
        last_token_us=table[:, 2],
        input_tokens=table[:, 3],
        output_tokens=table[:, 4],
    )


class Command(BaseCommand):
    help = "Fits a time model to the receipts of one route and judges it on receipts it never saw."
    requires_system_checks: tuple[str, ...] = ()

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--route", help="the route in the ledger; it stands for one replica")
        parser.add_argument("--from", dest="since", help="accepted at or after, ISO 8601")
        parser.add_argument("--until", help="accepted before, ISO 8601")
        parser.add_argument("--ledger", type=Path, help="another ledger file than the configured")
        parser.add_argument("--receipts", type=Path, help="a CSV or JSONL file instead of a ledger")
        parser.add_argument(
            "--profile", default=DEFAULT_PROFILE, help=", ".join(p.key for p in PROFILES)
        )
        parser.add_argument("--kv-blocks", type=int, help="of the replica, in blocks of 16 tokens")
        parser.add_argument("--max-num-seqs", type=int)
        parser.add_argument("--max-num-batched-tokens", type=int)
        parser.add_argument("--prefix-cache", action="store_true")
        parser.add_argument("--full-sequence-must-fit", action="store_true")
        parser.add_argument("--output", type=Path, help="a file that simulate --calibration reads")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            self._run(options)
        except OSError as error:
            raise CommandError(because(error)) from error
        except (ValueError, OverflowError) as error:
            raise CommandError(str(error)) from error
        except KeyboardInterrupt:
            raise CommandError("interrupted; nothing was written", returncode=INTERRUPTED) from None

    def _run(self, options: dict[str, Any]) -> None:
        ledger = None if options["receipts"] else options["ledger"] or settings.WEIGHBRIDGE_DB
        refuse_outputs(
            {"--output": options["output"]},
            {"--receipts": options["receipts"], "the ledger": ledger and Path(ledger)},
        )
        prior = profile(options["profile"])
        config = _config(prior.replica, options)
        if options["receipts"] is not None and self.stderr.isatty():
            self.stderr.write(f"reading {options['receipts']}", style_func=str)
        read = _receipts(options)
        if len(read) < MIN_BACKTESTED_RECEIPTS:
            raise ValueError(
                f"{read.source}: receipts {len(read)}, needed at least {MIN_BACKTESTED_RECEIPTS},"
                " because each backtest fits one half of them"
            )
        receipts = latest(read)
        used = f"the latest {len(receipts):,} of " if len(receipts) < len(read) else ""
        self.stdout.write(f"{used}{len(read):,} receipts from {receipts.source}")
        phases = 1 + len(SPLITS)
        with self._phase(f"fitting all (1 of {phases})") as progress:
            found = calibrate(receipts, config, prior.time, progress=progress)
        judged: dict[str, tuple[MetricError, ...]] = {}
        for number, split in enumerate(SPLITS, 2):
            with self._phase(f"backtest, {split} ({number} of {phases})") as progress:
                judged[split] = backtest(
                    receipts, config, prior.time, split, progress=progress
                ).held_out
        if options["output"] is not None:
            text = calibration_json(prior, config, found, receipts.source, judged)
            write_whole(options["output"], text)
        self._tell(found, judged)
        if options["output"] is not None:
            self.stdout.write(f"wrote {options['output']}")

    def _phase(self, what: str) -> AbstractContextManager[Callable[[float], None]]:
        """A bar on a terminal, a line elsewhere: the whole takes minutes."""
        if not self.stderr.isatty():
            self.stderr.write(what, style_func=str)
        return progress_bar(self.stderr, what)

    def _tell(self, found: Calibration, judged: dict[str, tuple[MetricError, ...]]) -> None:
        for name, factor in found.factors:
            self.stdout.write(f"  {name:<20} x {factor:.3f}")
        self.stdout.write(f"  outside the engine   {found.overhead_us / 1_000:.1f} ms")
        heads = ("error, %", "mean", *(f"p{100 * q:g}" for q in QUANTILES))
        self.stdout.write(f"{heads[0]:<36}" + "".join(f"{head:>8}" for head in heads[1:]))
        for name, errors in (("fitted", found.errors), *judged.items()):
            for error in errors:
                values = (error.mean_error, *error.quantile_errors)
                cells = "".join(f"{100 * value:+8.1f}" for value in values)
                self.stdout.write(f"{name + ': ' + error.metric.upper():<36}{cells}")


def _config(base: ReplicaConfig, options: dict[str, Any]) -> ReplicaConfig:
    names = ("kv_blocks", "max_num_seqs", "max_num_batched_tokens")
    given = {name: options[name] for name in names if options[name] is not None}
    flags = {name: True for name in ("prefix_cache", "full_sequence_must_fit") if options[name]}
    return replace(base, **given, **flags)


def _receipts(options: dict[str, Any]) -> Receipts:
    if options["receipts"] is not None:
        of_ledger = {"route": "route", "since": "from", "until": "until", "ledger": "ledger"}
        for key, name in of_ledger.items():
            if options[key] is not None:
                raise ValueError(f"--{name} is of the ledger: leave it or --receipts out")
        return read_receipts(options["receipts"])
    if not options["route"]:
        raise ValueError("name a --route of the ledger, or a file with --receipts")
    path = options["ledger"] or settings.WEIGHBRIDGE_DB
    with opened(path) as connection:
        timings = completed_timings(
            connection,
            options["route"],
            from_us=instant_us(options["since"]) if options["since"] else 0,
            until_us=instant_us(options["until"]) if options["until"] else ALL_TIME_US,
        )
    return receipts_of(timings, f"route {options['route']}")
