"""What the instance writes is readable by its owner alone (SEC-1)."""

import os
import stat
import subprocess
import sys

from tests.server import ROOT


def test_the_ledger_the_console_and_the_secret_are_their_owners_alone(tmp_path):
    environment = os.environ | {"WEIGHBRIDGE_VAR": str(tmp_path / "var")}
    environment.pop("WEIGHBRIDGE_DB", None)
    for database in ("ledger", "default"):
        subprocess.run(
            [sys.executable, "manage.py", "migrate", "--database", database, "--verbosity", "0"],
            cwd=ROOT, env=environment, check=True, umask=0o022,
        )  # fmt: skip
    files = list((tmp_path / "var").iterdir())
    assert {"ledger.sqlite3", "console.sqlite3", "secret_key"} <= {file.name for file in files}
    for file in [*files, tmp_path / "var"]:
        assert stat.S_IMODE(file.stat().st_mode) & 0o077 == 0, file.name
