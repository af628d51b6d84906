"""Production settings, and the files that deploy them."""

import configparser
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def check(tmp_path: Path, **settings: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "manage.py", "check", "--deploy", "--fail-level", "WARNING"],
        cwd=ROOT, capture_output=True, text=True,
        env={**os.environ, "WEIGHBRIDGE_VAR": str(tmp_path), **settings},
    )  # fmt: skip


def test_production_settings_have_nothing_to_warn_of(tmp_path: Path):
    done = check(tmp_path, WEIGHBRIDGE_HTTPS="1", WEIGHBRIDGE_ALLOWED_HOSTS="gateway.example.org")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("name", "value"),
    [("WEIGHBRIDGE_HTTPS", "maybe"), ("WEIGHBRIDGE_TIME_SCALE", "0"),
     ("WEIGHBRIDGE_CONTROL", "sometimes"), ("WEIGHBRIDGE_WEBHOOK_URL", "ftp://x")],
)  # fmt: skip
def test_a_setting_that_cannot_be_used_stops_the_start_and_is_named(
    tmp_path: Path, name: str, value: str
):
    done = check(tmp_path, **{name: value})
    assert done.returncode != 0
    assert name in done.stderr.splitlines()[-1]


def test_the_container_copies_what_the_program_is_made_of():
    dockerfile = (ROOT / "Dockerfile").read_text()
    copied = set(re.findall(r"^COPY (\w+) \w+$", dockerfile, re.MULTILINE))
    assert copied == {"gateway", "ledger", "simulator", "templates"}
    assert "--require-hashes" in dockerfile and "USER weighbridge" in dockerfile


def test_the_unit_runs_the_commands_that_there_are():
    unit = (ROOT / "docs" / "deploy" / "weighbridge.service").read_text()
    commands = re.findall(r"^Exec\w+=.*manage\.py (\w+)", unit, re.MULTILINE)
    assert commands == ["check", "migrate", "migrate", "serve"]
    parser = configparser.RawConfigParser(strict=False)
    parser.optionxform = str  # type: ignore[assignment]  # systemd's names have capitals
    parser.read_string(unit)
    assert parser["Service"]["User"] == "weighbridge"
