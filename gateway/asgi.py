"""The server's front door: the API goes straight to its ASGI application, pages go to Django.

Django's handler has no lifespan, so the data plane's start and stop are here.
"""

import gc
import os
import sqlite3
import sys
from collections.abc import Awaitable, Callable, MutableMapping
from pathlib import Path
from typing import Any, cast

from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "gateway.settings")
django_application: Any = get_asgi_application()  # Django's ASGI types are narrower than ASGI's

from django.conf import settings

from gateway.api.application import api_application, handles
from gateway.api.ports import Ports
from gateway.clock import SystemClock
from gateway.pages.body_limit import within_limit
from gateway.runtime import SWITCH_SECONDS, Runtime
from ledger.errors import WRITE_FAULTS, write_fault_of

# A request leaves nothing behind that only the collector could free: it may look seldom.
GC_THRESHOLDS = (10_000, 20, 50)

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

runtime = Runtime(
    ledger=settings.WEIGHBRIDGE_DB,
    clock=SystemClock(),
    secret=settings.SECRET_KEY,
    time_scale=settings.TIME_SCALE,
)
# The API hands back to a journey only the runs that it got from it, so its narrower type is safe.
api = api_application(cast(Ports, runtime), body_limit_bytes=settings.BODY_LIMIT_BYTES)


async def application(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "lifespan":
        await _lifespan(receive, send)
    elif scope["type"] == "http" and handles(scope["path"]):
        await api(scope, receive, send)
    else:
        await within_limit(django_application, scope, receive, send)


async def _lifespan(receive: Receive, send: Send) -> None:
    await receive()
    try:
        await runtime.start()
    except sqlite3.Error as problem:
        fault = write_fault_of(problem)
        what = f"The ledger {settings.WEIGHBRIDGE_DB} can't be written: {fault}: {problem}"
        message = f"{what}; {WRITE_FAULTS[fault]}"
        await send({"type": "lifespan.startup.failed", "message": message})
        return
    except Exception as problem:  # whatever it is, the server must say it and not start
        await send({"type": "lifespan.startup.failed", "message": str(problem)})
        return
    console = _held_open(settings.WEIGHBRIDGE_CONSOLE_DB)
    # What the start made stays. A full collection would walk it, for 50 ms in which nobody is
    # served; frozen, only what requests leave behind is looked at.
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    sys.setswitchinterval(SWITCH_SECONDS)
    await send({"type": "lifespan.startup.complete"})
    await receive()
    await runtime.stop()
    if console is not None:
        console.close()
    await send({"type": "lifespan.shutdown.complete"})


def _held_open(console: Path) -> sqlite3.Connection | None:
    """A connection that keeps the console's write-ahead log beside its file; None where it can't.

    Without one the log goes with each page's connection and is made again by the next. On a full
    disk it couldn't be, and no page could say that the disk is full.
    """
    if not console.exists():
        return None
    try:
        connection = sqlite3.connect(console, isolation_level=None)
        connection.execute("SELECT 1 FROM sqlite_master").fetchall()
    except sqlite3.Error:
        return None
    return connection
