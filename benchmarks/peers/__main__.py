"""`python -m benchmarks.peers`: the gateway beside others, over one upstream and the same loads.

Prints what it measured and writes var/bench/peers.json; docs/benchmarks.md says how and what of.
"""

import argparse
import os
import sys
import tempfile
from pathlib import Path

import msgspec
import uvloop

from benchmarks.peers import judging, paging, picturing
from benchmarks.peers.comparing import FULL, SHORT, Comparison, say
from benchmarks.peers.ours import ROOT
from benchmarks.peers.peers import PEERS
from benchmarks.peers.processes import prefer
from benchmarks.peers.values import OURS, RELAY, SIMULATED, Results
from simulator.report import write_whole

DESCRIPTION = (
    "Measures the gateway and its peers, one after the other, over the same upstream and loads. "
    "Prints the figures and writes var/bench/peers.json; docs/benchmarks.md says what they mean. "
    "Exits 1 where a ledger's books don't hold."
)
VAR = ROOT / "var" / "bench"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=DESCRIPTION)
    parser.add_argument(
        "--rounds", type=int, default=3, metavar="N", help="of every load (%(default)s)"
    )
    known = [peer.key for peer in PEERS]
    parser.add_argument(
        "--peers", nargs="*", choices=known, metavar="KEY", help=f"of {', '.join(known)} (all)"
    )
    parser.add_argument("--short", action="store_true", help="a smoke test: seconds, and no peer")
    parser.add_argument("--nice", type=int, default=0, help="priority of all that is measured (0)")
    parser.add_argument("--docs", type=Path, help="the folder whose benchmarks.md to renew")
    parser.add_argument("--from", dest="source", type=Path, help="tell an earlier run's JSON again")
    parser.add_argument(
        "--growth", type=int, metavar="RECEIPTS", help="how a ledger of so many slows it"
    )
    options = parser.parse_args()
    VAR.mkdir(parents=True, exist_ok=True)
    if options.nice:
        os.setpriority(os.PRIO_PROCESS, 0, options.nice)
        prefer(os.getpid(), options.nice)
    told = options.source.read_bytes() if options.source else None
    if options.growth:
        from benchmarks.peers import growing  # it fills a ledger with what tests have

        growth = (
            msgspec.json.decode(told, type=growing.Growth)
            if told
            else growing.measure(VAR, options.growth, options.rounds, options.nice)
        )
        growing.tell(growth, VAR, options.docs)
        sys.exit(any(books.problem for books in growth.books))
    results = msgspec.json.decode(told, type=Results) if told else measure(options)
    tell(results, options.docs)
    sys.exit(any(books.problem for books in results.books) or (options.short and _broken(results)))


def measure(options: argparse.Namespace) -> Results:
    loads, rounds = (SHORT, 1) if options.short else (FULL, options.rounds)
    named = options.peers
    if named is None:
        named = [] if options.short else [peer.key for peer in PEERS]
    keys = (OURS, SIMULATED, RELAY, *named)
    with tempfile.TemporaryDirectory(dir=VAR) as folder:
        run = Comparison(Path(folder), loads, rounds, options.nice)
        return uvloop.run(run.run(keys, before=not options.short))


def tell(results: Results, docs: Path | None) -> None:
    """Print the results; write JSON, and page and picture where there is a folder for them."""
    block = paging.figures(results)
    print(block)
    json = msgspec.json.format(msgspec.json.encode(results), indent=1).decode() + "\n"
    write_whole(VAR / "peers.json", json)
    if docs is not None:
        page = docs / "benchmarks.md"
        write_whole(page, paging.replaced(page.read_text(), block))
        write_whole(docs / "benchmarks.svg", picturing.picture(results))
        write_whole(docs / "benchmarks.json", json)
        say(f"written: {page.name}, benchmarks.svg, benchmarks.json")


def _broken(results: Results) -> bool:
    """Whether some load of a short run had no whole answer, or one that was not."""
    found = [
        judging.summary_of(results, key, load.name)
        for key in (OURS, SIMULATED)
        for load in results.loads
        if not (key == SIMULATED and load.pace_us)
    ]
    return any(each is None or each.failed for each in found)


if __name__ == "__main__":
    main()
