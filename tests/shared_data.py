"""Where the shared measurement files are; nothing of them is copied into this repository."""

import os
from pathlib import Path

import pytest

_BESIDE = Path(__file__).resolve().parents[2] / "shared"


def shared_data_path(*parts: str) -> Path:
    """The path of a shared data file; skips the test, with the reason, where it is absent.

    Looked for under `$WEIGHBRIDGE_SHARED/data`, or `../shared/data` beside the repository.
    """
    root = Path(os.environ.get("WEIGHBRIDGE_SHARED", _BESIDE))
    path = root.joinpath("data", *parts)
    if not path.exists():
        pytest.skip(f"shared data absent: {'/'.join(parts)} (set WEIGHBRIDGE_SHARED)")
    return path
