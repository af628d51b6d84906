"""What is wrong with a request's headers before they are read, as Problems that name them."""

from collections.abc import Iterable

from gateway.api.budget import is_single_budget_header
from gateway.api.problems import Problem, invalid

# With two of them, two parts of the way could each believe another (SEC-3).
SINGLE = frozenset(
    {
        "authorization",
        "content-encoding",
        "content-length",
        "content-type",
        "idempotency-key",
        "traceparent",
    }
)


def repeated_problem(repeated: Iterable[str]) -> Problem | None:
    """Returns a problem where a header that may come once came more often.

    `repeated` are the lower-case names that came more than once, in any order.
    """
    for name in repeated:
        if name in SINGLE or is_single_budget_header(name):
            return invalid(f"The header {name} came more than once; send it once.", name)
    return None


def encoding_problem(content_encoding: str | None) -> Problem | None:
    """Returns a problem where the body is encoded: none is decoded here."""
    if content_encoding is None or content_encoding.strip().lower() in ("", "identity"):
        return None
    return invalid("No Content-Encoding is taken: send the body as it is.", "content-encoding")
