"""`manage.py` when Ctrl-C comes before any command runs."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def test_ctrl_c_while_settings_load_is_one_line_and_status_130(tmp_path):
    (tmp_path / "halted.py").write_text("raise KeyboardInterrupt\n")
    ended = subprocess.run(
        [sys.executable, str(ROOT / "manage.py"), "simulate"],
        env={**os.environ, "PYTHONPATH": str(tmp_path), "DJANGO_SETTINGS_MODULE": "halted"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "interrupted\n")
