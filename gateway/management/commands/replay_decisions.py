"""`manage.py replay_decisions`: decisions made again, by the same or other rules (RTE-3, RTE-4)."""

from itertools import chain
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from gateway.fleet_file.document import Fleet, read_fleet
from gateway.management.times import instant_us
from gateway.policy.comparing import Comparison
from gateway.policy.counterfactual import Side, Summary
from gateway.replaying import NotInLedger, Other, Replayer, Tally, tally
from ledger.management.opened import readable
from ledger.money import units_text
from ledger.reading import reader

SHOWN = 5
MOVES_SHOWN = 20


class Command(BaseCommand):
    help = (
        "Makes recorded decisions again from the ledger alone and compares them byte for byte, "
        "those about retries, fallbacks and hedges too. "
        "Prints how many were identical; exits 1 on any difference and names the first ones. "
        "Decisions of another revision of the code are counted as not comparable. With --policy or "
        "--rates: what the same requests would have come to under those."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--request", metavar="ID", help="only the decision of this request")
        parser.add_argument("--from", dest="since", metavar="TIME", help="decided from then on")
        parser.add_argument("--to", dest="until", metavar="TIME", help="decided before then")
        parser.add_argument(
            "--policy", metavar="REVISION|FILE", help="by this policy, or a fleet file's"
        )
        parser.add_argument(
            "--rates", metavar="VERSION|FILE", help="by this rate table, or a fleet file's last"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        with readable(settings.WEIGHBRIDGE_DB):
            self._replay(options)

    def _replay(self, options: dict[str, Any]) -> None:
        try:
            replayer = Replayer(reader(settings.WEIGHBRIDGE_DB))
            since_us, until_us = (_instant(options[name]) for name in ("since", "until"))
            if options["policy"] or options["rates"]:
                if options["request"]:
                    raise CommandError(
                        "For one request ask GET /api/v1/requests/ID/decision?policy=REVISION."
                    )
                other = _other(replayer, options["policy"], options["rates"])
                summary = replayer.counterfactual(other, since_us=since_us, until_us=until_us)
                self.stdout.write("\n".join(described(summary)))
                return
            result = self._replayed(replayer, options["request"], since_us, until_us)
        except NotInLedger as error:
            raise CommandError(str(error)) from error
        self.stdout.write(
            f"{_counted(result.total)} replayed: {result.identical:,} identical, "
            f"{result.different:,} different, {result.not_comparable:,} not comparable "
            "(decided by another code revision)."
        )
        if result.different:
            shown = "\n".join(_described(each) for each in result.first_different)
            verb = "differs" if result.different == 1 else "differ"
            first = f", the first {SHOWN} of them" if result.different > SHOWN else ""
            raise CommandError(f"{_counted(result.different)} {verb}{first}:\n{shown}")

    def _replayed(
        self,
        replayer: Replayer,
        request_id: str | None,
        since_us: int | None,
        until_us: int | None,
    ) -> Tally:
        if request_id is None:
            every = replayer.all(since_us=since_us, until_us=until_us)
            return tally(chain(every, replayer.steps()), keep=SHOWN)
        comparison = replayer.one(request_id)
        if comparison is None:
            raise CommandError(f"The ledger has no decision of request {request_id!r}.")
        return tally(chain([comparison], replayer.steps(request_id)), keep=SHOWN)


WRITTEN = (
    "Name a revision of `manage.py policy list`, a version of `manage.py rates list`, or a file "
    "of a fleet."
)


def described(summary: Summary) -> list[str]:
    """Returns a counterfactual as lines: the recorded side, the other, and who moved."""
    before, after = summary.before, summary.after
    rows = [
        ("accepted", f"{before.accepted:,}", f"{after.accepted:,}"),
        ("degraded", f"{before.degraded:,}", f"{after.degraded:,}"),
        *(("TTFT " + name, *_both(before, after, f"ttft_{name}_us")) for name in ("p50", "p95")),
        *(("e2e " + name, *_both(before, after, f"e2e_{name}_us")) for name in ("p50", "p95")),
        ("estimated cost", units_text(before.cost_pico), units_text(after.cost_pico)),
        ("without a price", f"{before.unpriced:,}", f"{after.unpriced:,}"),
        *_counts("route", before.routes, after.routes),
        *_counts("rejected", before.rejections, after.rejections),
    ]
    lines = [f"{_counted(summary.decisions)}; predicted latencies are of the accepted ones."]
    if summary.other_code:
        lines.append(f"{summary.other_code:,} were decided by another revision of the code.")
    if summary.unreadable:
        lines.append(f"{summary.unreadable:,} more can't be made again: an input is missing.")
    lines.append(f"{'':40}{'recorded':>16}{'would be':>16}")
    lines += [f"{name:40}{here:>16}{there:>16}" for name, here, there in rows]
    if not summary.moved:
        lines.append("No request would have gone elsewhere.")
    lines += [f"{n:>8,}  {here} -> {there}" for here, there, n in summary.moved[:MOVES_SHOWN]]
    if len(summary.moved) > MOVES_SHOWN:
        lines.append(f"and {len(summary.moved) - MOVES_SHOWN:,} kinds of move more")
    return lines


def _both(before: Side, after: Side, name: str) -> tuple[str, str]:
    values_us = (getattr(before, name), getattr(after, name))
    here, there = ("-" if each is None else f"{each / 1_000:,.1f} ms" for each in values_us)
    return here, there


def _counts(
    kind: str, before: tuple[tuple[str, int], ...], after: tuple[tuple[str, int], ...]
) -> list[tuple[str, str, str]]:
    here, there = dict(before), dict(after)
    return [
        (f"{kind} {name}", f"{here.get(name, 0):,}", f"{there.get(name, 0):,}")
        for name in sorted(here.keys() | there.keys())
    ]


def _other(replayer: Replayer, policy: str | None, rates: str | None) -> Other:
    """Returns the rules that the options name: each a revision in the ledger, or a fleet file."""
    policy_file, rates_file = _file(policy), _file(rates)
    if policy_file is not None and policy_file.policy is None:
        raise CommandError(f"{policy} has no [policy].")
    if rates_file is not None and not rates_file.rate_tables:
        raise CommandError(f"{rates} has no [[rate_tables]].")
    try:
        return Other(
            policy=policy_file.policy
            if policy_file is not None
            else (None if policy is None else replayer.policy(policy)),
            rates=rates_file.rate_tables[-1]
            if rates_file is not None
            else (None if rates is None else replayer.rates(rates)),
        )
    except NotInLedger as error:
        raise CommandError(f"{error} {WRITTEN}") from error


def _file(name: str | None) -> Fleet | None:
    if name is None or not Path(name).is_file():
        return None
    reading = read_fleet(Path(name).read_text())
    if reading.fleet is None:
        raise CommandError(f"{name}:\n" + "\n".join(reading.problems))
    return reading.fleet


def _instant(text: str | None) -> int | None:
    try:
        return None if text is None else instant_us(text)
    except ValueError as problem:
        raise CommandError(str(problem)) from problem


def _counted(number: int) -> str:
    return f"{number:,} decision{'' if number == 1 else 's'}"


def _described(comparison: Comparison) -> str:
    lines = "\n".join(f"    {line}" for line in comparison.differences)
    return f"  {comparison.request_id}\n{lines}"
