"""One problem of a policy: what keeps it from being published, or is worth a look before it is."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """`where` names the part of the policy, `what` the contradiction, `action` the way out.

    `code` is stable: what a program or a filter may go by.
    """

    code: str
    where: str
    what: str
    action: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what}. {self.action}."


def twice(values: Iterable[str]) -> list[str]:
    """Return the values that are there more than once, sorted."""
    return sorted(value for value, times in Counter(values).items() if times > 1)
