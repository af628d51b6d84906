"""What is wrong with a request, as a value: a reason code, a sentence, and where to look."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """An expected failure before admission. `message` never quotes what the client sent (SEC-3)."""

    code: str
    message: str
    param: str | None = None


def invalid(message: str, param: str | None = None) -> Problem:
    """Returns an INVALID_REQUEST."""
    return Problem(code="INVALID_REQUEST", message=message, param=param)
