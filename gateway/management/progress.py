"""A progress bar on a terminal, silence elsewhere; and Ctrl-C taken between two steps."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Protocol

BAR_WIDTH = 30


class Stream(Protocol):
    """What the bar needs of an output: Django's wrapper has both."""

    def write(self, msg: str, style_func: Callable[[str], str], ending: str) -> object: ...

    def isatty(self) -> bool: ...


@contextmanager
def ctrl_c_at_a_step() -> Iterator[Callable[[], None]]:
    """A function that raises KeyboardInterrupt once Ctrl-C was pressed; so does the end.

    Within a calculation of large numbers the exception would abort the engine's machine code, so a
    first Ctrl-C waits for a step. A second one doesn't. Where Ctrl-C is ignored, or handled by
    somebody else, it stays so.
    """
    asked = False

    def later(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        if asked:
            signal.default_int_handler(number, frame)
        asked = True

    def step() -> None:
        if asked:
            raise KeyboardInterrupt

    try:
        ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler
        if ours:
            signal.signal(signal.SIGINT, later)
    except ValueError:  # not the main thread, which alone is interrupted
        ours = False
    try:
        yield step
        step()
    finally:
        if ours:
            signal.signal(signal.SIGINT, signal.default_int_handler)


@contextmanager
def progress_bar(stream: Stream, what: str) -> Iterator[Callable[[float], None]]:
    """A function of the share done, 0 to 1; the line is wiped at the end, also after an error.

    Ctrl-C is taken where the function is called, and at the end.
    """
    shown, drawn = -1, stream.isatty()

    # `str` as the style: on stderr Django would write everything in the colour of errors.
    def tell(share: float) -> None:
        nonlocal shown
        step()
        percent = int(100 * share)
        if drawn and percent != shown:
            shown = percent
            bar = "#" * (BAR_WIDTH * percent // 100)
            stream.write(f"\r{what} [{bar:<{BAR_WIDTH}}] {percent:3d} %", str, "")

    with ctrl_c_at_a_step() as step:
        try:
            yield tell
        finally:
            if drawn:
                stream.write("\r" + " " * (len(what) + BAR_WIDTH + 10) + "\r", str, "")
