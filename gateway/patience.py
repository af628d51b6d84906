"""How long the running task may wait for something: asyncio.timeout at a third of its cost."""

import asyncio


class Patience:
    """Cancels the task that it is made in once it is over; `at_end` tells such a cancel apart.

    To be `dropped` in a `finally`; without `seconds` it has no end until `shorten` gives it one.
    """

    __slots__ = ("_cancelling", "_task", "_timer", "over")

    def __init__(self, seconds: float | None = None) -> None:
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("only a task can be waited for")
        self._task, self._cancelling = task, task.cancelling()
        self._timer: asyncio.TimerHandle | None = None
        self.over = False
        if seconds is not None:
            self.shorten(seconds)

    def shorten(self, seconds: float) -> None:
        """Let it end so many seconds from now, where it doesn't end sooner."""
        if self.over:
            return
        loop = self._task.get_loop()
        if self._timer is not None:
            if self._timer.when() <= loop.time() + seconds:
                return
            self._timer.cancel()
        self._timer = loop.call_later(seconds, self._end)

    def at_end(self) -> bool:
        """Return, where the task was just cancelled, whether that was this end and nothing else."""
        return self.over and self._task.uncancel() <= self._cancelling

    def drop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _end(self) -> None:
        self._timer, self.over = None, True
        self._task.cancel()
