"""A clock for tests."""


class VirtualClock:
    """A clock that stands where it was put."""

    def __init__(self, now_us: int) -> None:
        self._now_us = now_us

    def now_us(self) -> int:
        return self._now_us

    def set_us(self, now_us: int) -> None:
        if now_us < self._now_us:
            raise ValueError(f"virtual time can't run backwards: {now_us} < {self._now_us}")
        self._now_us = now_us
