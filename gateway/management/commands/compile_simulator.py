"""`manage.py compile_simulator`: the simulator's engine as machine code, at twice its speed."""

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from simulator import compiled

LIMIT_S = 900
LINE_CHARS = 240  # a compiler's command with all its options would fill the screen
SCRATCH = "building-"
READABLE_UMASK = 0o022  # whoever may run the source may run its machine code
# In a process of its own: mypyc ends the process that meets an error, and says why on stderr.
BUILD = """
import sys
from mypyc.build import mypycify
from setuptools import Distribution
group, build, out, *modules = sys.argv[1:]
made = mypycify(
    ["--config-file=", "--strict", *modules],
    group_name=group, target_dir=build, opt_level="1", debug_level="0",
)
command = Distribution({"name": group, "ext_modules": made}).get_command_obj("build_ext")
command.build_lib, command.build_temp = out, build
command.ensure_finalized()
command.run()
"""


class Command(BaseCommand):
    help = (
        "Compiles the simulator's engine with mypyc; it is used from the next start on, as long as "
        "the simulator's source stays as it is. Needs a C compiler and `make install-dev`."
    )
    requires_system_checks: tuple[str, ...] = ()

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--remove", action="store_true", help="go back to the source alone")

    def handle(self, *args: Any, **options: Any) -> None:
        place = compiled.folder()
        if options["remove"]:
            shutil.rmtree(place.parent, ignore_errors=True)
            self.stdout.write("The simulator runs from its source.")
        elif compiled.found() is None and build_into(place):
            self.stdout.write("Compiled: the simulator's engine runs as machine code from now on.")
        else:
            self.stdout.write("The simulator's engine is compiled already, from this source.")


def build_into(place: Path) -> bool:
    """Compile the engine and put the whole into its place at once; CommandError says what lacks.

    False if another has just done so: one at a time builds, the others wait.
    """
    try:
        with _alone_in(place.parent):
            if compiled.found() == place:
                return False
            _build_into(place)
            return True
    except OSError as problem:
        raise CommandError(f"not compiled: {problem}") from None


@contextmanager
def _alone_in(parent: Path) -> Iterator[None]:
    """Hold the folder's lock, and clear away what builds left that were killed."""
    parent.mkdir(exist_ok=True)
    parent.chmod(0o777 & ~READABLE_UMASK)
    held = os.open(parent, os.O_RDONLY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        for left in parent.glob(f"{SCRATCH}*"):
            shutil.rmtree(left, ignore_errors=True)
        yield
    finally:
        os.close(held)


def _build_into(place: Path) -> None:
    with tempfile.TemporaryDirectory(dir=place.parent, prefix=SCRATCH) as scratch:
        build, out = Path(scratch, "build"), Path(scratch, "out")
        modules = [f"simulator/{each}.py" for each in compiled.MODULES]
        digest = compiled.source_digest()
        try:
            ran = subprocess.run(  # noqa: S603 - arguments of our own
                [sys.executable, "-c", BUILD, compiled.GROUP, str(build), str(out), *modules],
                cwd=settings.BASE_DIR, capture_output=True, text=True, timeout=LIMIT_S,
                umask=READABLE_UMASK,
                env=os.environ | {"MYPYPATH": str(settings.BASE_DIR)},
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise CommandError(f"not compiled: it took longer than {LIMIT_S} s") from None
        if ran.returncode:
            raise CommandError(_why(ran.stdout + ran.stderr))
        whole = Path(scratch, "whole")
        shutil.copytree(out / "simulator", whole)
        for library in out.glob("*.so"):
            shutil.copy(library, whole)
        if compiled.source_digest() != digest:
            raise CommandError("not compiled: the simulator's source changed meanwhile; try again")
        (whole / compiled.MADE_FROM).write_bytes(compiled.stamp(whole, digest))
        (whole / compiled.MADE_FROM).chmod(0o666 & ~READABLE_UMASK)
        shutil.rmtree(place, ignore_errors=True)
        whole.rename(place)


def _why(said: str) -> str:
    """Return what an operator does about a build that failed; the build's last words beneath."""
    last = "\n".join(line[:LINE_CHARS] for line in said.strip().splitlines()[-4:])
    if "No module named" in said:
        advice = "mypyc and setuptools are needed: `make install-dev`"
    elif "No space left" in said:
        advice = "the disk is full"
    elif any(sign in said for sign in ("Python.h", "CompileError", "command '", "No such file")):
        advice = "a C compiler and Python's headers are needed: `apt-get install gcc python3-dev`"
    else:
        advice = "the simulator runs from its source as before"
    return f"not compiled: {advice}\n{last}"
