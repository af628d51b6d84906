"""Answers that may be asked for again: in memory alone, for minutes, within a named size (LED-5).

What is kept is the run with its pieces, not a copy. What still runs is never dropped.
"""

from collections import OrderedDict
from dataclasses import dataclass, field

from gateway.api.forms import Form
from gateway.api.ports import Run
from gateway.clock import Clock
from gateway.idempotency import LOOK_SHARE, LOOK_US

RETAINED_US = 600_000_000
RETAINED_CHARS = 16_777_216
RETAINED_RUNS = 4_096


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A run that can be read from its first piece, and how its answer is written."""

    run: Run
    form: Form = field(repr=False)
    form_chars: int  # that memory holds for the form, beside the run's
    kept_at_us: int


class Retained:
    """The answers of the last minutes, by tenant and request. Owned by the event loop."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._kept: OrderedDict[tuple[str, str], Kept] = OrderedDict()
        self._looked_at_us, self._kept_since = 0, 0

    def keep(self, tenant_id: str, run: Run, form: Form, form_chars: int = 0) -> None:
        """Keep a run; asked again for one that is kept, nothing changes."""
        kept = Kept(run=run, form=form, form_chars=form_chars, kept_at_us=self._clock.now_us())
        self._kept.setdefault((tenant_id, run.request_id), kept)
        self._kept_since += 1
        self._forget()

    def find(self, tenant_id: str, request_id: str) -> Kept | None:
        """Returns a tenant's run; None where it is not kept, or another's."""
        self._forget()
        return self._kept.get((tenant_id, request_id))

    def forget(self, tenant_id: str, request_id: str) -> None:
        """Drop a tenant's run, whether it is over or not."""
        self._kept.pop((tenant_id, request_id), None)

    def _forget(self) -> None:
        """Drop what is over: all that is too old, then the oldest until the rest fits.

        All are looked at once a sixteenth more are kept, or a second later: what is kept or asked
        for costs a few looks, and between two looks memory holds no more than that share.
        """
        now_us = self._clock.now_us()
        due = self._kept_since * LOOK_SHARE >= len(self._kept) > 0
        if not due and now_us - self._looked_at_us < LOOK_US:
            return
        self._looked_at_us, self._kept_since = now_us, 0
        over = [
            (key, kept.kept_at_us, size + kept.form_chars)
            for key, kept in self._kept.items()
            for ended, size in (kept.run.kept_output(),)
            if ended
        ]
        chars = sum(size for _, _, size in over)
        for key, kept_at_us, size in over:
            fits = chars <= RETAINED_CHARS and len(self._kept) <= RETAINED_RUNS
            if kept_at_us > now_us - RETAINED_US and fits:
                break
            chars -= size
            del self._kept[key]
