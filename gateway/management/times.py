"""Times as they are written on a command line."""

from datetime import UTC, datetime

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def instant_us(text: str) -> int:
    """Returns an ISO 8601 time as µs UTC; without a zone it is UTC. ValueError if it isn't one."""
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        written = "write 2026-11-01 or 2026-11-01T09:30:00+05:30; without a zone it is UTC"
        raise ValueError(f"{text!r} is no time: {written}") from None
    passed = (when if when.tzinfo else when.replace(tzinfo=UTC)) - _EPOCH
    return (passed.days * 86_400 + passed.seconds) * 1_000_000 + passed.microseconds
