"""The fallback graph as geometry: which route leads where, and whether it may (FBK-1). Pure.

Places are pixels: names have to stay legible, so a wide graph scrolls in its frame.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gateway.pages.formatting import milli
from gateway.policy.fallback import evidence_gap
from gateway.policy.values import Evaluation, FallbackEdge, RoutePolicy

NODE_WIDTH, NODE_HEIGHT = 168, 46
GAP_WIDTH, ROW_GAP = 250, 22
BEND = 72  # of an edge, before its target; what lies before is straight and bears its evidence
PORT_HEIGHT = 46  # for each edge that leaves a node
MARGIN = 4
NAME_CHARS, SUITE_CHARS = 21, 27
NODES_LIMIT = 60
LACKS = {
    "edge_evaluation": "no passing result",
    "edge_quality_floor": "under its floor",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """An edge with what its target's exact identity scored last on its suite; None: nothing."""

    edge: FallbackEdge
    score_milli: int | None
    passes: bool
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A route's box: its corner and height, its name as it fits, and whole."""

    route_id: str
    name: str
    below: str
    x: int
    y: int
    height: int
    chip: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrow:
    """An edge's path and where its two lines of text stand."""

    path: str
    passes: bool
    text_x: int
    suite_y: int
    score_y: int
    suite: str
    words: str
    title: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    nodes: tuple[Node, ...]
    arrows: tuple[Arrow, ...]
    width: int
    height: int
    left_out: int  # nodes beyond NODES_LIMIT
    alone: tuple[str, ...]  # routes that no edge leaves or reaches


def proofs(policy: RoutePolicy, evaluations: tuple[Evaluation, ...]) -> tuple[Proof, ...]:
    """Every edge with its evidence, as a decision would judge it now."""
    routes = {route.route_id: route for route in policy.routes}
    made = []
    for edge in policy.edges:
        target = routes.get(edge.to_route)
        if target is None:
            continue
        of_suite = [
            each.score_milli
            for each in evaluations
            if (each.suite, each.identity_id)
            == (edge.required_evaluation_suite, target.identity_id)
        ]
        gap = evidence_gap(edge, target, evaluations)
        made.append(
            Proof(
                edge=edge,
                score_milli=of_suite[-1] if of_suite else None,
                passes=gap is None,
                words="passes" if gap is None else LACKS.get(gap, gap.replace("_", " ")),
            )
        )
    return tuple(made)


def graph(policy: RoutePolicy, edges: Sequence[Proof], chips: Mapping[str, str]) -> Graph | None:
    """The routes that edges join, from left to right; None where there is no edge.

    `chips`: route_id -> the state by which its box is coloured.
    """
    joined = {name for each in edges for name in (each.edge.from_route, each.edge.to_route)}
    if not joined:
        return None
    ranks = _ranks([each.edge for each in edges], joined)
    regions = {route.route_id: route.region for route in policy.routes}
    order = [route.route_id for route in policy.routes if route.route_id in joined]
    leaving: dict[str, list[Proof]] = {}
    for each in edges:
        leaving.setdefault(each.edge.from_route, []).append(each)
    nodes: dict[str, Node] = {}
    ends = [MARGIN] * (max(ranks.values()) + 1)
    for route_id in order[:NODES_LIMIT]:
        rank = ranks[route_id]
        height = max(NODE_HEIGHT, PORT_HEIGHT * len(leaving.get(route_id, ())))
        nodes[route_id] = Node(
            route_id=route_id,
            name=_short(route_id, NAME_CHARS),
            below=regions[route_id],
            x=MARGIN + rank * (NODE_WIDTH + GAP_WIDTH),
            y=ends[rank],
            height=height,
            chip=chips.get(route_id, "no_data"),
        )
        ends[rank] += height + ROW_GAP
    arrows = tuple(
        _arrow(each, nodes[route_id], nodes[each.edge.to_route], port)
        for route_id, out in leaving.items()
        for port, each in enumerate(out)
        if route_id in nodes and each.edge.to_route in nodes
    )
    return Graph(
        nodes=tuple(nodes.values()),
        arrows=arrows,
        width=len(ends) * (NODE_WIDTH + GAP_WIDTH) - GAP_WIDTH + 2 * MARGIN,
        height=max(ends) - ROW_GAP + MARGIN,
        left_out=len(order) - len(nodes),
        alone=tuple(each.route_id for each in policy.routes if each.route_id not in joined),
    )


def _ranks(edges: Sequence[FallbackEdge], joined: set[str]) -> dict[str, int]:
    """How many edges lie before each route at most; a circle (none is published) stops growing."""
    ranks = dict.fromkeys(joined, 0)
    for _ in range(len(joined)):
        moved = False
        for edge in edges:
            after = ranks[edge.from_route] + 1
            if ranks[edge.to_route] < after < len(joined):
                ranks[edge.to_route], moved = after, True
        if not moved:
            break
    return ranks


def _arrow(proof: Proof, start: Node, end: Node, port: int) -> Arrow:
    x, y = start.x + NODE_WIDTH, start.y + PORT_HEIGHT // 2 + port * PORT_HEIGHT
    to_x, to_y = end.x - 7, end.y + end.height // 2
    edge = proof.edge
    return Arrow(
        path=f"M{x} {y}H{to_x - BEND}C{to_x - BEND // 2} {y} {to_x - BEND // 2} {to_y} "
        f"{to_x} {to_y}",
        passes=proof.passes,
        text_x=x + 8,
        suite_y=y - 6,
        score_y=y + 15,
        suite=_short(edge.required_evaluation_suite, SUITE_CHARS),
        words=f"{'✓' if proof.passes else '✕'} {milli(proof.score_milli)} of "
        f"{milli(edge.quality_floor_milli)}, {proof.words}",
        title=f"{edge.from_route} to {edge.to_route}: {edge.required_evaluation_suite}",
    )


def _short(text: str, chars: int) -> str:
    return text if len(text) <= chars else text[: chars - 1] + "…"
