"""Routes and capacity: states and why, room and its age, the fallback graph, drains by form."""

from typing import Any

import pytest
from django.test import Client

from gateway.live import Live, LiveRoute
from gateway.pages.routes_graph import graph, proofs
from gateway.pages.routes_view import kinds, lines, matrix, room_of
from gateway.policy.breaking import Breaker
from ledger.queries.actions import drained_routes
from ledger.reading import connect_read_only, reader
from ledger.records import CapacitySnapshotRecord, ControlAction
from ledger.store import Store, StoreStatus
from tests import factories
from tests import policy_factories as pf
from tests.gateway.pages.conftest import LogIn
from tests.gateway.pages.test_receipts import HX, text_of
from tests.ledger.seeded import Plans

NOW_US = 1_800_000_000_000_000
SMALL = {"route_policy", "evaluation_result", "p", "chain_head"}
"""Tables of one row a publication or a recorded evaluation, not a request."""
IDLE = StoreStatus(
    healthy=True, queued_rows=0, queue_limit_rows=1, fault=None, last_error=None,
    since_checkpoint_s=None,
)  # fmt: skip


def action(name: str, subject: str, **changed: object) -> ControlAction:
    return factories.control_action(action=name, subject=subject, **changed)


def kept(route_id: str = "fast-v2", **changed: object) -> CapacitySnapshotRecord:
    fields = {"route_id": route_id, "observed_at_us": NOW_US - 1_000, **changed}
    return factories.capacity_snapshot(**fields)


def line(*, seen=None, snapshot=None, drain=None, breaker=None, **route):
    """The page's line of one route."""
    policy = pf.policy(pf.route("fast-v2", **route))
    (found,) = lines(
        policy,
        NOW_US,
        live=seen and Live(at_us=NOW_US, routes={"fast-v2": seen}, writer=IDLE, problems=()),
        kept={"fast-v2": snapshot} if snapshot else {},
        drains={"fast-v2": drain} if drain else {},
        breakers={"fast-v2": breaker} if breaker else {},
    )
    return found


def live(state: Any = "closed", **changed: Any) -> LiveRoute:
    fields: dict[str, Any] = {
        "route_id": "fast-v2", "snapshot": None, "in_flight": 3,
        "kv_held_tokens": 10,
        "breaker": Breaker(state=state, until_us=NOW_US + 5), "cooldown_until_us": None,
    }  # fmt: skip
    return LiveRoute(**fields | changed)


@pytest.mark.parametrize(
    ("given", "state"),
    [
        ({"enabled": False, "snapshot": kept()}, "disabled"),
        ({"snapshot": kept(), "drain": action("drain_route", "fast-v2")}, "drained"),
        ({"snapshot": kept(), "drain": action("undrain_route", "fast-v2")}, "takes"),
        ({"seen": live("open"), "snapshot": kept()}, "open"),
        ({"seen": live("half_open"), "snapshot": kept()}, "half_open"),
        ({}, "silent"),
        ({"snapshot": kept(observed_at_us=NOW_US - 5_000_001)}, "unseen"),
        ({"seen": live(), "snapshot": kept(observed_at_us=NOW_US - 5_000_001)}, "stale"),
        ({"seen": live(), "snapshot": kept(observed_at_us=NOW_US - 5_000_000)}, "takes"),
    ],
)
def test_a_route_s_state_is_the_first_thing_that_keeps_requests_from_it(given, state):
    """SCH-2, RTY-2: an old snapshot is no capacity fact, and a cut is visible."""
    assert line(**given).state == state


def test_a_breaker_says_since_when_why_by_which_request_and_until_when():
    moved = action(
        "route_breaker", "fast-v2", acted_at_us=NOW_US - 60, reason="connection_lost",
        evidence="req_x.1", after_json='{"state":"open","until_us":77}',
    )  # fmt: skip
    found = line(breaker=moved)
    assert (found.since_us, found.why, found.request_id, found.until_us) == (
        NOW_US - 60, "connection lost", "req_x", 77,
    )  # fmt: skip
    # The server's own state counts before what the ledger said last.
    assert line(breaker=moved, seen=live(), snapshot=kept()).state == "takes"
    assert line(breaker=moved, seen=live("open")).until_us == NOW_US + 5


def test_the_newer_snapshot_is_shown_with_its_age_and_all_its_room():
    policy = pf.policy(pf.route("fast-v2"))
    newer = pf.snapshot("fast-v2", observed_at_us=NOW_US - 250)
    room = room_of(policy, NOW_US, live(snapshot=newer), kept())
    assert room is not None
    assert (room.age_us, room.stale) == (250, False)
    old = kept(observed_at_us=NOW_US - 9, reserved_kv_tokens=7, free_kv_tokens=13)
    room = room_of(policy, NOW_US, live(snapshot=newer), old)
    assert room is not None
    assert (room.age_us, room.kv_used, room.kv_total) == (9, 7, 20)


def test_an_edge_is_drawn_by_the_evidence_that_a_decision_would_judge_it_by():
    """FBK-1: the newest result of the suite for the target's exact identity."""
    policy = pf.policy(
        pf.route("a"), pf.route("b"), pf.route("c"), pf.route("alone"),
        models=(pf.model("a"),),
        edges=(pf.edge("a", "b"), pf.edge("b", "c"), pf.edge("a", "c", quality_floor_milli=950)),
    )  # fmt: skip
    evaluations = (pf.evaluation("b", score_milli=799), pf.evaluation("c"))
    found = proofs(policy, evaluations)
    assert [(each.passes, each.score_milli, each.words) for each in found] == [
        (False, 799, "under its floor"), (True, 900, "passes"), (False, 900, "under its floor"),
    ]  # fmt: skip
    none = proofs(policy, ())
    assert {each.words for each in none} == {"no passing result"}
    drawn = graph(policy, found, {"a": "ok"})
    assert drawn is not None
    assert [node.route_id for node in drawn.nodes] == ["a", "b", "c"]
    assert drawn.alone == ("alone",)
    places = {node.route_id: node.x for node in drawn.nodes}
    assert places["a"] < places["b"] < places["c"]
    assert len(drawn.arrows) == 3
    assert all(node.x + 168 <= drawn.width for node in drawn.nodes)
    assert all(node.y + node.height <= drawn.height for node in drawn.nodes)
    assert graph(policy, (), {}) is None


def test_a_circle_of_edges_is_drawn_and_ends():
    policy = pf.policy(pf.route("a"), pf.route("b"), edges=(pf.edge("a", "b"), pf.edge("b", "a")))
    drawn = graph(policy, proofs(policy, ()), {})
    assert drawn is not None
    assert len(drawn.arrows) == 2


def test_the_matrix_has_every_adapter_and_every_capability():
    """PRV-4."""
    columns = kinds((pf.route("a"), pf.route("b")))
    assert [(each.kind, each.routes) for each in columns] == [
        ("simulator", ("a", "b")), ("openai", ()), ("kserve", ()),
    ]  # fmt: skip
    found = dict(matrix(columns))
    assert len(found) == len(columns[0].can.__dataclass_fields__) - 1
    assert found["Tools"] == ("yes", "yes", "no")
    assert found["How errors end an attempt"][0] == "failed: request refused"
    assert "unknown: connection lost, silent" in found["How errors end an attempt"][1]


def test_the_page_shows_the_fleet_and_the_partial_is_its_part(own_ledger, viewer: Client):
    said = text_of(viewer.get("/routes"))
    for words in ("fast-v2", "long-context-us-v4", "core-chat-v1", "passes", "no server runs"):
        assert words in said
    part = viewer.get("/routes?follow=1", headers=HX)
    assert b"<html" not in part.content
    assert part["HX-Push-Url"] == "false"
    assert b"every 5s" in part.content


def test_an_operator_drains_a_route_by_the_form_and_brings_it_back(own_ledger, log_in: LogIn):
    client = log_in("operator")
    assert "Drain" in text_of(client.get("/routes"))
    form = {"route_id": "fast-v3", "reason": "driver update", "next": "/routes"}
    answer = client.post("/act/drain_route", form)
    assert (answer.status_code, answer["Location"]) == (302, "/routes")
    said = text_of(client.get("/routes"))
    assert "driver update, by console:the-operator" in said
    assert "4 of 5" in said
    client.post("/act/undrain_route", {**form, "reason": "done"})
    connection = connect_read_only(own_ledger)
    assert drained_routes(connection) == frozenset()
    connection.close()
    assert "5 of 5" in text_of(client.get("/routes"))


def test_a_viewer_sees_no_form_that_would_be_refused(own_ledger, viewer: Client):
    body = viewer.get("/routes").content.decode()
    assert "drain_route" not in body


def test_the_page_reads_no_large_table_from_end_to_end(own_ledger, viewer: Client):
    with Store.open(own_ledger) as store:
        store.append([kept("fast-v2", revision=each) for each in range(1, 5)]).result()
    viewer.get("/routes")
    with Plans(reader(own_ledger)) as plans:
        viewer.get("/routes")
    scans = [each for each in plans.scans_of_large_tables() if each.split()[1] not in SMALL]
    assert scans == []
