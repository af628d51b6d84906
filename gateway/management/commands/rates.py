"""`manage.py rates list | show | diff | history | try | import | disagreements | publish`."""

import csv
import sqlite3
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

import msgspec
from django.conf import settings
from django.core.management.base import CommandError, CommandParser

from gateway.clock import SystemClock
from gateway.configuration import places_in_force
from gateway.fleet_file.named import instant, named
from gateway.fleet_file.toml_text import written
from gateway.management.performing import PerformingCommand
from gateway.management.rate_text import change_lines, history_lines, trial_lines
from gateway.operations.rates import KIND, DraftRates, PublishRates, latest_version, rates_of
from gateway.price_history import price_history
from ledger.management.opened import readable
from ledger.money import units_text
from ledger.prices import FORMATS, READERS, Imported, LeftOut, disagreements, rate_table
from ledger.queries import configuration as stored
from ledger.queries import drafts
from ledger.queries.archives import archives_of_period
from ledger.queries.what_if import served
from ledger.rate_changes import changes, laid_over
from ledger.rates import RateTable
from ledger.reading import reader
from ledger.spreadsheets import safe_cell
from ledger.what_if import tried
from ledger.zones import days, parse_zone

GROUPINGS = ("model", "route", "tenant")
LEFT_OUT_SHOWN = 20


class Command(PerformingCommand):
    help = (
        "Rate tables: list, show and compare them, a price's history, what past traffic would have "
        "cost, and public price tables read into a draft. Exits 1 where something is refused."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        what = parser.add_subparsers(dest="what", required=True)
        what.add_parser("list", help="published versions, then drafts")
        what.add_parser("show", help="one as TOML").add_argument("version")
        diff = what.add_parser("diff", help="what differs between two, price by price")
        diff.add_argument("before")
        diff.add_argument("after")
        past = what.add_parser("history", help="what a key has cost, and since when")
        past.add_argument("key", help="a route_id, an identity_id, a public name, or a model")
        trial = what.add_parser("try", help="what past traffic would have cost by a version")
        trial.add_argument("version", help="published or drafted")
        trial.add_argument("--first", required=True, type=_day, help="a day, 2026-11-01")
        trial.add_argument("--last", required=True, type=_day, help="a day, inclusive")
        trial.add_argument("--zone", default="UTC", help="of the days; UTC")
        trial.add_argument("--by", nargs="+", choices=GROUPINGS, default=["model", "route"])
        taken = what.add_parser("import", help="a public price table into a draft")
        taken.add_argument("format", choices=FORMATS)
        taken.add_argument("file", type=Path)
        taken.add_argument("--version", required=True, dest="named", help="the draft's name")
        chosen = taken.add_mutually_exclusive_group(required=True)
        chosen.add_argument(
            "--price",
            action="append",
            metavar="KEY=NAME",
            help="price a route_id or identity_id as the table prices exactly this model",
        )
        chosen.add_argument("--all", action="store_true", help="every model, under its own name")
        taken.add_argument(
            "--over",
            metavar="VERSION",
            help="keep the prices of this version for every other key; else the draft, which is a "
            "whole table, prices nothing but what is imported",
        )
        taken.add_argument("--left-out", type=Path, help="a CSV of everything no rate holds")
        taken.add_argument(
            "--currency", help="take a US dollar for one of these; of a ledger in another currency"
        )
        taken.add_argument("--note", default="")
        apart = what.add_parser("disagreements", help="models that public tables price differently")
        apart.add_argument("tables", nargs="+", metavar="FORMAT=FILE")
        publish = what.add_parser("publish", help="a draft, from a time on")
        publish.add_argument("version")
        publish.add_argument("--based-on", help="the last published version that you looked at")
        publish.add_argument("--reason", required=True)

    def handle(self, *args: Any, **options: Any) -> None:
        if options["what"] == "disagreements":
            self._disagreements(options)
            return
        with readable(settings.WEIGHBRIDGE_DB):
            connection = reader(settings.WEIGHBRIDGE_DB)
            getattr(self, f"_{options['what']}")(connection, options)

    def _list(self, connection: sqlite3.Connection, options: dict[str, Any]) -> None:
        for each in stored.rate_tables(connection):
            when = instant(each.effective_from_us).isoformat(timespec="seconds")
            self.stdout.write(f"{each.version}  from {when}  {each.published_by}")
        for draft in drafts.drafts(connection, KIND):
            based = f" on {draft.based_on}" if draft.based_on else ""
            self.stdout.write(f"{draft.name}  draft {draft.revision}{based}  {draft.drafted_by}")

    def _show(self, connection: sqlite3.Connection, options: dict[str, Any]) -> None:
        self.stdout.write(written(named(_known(connection, options["version"]))), ending="")

    def _diff(self, connection: sqlite3.Connection, options: dict[str, Any]) -> None:
        before = _known(connection, options["before"])
        after = _known(connection, options["after"])
        for line in change_lines(changes(before, after)):
            self.stdout.write(line)

    def _history(self, connection: sqlite3.Connection, options: dict[str, Any]) -> None:
        found = price_history(connection, options["key"])
        if not found.known:
            like = f"; there is {', '.join(found.nearest)}" if found.nearest else ""
            raise CommandError(
                f"Nothing is called {found.name!r}: no route, identity, model or priced key{like}."
            )
        if not found.by_key:
            self.stdout.write(f"{found.name} never had a price; requests of it are unpriced.")
        for key, spans in found.by_key:
            if found.title(key):
                self.stdout.write(f"{found.title(key)}:")
            for line in history_lines(spans):
                self.stdout.write(line)

    def _try(self, connection: sqlite3.Connection, options: dict[str, Any]) -> None:
        table = _known(connection, options["version"])
        try:
            period = days(options["first"], options["last"], parse_zone(options["zone"]))
        except ValueError as problem:
            raise CommandError(f"{problem}.") from None
        files = archives_of_period(connection, period.start_us, period.end_us)
        if files:
            self.stderr.write(f"Not tried: requests of these days are in {', '.join(files)}.")
        found = tried(
            table,
            served(connection, period.start_us, period.end_us),
            tuple(options["by"]),
            places=places_in_force(connection),
        )
        for line in trial_lines(found, table.currency):
            self.stdout.write(line)

    def _import(self, connection: sqlite3.Connection, options: dict[str, Any]) -> None:
        imported = _imported(options["format"], options["file"])
        wanted = None if options["all"] else _pairs(options["price"])
        try:
            table = rate_table(
                imported, version=options["named"], effective_from_us=0, names=wanted
            )
        except LookupError as problem:
            raise CommandError(f"{problem.args[0]}; write a model as the table does.") from None
        table = msgspec.structs.replace(
            table, currency=_currency(connection, table.currency, options["currency"])
        )
        if options["over"] is not None:
            table = laid_over(_known(connection, options["over"]), table)
        names = None if wanted is None else {imported.aliases.get(n, n) for n in wanted.values()}
        left = [each for each in imported.left_out if names is None or each.key in names]
        if options["left_out"] is not None:
            _write_left_out(options["left_out"], left)
        for each in left[:LEFT_OUT_SHOWN]:
            self.stderr.write(f"left out: {each.key} {each.field} {each.value}: {each.why}")
        if len(left) > LEFT_OUT_SHOWN:
            self.stderr.write(f"and {len(left) - LEFT_OUT_SHOWN} more; --left-out lists them all")
        self._tell_lost(connection, table)
        tree = named(table)
        tree.pop("effective_from_us", None)
        self.perform(DraftRates(version=table.version, table=tree, note=options["note"]))

    def _tell_lost(self, connection: sqlite3.Connection, table: RateTable) -> None:
        """Say on stderr what a draft would leave without a price."""
        latest = latest_version(connection)
        before = None if latest is None else rates_of(connection, latest)
        lost = {rate.key for rate in before.rates} if before else set()
        lost -= {rate.key for rate in table.rates}
        if lost:
            keys = "1 key" if len(lost) == 1 else f"{len(lost)} keys"
            self.stderr.write(
                f"A draft is the whole table: {keys} of {latest} would have no price; "
                f"--over {latest} keeps them."
            )

    def _disagreements(self, options: dict[str, Any]) -> None:
        tables = {
            kind: _imported(kind, Path(path)) for kind, path in _pairs(options["tables"]).items()
        }
        rows = csv.writer(self.stdout, lineterminator="\n")
        rows.writerow(("provider", "model", "meter", *tables))
        for each in disagreements(tables, SystemClock().now_us()):
            prices = [
                units_text(each.prices[kind] * 10**6) if kind in each.prices else ""
                for kind in tables
            ]
            named = (safe_cell(each.provider), safe_cell(each.model), each.meter)
            rows.writerow((*named, *prices))

    def _publish(self, connection: sqlite3.Connection, options: dict[str, Any]) -> None:
        self.perform(
            PublishRates(
                version=options["version"],
                based_on=options["based_on"],
                reason=options["reason"],
            )
        )


def _write_left_out(path: Path, left: Sequence[LeftOut]) -> None:
    try:
        with path.open("w", newline="", encoding="utf-8") as file:
            rows = csv.writer(file)
            rows.writerow(("model", "field", "value", "why"))
            for each in left:
                told = (each.key, each.field, each.value, each.why)
                rows.writerow([safe_cell(cell) for cell in told])
    except OSError as problem:
        raise CommandError(f"{path} can't be written: {problem.strerror}.") from problem


def _known(connection: sqlite3.Connection, version: str) -> RateTable:
    table = rates_of(connection, version)
    if table is None:
        raise CommandError(f"There is no rate table or draft {version!r}; see `rates list`.")
    return table


def _imported(kind: str, path: Path) -> Imported:
    if kind not in READERS:
        raise CommandError(f"{kind!r} is no format; there are {', '.join(FORMATS)}.")
    try:
        return READERS[kind](path.read_bytes())
    except OSError as problem:
        raise CommandError(f"{path} can't be read: {problem.strerror}.") from problem
    except ValueError as problem:
        raise CommandError(f"{path}: {problem}.") from problem


def _currency(connection: sqlite3.Connection, public: str, said: str | None) -> str:
    """The currency of a draft: the public table's, or the ledger's where that is said."""
    published = stored.rate_tables(connection)
    ours = published[0].currency if published else said or public
    if ours != (said or public):
        raise CommandError(
            f"The prices are in {public} and this ledger is in {ours}; "
            f"--currency {ours} takes one {public} for one of those."
        )
    return ours


def _pairs(given: list[str]) -> dict[str, str]:
    pairs = dict(each.split("=", 1) for each in given if "=" in each)
    if len(pairs) < len(given):
        raise CommandError("Write each as KEY=NAME, and each key once.")
    return pairs


def _day(text: str) -> date:
    return date.fromisoformat(text)
