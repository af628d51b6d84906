"""What a GET of the native API may be asked for: the parameters that its document names, no others.

One check for every endpoint, before its handler: an answer to a question that wasn't asked (every
tenant's costs for `?tenant=`) looks like one that was. /v1 and /v2 are other people's protocols,
whose clients send more than they need to; nothing is refused there.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from gateway.api.described import DESCRIBED
from gateway.api.http import Request
from gateway.api.problems import Problem, invalid
from gateway.reporting import TAG_FILTER, AskProblem, is_tag, unknown_parameter

MAY_BE_EMPTY: Final = frozenset({"then"})  # empty: one dimension alone


def query_problem(path: str, request: Request) -> Problem | None:
    """Return what is wrong with a request's query at a path of the table; None: nothing.

    A parameter that the endpoint doesn't have, or one without a value. Raises UnreadableQuery.
    """
    if not request.query_string:
        return None
    found = problem_of(request.query(), parameters(path))
    if found is None:
        return None
    return invalid(f"{found.parameter}: {found.detail}.", found.parameter)


def parameters(path: str) -> tuple[str, ...]:
    """Return the query parameters that the document names for a GET of a path of the table."""
    described = DESCRIBED["GET", path].parameters
    return tuple(one.name for one in described if one.place == "query")


def problem_of(query: Mapping[str, Sequence[str]], known: Sequence[str]) -> AskProblem | None:
    """Return the first parameter that isn't known, else the first that is empty; None: neither."""
    tagged = TAG_FILTER in known
    plain = [name for name in query if not (tagged and is_tag(name))]
    unknown = unknown_parameter(plain, known)
    if unknown is not None:
        return unknown
    for name, values in query.items():
        if name not in MAY_BE_EMPTY and not all(value.strip() for value in values):
            return AskProblem(parameter=name, detail="it is empty; give a value, or leave it out")
    return None
