"""Where in a policy's tree a problem of `gateway.policy.validation` lies. Pure.

A problem says `route fast-v2 queue_limit` or `model assist canary r1 arm a`; the tree has
`routes[0].queue_limit` and `models[0].canary.arms[0]`. What can't be followed to its end is
answered with as much of the way as is known.
"""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from gateway.fleet_file.named import Path
from gateway.policy.problems import Problem
from gateway.policy.values import RoutePolicy


def place_of(problem: Problem, policy: RoutePolicy) -> Path:
    """The path of a problem; a circle of edges (FBK-1) lies where its last edge closes it."""
    if problem.where == "edges":
        for index in reversed(range(len(policy.edges))):
            edge = policy.edges[index]
            if f"{edge.from_route} -> {edge.to_route}" in problem.what:
                return ("edges", index)
    return path_of(problem.where, policy)


def path_of(where: str, policy: RoutePolicy) -> Path:
    """The path of a problem's `where`; empty where it names no part of the policy."""
    lists: tuple[tuple[str, str, Sequence[Any], Callable[[Any], str]], ...] = (
        ("route ", "routes", policy.routes, lambda each: each.route_id),
        ("model ", "models", policy.models, lambda each: each.name),
        ("edge ", "edges", policy.edges, lambda each: f"{each.from_route} -> {each.to_route}"),
        ("queue share of ", "queue_shares", policy.queue_shares, lambda each: each.priority),
    )
    for word, field, elements, label in lists:
        if where.startswith(word):
            found = _element(where.removeprefix(word), elements, label)
            if found is None:
                return (field,)
            index, rest = found
            return (field, index, *_fields(rest.split(), elements[index]))
    return _fields(where.split(), policy)


def _element(
    text: str, elements: Sequence[Any], label: Callable[[Any], str]
) -> tuple[int, str] | None:
    """(place of the element that a text begins with, the rest of the text); the longest name."""
    named = [
        (len(label(each)), -index, text[len(label(each)) :])
        for index, each in enumerate(elements)
        if text == label(each) or text.startswith(label(each) + " ")
    ]
    if not named:
        return None
    _, index, rest = max(named)
    return -index, rest


def _fields(words: Sequence[str], value: object) -> Path:
    """Go from field to field as long as the words name some, and to an arm by its name."""
    path: Path = ()
    for place, word in enumerate(words):
        if not isinstance(value, msgspec.Struct):
            break
        if word in value.__struct_fields__:
            path, value = (*path, word), getattr(value, word)
        elif word == "arm" and hasattr(value, "arms"):
            names = [arm.arm for arm in value.arms]
            name = " ".join(words[place + 1 :])
            return (*path, "arms", names.index(name)) if name in names else (*path, "arms")
    return path
