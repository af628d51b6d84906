"""`python -m tests.faults.spring FD [CACHE_KIB]`: servers that start in a moment, one by one.

Half of a start is importing, which no fault can touch: it is done once, here, and each server is a
process forked from this one. It imports gateway.asgi itself, so that its clock begins when it does.
A command a line: `start` answers with a process id, `wait PID` and `poll PID` with its status.
"""

import ctypes
import gc
import os
import signal
import socket
import sqlite3
import sys
import traceback
import warnings

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "gateway.settings")
import aiohttp
import django
import uvicorn
import uvloop

# Open before the ledger is imported, so that SQLite goes on counting memory: its limit needs that.
COUNTED = sqlite3.connect(":memory:") if len(sys.argv) > 2 else None

django.setup()

import gateway.pages.acting  # noqa: E402 - Django has to be set up first
import gateway.runtime  # noqa: E402
import gateway.urls  # noqa: E402
from gateway.api.application import api_application  # noqa: E402
from gateway.connections import server_config  # noqa: E402
from gateway.tokenizers import tokenizer  # noqa: E402
from ledger import writer  # noqa: E402
from tests.faults.rig import TOKENIZER  # noqa: E402

PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG
IMPORTED = (aiohttp, uvloop, gateway.pages.acting, gateway.runtime, gateway.urls, api_application)


def main() -> None:
    tokenizer(TOKENIZER)
    if len(sys.argv) > 2:  # the ledger's cached pages, so that a soak finds their room full
        writer.CACHE_KIB = int(sys.argv[2])
        limit = ctypes.CDLL("libsqlite3.so.0").sqlite3_soft_heap_limit64
        limit(ctypes.c_int64(2 * writer.CACHE_KIB << 10))
    gc.freeze()
    print("ready", flush=True)
    for line in sys.stdin:
        command, _, number = line.strip().partition(" ")
        if command == "start":
            answer: int | None = os.fork() or serve(int(sys.argv[1]))
        else:
            found, status = os.waitpid(int(number), os.WNOHANG if command == "poll" else 0)
            answer = os.waitstatus_to_exitcode(status) if found else None
        print(answer, flush=True)


def serve(listening: int) -> int:
    """Be a server until the end of the process: never returns."""
    ctypes.CDLL(None).prctl(PARENT_DEATH_SIGNAL, signal.SIGKILL)  # none outlives its run
    os.dup2(2, 1)
    warnings.simplefilter("ignore")
    status = 1
    try:
        server = uvicorn.Server(server_config(access_log=False))
        server.run(sockets=[socket.socket(fileno=listening)])
        status = 0 if server.started else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    main()
