import sqlite3
import subprocess
import sys
from contextlib import closing

from ledger.allocation import stop_counting

FRESH = """
import sqlite3, ctypes, _sqlite3
{before}
from ledger.allocation import stop_counting
first = stop_counting()
kept = sqlite3.connect(":memory:")
kept.execute("CREATE TABLE t (x)")
used = ctypes.PyDLL(_sqlite3.__file__).sqlite3_memory_used
used.restype = ctypes.c_int64
print(first, stop_counting(), used() == 0, kept.execute("SELECT count(*) FROM t").fetchall())
"""


def said(before: str) -> str:
    script = FRESH.format(before=before)
    return subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True
    ).stdout.strip()


def test_memory_is_counted_no_more_and_asking_again_leaves_open_connections_alone() -> None:
    assert said("") in ("True True True [(0,)]", "False False False [(0,)]")  # out of reach


def test_a_connection_that_is_open_already_is_left_alone_and_counted_for() -> None:
    assert said('early = sqlite3.connect(":memory:")') == "False False False [(0,)]"


def test_this_process_can_ask_at_any_time() -> None:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("CREATE TABLE t (x)")
        stop_counting()
        assert connection.execute("SELECT count(*) FROM t").fetchall() == [(0,)]
