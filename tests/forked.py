"""Python processes that start in a moment: each forked from one that has everything imported.

Most of a start is importing, the same for every server and every command. It is done once, in a
process of its own, the spring: `python -m tests.forked FD`. What is forked from it is a process as
any other: it has its own arguments, environment and open files, reads the settings and sets Django
up itself, ends by itself and can be killed. Only what the interpreter reads before its first
statement (PYTHONUNBUFFERED, LD_PRELOAD) is the spring's.
"""

import atexit
import contextlib
import ctypes
import fcntl
import functools
import gc
import importlib
import json
import os
import pkgutil
import runpy
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import django
from django.conf import settings
from django.db import connections
from django.utils.functional import empty

import gateway
from gateway.tokenizers import registry

ROOT = Path(__file__).resolve().parents[1]
PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG
ORDER_LIMIT_BYTES = 1 << 20
FILES_LIMIT = 8
START_SECONDS = 60
NOT_IMPORTED = {"gateway.asgi"}
NAMED_BY_SETTINGS = ("django.core.handlers.asgi", "uvicorn.lifespan.on", "uvloop")
TOKENIZER = "o200k_base/chat-1"  # of the demonstration's fleet: a second's reading
SPRING_SETTINGS = {"DJANGO_SETTINGS_MODULE": "gateway.settings", "WEIGHBRIDGE_SECRET_KEY": "none"}


@dataclass(slots=True, kw_only=True)
class Forked:
    """A started process, with what tests use of `subprocess.Popen`."""

    pid: int
    stdout: IO[str] | None
    returncode: int | None = None
    _end: socket.socket

    def poll(self) -> int | None:
        """The exit status, or None while it runs; -9: it was killed."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self.wait(timeout=0)
        return None

    def wait(self, timeout: float | None = None) -> int:
        """The exit status, once there is one. Raises subprocess.TimeoutExpired."""
        if self.returncode is None:
            self._end.settimeout(timeout)
            try:
                said = self._end.recv(16)
            except (TimeoutError, BlockingIOError):
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0) from None
            self.returncode = int(said)  # an empty one: the spring has ended, which it never may
            self._end.close()
        return self.returncode

    def terminate(self) -> None:
        self._send(signal.SIGTERM)

    def kill(self) -> None:
        self._send(signal.SIGKILL)

    def _send(self, number: int) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):  # it has just ended
                os.kill(self.pid, number)


def start(
    arguments: Sequence[str],
    *,
    env: Mapping[str, str],
    stdin: int | IO[Any] | None = None,
    stdout: int | IO[Any] | None = None,
    stderr: int | IO[Any] | None = None,
    more: Sequence[int] = (),
) -> Forked:
    """Start `python arguments…`, a script or `-m` and a module, in the project's folder.

    What isn't given is the null device; `stdout=subprocess.PIPE` is read at the process that is
    returned. The descriptors `more` are its 3, 4 and so on.
    """
    ours, theirs = socket.socketpair()
    pipe: tuple[int, int] | None = os.pipe() if stdout == subprocess.PIPE else None
    with theirs, open(os.devnull, "r+b", buffering=0) as null:
        files = [
            _descriptor(null if file is None else file)
            for file in (stdin, pipe[1] if pipe else stdout, stderr)
        ]
        order = {"arguments": list(arguments), "env": dict(env)}
        pid = _spring().ask(order, [*files, *more, theirs.fileno()])
    if pipe is None:
        return Forked(pid=pid, stdout=None, _end=ours)
    os.close(pipe[1])
    return Forked(pid=pid, stdout=os.fdopen(pipe[0]), _end=ours)


def run(
    arguments: Sequence[str],
    *,
    env: Mapping[str, str],
    given: str = "",
    timeout: float = START_SECONDS,
    check: bool = False,
) -> "subprocess.CompletedProcess[str]":
    """Run `python arguments…` to its end, with `given` as what it reads; both its outputs as text.

    `check`: raises subprocess.CalledProcessError where it fails.
    """
    with (
        tempfile.TemporaryFile("w+") as stdin,
        tempfile.TemporaryFile("w+") as stdout,
        tempfile.TemporaryFile("w+") as stderr,
    ):
        stdin.write(given)
        stdin.seek(0)
        process = start(arguments, env=env, stdin=stdin, stdout=stdout, stderr=stderr)
        try:
            process.wait(timeout)
        finally:
            process.kill()
        stdout.seek(0)
        stderr.seek(0)
        done = subprocess.CompletedProcess(
            list(arguments), process.wait(), stdout.read(), stderr.read()
        )
    if check:
        done.check_returncode()
    return done


def _descriptor(file: int | IO[Any]) -> int:
    return file if isinstance(file, int) else file.fileno()


class _Spring:
    """The process that everything is forked from, and the socket over which it is asked to."""

    def __init__(self) -> None:
        self._asking = threading.Lock()
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.forked", str(theirs.fileno())],
                cwd=ROOT,
                env={"PATH": os.environ["PATH"], **SPRING_SETTINGS},
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
            )
        atexit.register(self.close)

    def ask(self, order: dict[str, Any], files: list[int]) -> int:
        with self._asking:
            socket.send_fds(self._control, [json.dumps(order).encode()], files)
            return int(self._control.recv(16))

    def close(self) -> None:
        self._control.close()
        self._process.wait()


_spring = functools.cache(_Spring)


# What runs in the spring, and then in the process that is forked from it.


def main() -> None:
    import_all()
    forget_settings()
    gc.collect()
    gc.freeze()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the one who asked decides when it ends
    with socket.socket(fileno=int(sys.argv[1])) as control:
        order = orders(control)
    if order is not None:
        become(**order)


def import_all() -> None:
    """Set Django up and import everything but the server, whose clock begins when it's imported."""
    django.setup()
    for package in ("gateway", "ledger", "simulator"):
        for module in pkgutil.walk_packages([str(ROOT / package)], f"{package}."):
            if module.name not in NOT_IMPORTED and "__main__" not in module.name:
                importlib.import_module(module.name)
    for name in NAMED_BY_SETTINGS:
        importlib.import_module(name)
    registry.tokenizer(TOKENIZER)


def forget_settings() -> None:
    """Have the settings read anew, from its own environment, by what is forked."""
    for alias in connections:
        with contextlib.suppress(AttributeError):  # none was made
            del connections[alias]
    del connections.settings
    connections._settings = None  # type: ignore[attr-defined]  # its stub leaves it out
    settings._wrapped = empty
    del sys.modules["gateway.settings"], gateway.settings


def orders(control: socket.socket) -> dict[str, Any] | None:
    """Fork what is asked for. Returns what to `become` in the forked process; None at the end."""
    ends: dict[int, tuple[int, int]] = {}  # (process, where its end is told) by its descriptor
    with selectors.DefaultSelector() as waiting:
        waiting.register(control, selectors.EVENT_READ)
        while True:
            for key, _ in waiting.select():
                if key.fileobj is not control:
                    waiting.unregister(key.fd)
                    pid, end = ends.pop(key.fd)
                    _, status = os.waitpid(pid, 0)
                    with contextlib.suppress(BrokenPipeError):
                        os.write(end, str(os.waitstatus_to_exitcode(status)).encode())
                    os.close(key.fd)
                    os.close(end)
                    continue
                said, files, _, _ = socket.recv_fds(control, ORDER_LIMIT_BYTES, FILES_LIMIT)
                if not said:
                    return None
                pid = os.fork()
                if not pid:
                    return json.loads(said) | {"files": files[:-1]}
                for file in files[:-1]:
                    os.close(file)
                watched = os.pidfd_open(pid)
                ends[watched] = pid, files[-1]
                waiting.register(watched, selectors.EVENT_READ)
                control.send(str(pid).encode())


def become(files: list[int], arguments: list[str], env: dict[str, str]) -> None:
    """Be `python arguments…`, with these files as 0, 1, 2 and so on, and no other ones."""
    ctypes.CDLL(None).prctl(PARENT_DEATH_SIGNAL, signal.SIGKILL)  # none outlives the spring
    signal.signal(signal.SIGINT, signal.default_int_handler)
    kept = [fcntl.fcntl(file, fcntl.F_DUPFD, FILES_LIMIT) for file in files]
    for number, file in enumerate(kept):
        os.dup2(file, number)
    os.closerange(len(kept), os.sysconf("SC_OPEN_MAX"))
    os.environ.clear()
    os.environ.update(env)
    if arguments[0] == "-m":
        sys.argv = arguments[1:]
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = arguments
        runpy.run_path(str(ROOT / arguments[0]), run_name="__main__")


if __name__ == "__main__":
    main()
