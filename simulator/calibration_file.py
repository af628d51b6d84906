"""A calibration as JSON text, and back: what `calibrate` writes and `simulate` reads.

`calibration_json` returns the text of a calibrated profile, `read_calibration` the profile.
Coefficients are whole picoseconds, so nothing is lost on the way.
"""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from simulator.calibrate import Calibration
from simulator.profiles import HeldOut, Profile
from simulator.receipts import QUANTILES, MetricError
from simulator.scheduler import ReplicaConfig
from simulator.timing import ObservedRange, TimeModel

SCHEMA = "weighbridge.calibration/1"
MAX_FILE_BYTES = 1_000_000


class CalibrationFileError(ValueError):
    """A file that isn't a calibration; the message names it and says why."""


def calibration_json(
    profile: Profile,
    config: ReplicaConfig,
    found: Calibration,
    source: str,
    backtests: dict[str, tuple[MetricError, ...]],
) -> str:
    """The text: model, replica, overhead, and the errors of the fit and of each backtest."""
    document = {
        "schema": SCHEMA,
        "model": profile.model,
        "accelerator": profile.accelerator,
        "prior": profile.key,
        "source": source,
        "receipts": found.requests,
        "overhead_us": found.overhead_us,
        "time": asdict(found.model),
        "replica": asdict(config),
        "fit": [asdict(error) for error in found.errors],
        "backtests": {
            split: [asdict(error) for error in errors] for split, errors in backtests.items()
        },
    }
    return json.dumps(document, sort_keys=True, indent=1) + "\n"


def read_calibration(path: Path) -> Profile:
    """The calibrated profile.

    Raises `CalibrationFileError` for anything else than such a file, OSError if unreadable.
    """
    with path.open("rb") as file:
        raw = file.read(MAX_FILE_BYTES + 1)
    try:
        if len(raw) > MAX_FILE_BYTES:
            raise ValueError(f"larger than {MAX_FILE_BYTES} bytes")
        document = json.loads(raw)
        if document["schema"] != SCHEMA:
            raise ValueError(f"its schema isn't {SCHEMA}")
        time = document["time"]
        model = TimeModel(
            **{
                **time,
                "breakpoints": tuple((int(x), int(y)) for x, y in time["breakpoints"]),
                "observed": ObservedRange(**time["observed"]) if time["observed"] else None,
            }
        )
        return Profile(
            key=path.name,
            model=str(document["model"]),
            accelerator=str(document["accelerator"]),
            time=replace(model, calibrated=True),
            replica=ReplicaConfig(**document["replica"]),
            basis="receipts",
            source=str(document["source"]),
            licence="one's own",
            kv_note="as configured",
            overhead_us=int(document["overhead_us"]),
            own=True,
            held_out=tuple(
                _held_out(split, error)
                for split, errors in document["backtests"].items()
                for error in errors
            ),
        )
    except (AttributeError, LookupError, TypeError, ValueError, RecursionError) as error:
        raise CalibrationFileError(f"{path.name} is not a calibration: {error}") from error


def _held_out(split: str, error: dict[str, Any]) -> HeldOut:
    return HeldOut(
        split=split,
        metric=str(error["metric"]),
        mean_error=float(error["mean_error"]),
        p99_error=float(error["quantile_errors"][QUANTILES.index(0.99)]),
    )
