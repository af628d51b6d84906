"""SQLite without its count of the memory that it hands out, for all connections of this process.

As it is built it takes a lock and adds up sums for every allocation, of which writing a receipt
takes forty. Nobody here asks for the sums, and without them a row is written in an eighth less
time. Where they are wanted (a limit of SQLite's heap), a connection that is open before this
module is imported keeps them.
"""

import _sqlite3
import ctypes

_MEMORY_STATUS = 9  # SQLITE_CONFIG_MEMSTATUS
_OK = 0


def stop_counting() -> bool:
    """Whether memory is not counted now. It still is where SQLite's own names are out of reach or a
    connection is open: the setting is taken only by a library that is shut down."""
    try:
        # The library that Python's module calls, and with the interpreter lock held all along.
        sqlite = ctypes.PyDLL(_sqlite3.__file__)
        used, allocate, free = (
            sqlite.sqlite3_memory_used,
            sqlite.sqlite3_malloc,
            sqlite.sqlite3_free,
        )
        shut_down, start = sqlite.sqlite3_shutdown, sqlite.sqlite3_initialize
        configure = sqlite.sqlite3_config
    except (OSError, AttributeError):  # a Python that has it built in, its names hidden
        return False
    used.restype, allocate.restype, free.argtypes = (
        ctypes.c_int64,
        ctypes.c_void_p,
        (ctypes.c_void_p,),
    )
    in_use = used() != 0
    sample = allocate(1)
    counted = used() != 0
    free(sample)
    if not counted or in_use:
        return not counted
    stopped = shut_down() == _OK and configure(_MEMORY_STATUS, 0) == _OK
    return bool(start() == _OK and stopped)
