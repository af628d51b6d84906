"""Ledgers that are filled once for a module of tests and copied for each of them."""

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from ledger.store import Store
from ledger.writer import Projection
from tests.ledger_fixtures import without_log


def prebuilt(
    template: Path,
    folder: Path,
    fill: Callable[[Store], object],
    projections: Sequence[Projection] = (),
) -> Path:
    """A ledger in `folder` that `fill` has filled: one file, to be copied and never opened."""
    path = folder / "ledger.sqlite3"
    shutil.copyfile(template, path)
    with Store.open(path, projections=projections) as store:
        fill(store)
    without_log(path)
    return path
