"""Commands, and a reader that leaves before the end (`… | head`)."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize(
    ("command", "unbuffered"), [("rates disagreements litellm=TABLE", "1"), ("operate --list", "")]
)
def test_a_list_whose_reader_is_gone_ends_quietly_and_not_as_if_it_had_been_read(
    tmp_path, command, unbuffered
):
    """At the first line that can't be written, and where all of it is written at the end."""
    table = tmp_path / "prices.json"
    table.write_text("{}")
    reading, writing = os.pipe()
    os.close(reading)
    try:
        ended = subprocess.run(
            [sys.executable, "manage.py", *command.replace("TABLE", str(table)).split()],
            cwd=ROOT,
            env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
            stdout=writing,
            stderr=subprocess.PIPE,
            check=False,
            timeout=60,
        )
    finally:
        os.close(writing)
    assert (ended.returncode, ended.stderr) == (141, b"")
