"""A progress bar on a terminal, and silence elsewhere."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

BAR_WIDTH = 30


class Stream(Protocol):
    """What the bar needs of an output: Django's wrapper has both."""

    def write(self, msg: str, style_func: Callable[[str], str], ending: str) -> object: ...

    def isatty(self) -> bool: ...


@contextmanager
def progress_bar(stream: Stream, what: str) -> Iterator[Callable[[float], None]]:
    """A function of the share done, 0 to 1; the line is wiped at the end, also after an error."""
    shown = -1

    # `str` as the style: on stderr Django would write everything in the colour of errors.
    def tell(share: float) -> None:
        nonlocal shown
        percent = int(100 * share)
        if percent != shown:
            shown = percent
            bar = "#" * (BAR_WIDTH * percent // 100)
            stream.write(f"\r{what} [{bar:<{BAR_WIDTH}}] {percent:3d} %", str, "")

    if not stream.isatty():
        yield lambda share: None
        return
    try:
        yield tell
    finally:
        stream.write("\r" + " " * (len(what) + BAR_WIDTH + 10) + "\r", str, "")
