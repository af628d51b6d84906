"""SIM-1: the engine in machine code gives its source's bytes, and stands for no other source."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from gateway.management.commands import compile_simulator
from simulator import compiled

ROOT = Path(__file__).resolve().parents[2]
WORKLOADS = 20_000 if os.environ.get("HYPOTHESIS_PROFILE") == "long" else 400
needs_it = pytest.mark.skipif(
    compiled.found() is None, reason="the engine isn't compiled from this source: `make compiled`"
)
SCRIPT = f"""
import hashlib
from simulator import engine
from simulator.batch import jobs_to_arrays, simulate
from tests.simulator.scheduling_cases import rows_of_result, seeded_case
from tests.simulator.test_shared_traces import SCRIPT
whole = hashlib.sha256()
for seed in range({WORKLOADS}):
    case = seeded_case(seed)
    rows = rows_of_result(simulate(jobs_to_arrays(case.jobs), case.config, case.model))
    whole.update(repr(rows).encode())
exec(SCRIPT)
print(whole.hexdigest(), engine.__file__)
"""


def copied(folder: Path, *, with_compiled: bool) -> Path:
    left_out = ["__pycache__", *([] if with_compiled else ["_compiled"])]
    shutil.copytree(
        ROOT / "simulator", folder / "simulator", ignore=shutil.ignore_patterns(*left_out)
    )
    return folder / "simulator"


def ran(script: str, before: Path | None = None) -> list[str]:
    path = [str(ROOT)] if before is None else [str(before), str(ROOT)]
    process = subprocess.run(
        [sys.executable, "-P", "-c", script],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path)},
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return process.stdout.split()


@needs_it
def test_compiled_or_from_its_source_the_engine_gives_the_same_bytes(tmp_path):
    copied(tmp_path, with_compiled=False)
    *from_source, source_file = ran(SCRIPT, tmp_path)
    *from_compiled, compiled_file = ran(SCRIPT)
    assert source_file == str(tmp_path / "simulator" / "engine.py")
    assert compiled_file == str(compiled.folder() / compiled.files()[2])
    assert from_compiled == from_source
    assert len(from_source) == 2


@needs_it
@pytest.mark.parametrize(
    "spoilt", ["source", "neighbour", "new", "library", "cut short", "made-from"]
)
def test_of_another_source_or_not_whole_nothing_compiled_is_imported(tmp_path, spoilt):
    package = copied(tmp_path, with_compiled=True)
    place = compiled.folder(package)
    assert compiled.found(package) == place
    if spoilt in ("source", "neighbour"):
        path = package / ("engine.py" if spoilt == "source" else "report.py")
        path.write_text(path.read_text() + "\n")
    elif spoilt == "new":
        (package / "another.py").touch()
    elif spoilt == "library":
        (place / compiled.files()[-1]).unlink()
    elif spoilt == "cut short":
        os.truncate(place / compiled.files()[0], 700_000)
    else:
        (place / compiled.MADE_FROM).write_text("")
    assert compiled.found(package) is None
    script = "from simulator import engine, timing; print(engine.__file__, timing.__file__)"
    assert ran(script, tmp_path) == [str(package / "engine.py"), str(package / "timing.py")]


def test_whole_but_made_for_another_system_the_source_runs(tmp_path):
    package = copied(tmp_path, with_compiled=False)
    place = compiled.folder(package)
    place.mkdir(parents=True)
    for each in compiled.files():
        (place / each).write_text("no library of this system")
    stamp = compiled.stamp(place, compiled.source_digest(package))
    (place / compiled.MADE_FROM).write_bytes(stamp)
    assert compiled.found(package) == place
    script = "from simulator import timing; print(timing.__file__)"
    assert ran(script, tmp_path) == [str(package / "timing.py")]


def test_what_a_killed_build_left_is_cleared_away_by_the_next(tmp_path, monkeypatch):
    monkeypatch.setattr(compile_simulator, "BUILD", "raise SystemExit(1)")
    parent = tmp_path / "_compiled"
    (parent / f"{compile_simulator.SCRATCH}left" / "build").mkdir(parents=True)
    with pytest.raises(CommandError, match="not compiled: "):
        compile_simulator.build_into(parent / "this")
    assert list(parent.iterdir()) == []


@needs_it
def test_whoever_may_run_the_source_may_run_what_was_compiled():
    place = compiled.folder()
    paths = [place.parent, place, *place.iterdir()]
    assert [path.name for path in paths if not path.stat().st_mode & 0o004] == []


@pytest.mark.parametrize(
    ("fault", "advice"),
    [
        ("import a_module_that_is_nowhere", "`make install-dev`"),
        ("raise SystemExit(\"CompileError: Command '['/bin/false', '-c']'\")", "a C compiler and"),
        ("raise SystemExit(\"error: command '/usr/bin/cc' failed\")", "a C compiler and Python's"),
        (
            "raise SystemExit(\"No space left on device, error: command '/usr/bin/cc' failed\")",
            "the disk is full",
        ),
        ("raise SystemExit('simulator/kv.py:1: error: odd')", "from its source as before"),
    ],
)
def test_a_build_that_fails_says_what_it_lacks_and_leaves_nothing(
    tmp_path, monkeypatch, fault, advice
):
    monkeypatch.setattr(compile_simulator, "BUILD", fault)
    place = tmp_path / "_compiled" / "this"
    with pytest.raises(CommandError, match="not compiled: ") as told:
        compile_simulator.build_into(place)
    assert advice in str(told.value)
    assert list(place.parent.iterdir()) == []


def test_where_nothing_can_be_written_the_command_says_so(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(CommandError, match=r"not compiled: .*file"):
        compile_simulator.build_into(tmp_path / "file" / "_compiled" / "this")


@needs_it
def test_what_is_compiled_already_is_not_compiled_again(capsys):
    call_command("compile_simulator")
    assert "compiled already" in capsys.readouterr().out
