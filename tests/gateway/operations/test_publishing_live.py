"""Publishing while a server runs: in force for the next request, without a restart (SPEC 5)."""

import contextlib
import json
import threading
from collections.abc import Iterator

import msgspec
import pytest

from gateway.demo.fleet import policy as demo_policy
from gateway.fleet_file.document import write_fleet
from gateway.fleet_file.in_force import fleet_in_force
from gateway.fleet_file.named import named
from gateway.operations import anywhere
from gateway.operations.base import Actor, Done, Refused
from gateway.operations.fleet import ApplyFleet
from gateway.operations.policies import PublishPolicy, ReturnToPolicy
from gateway.operations.routes import DrainRoute, UndrainRoute
from gateway.policy.values import FallbackEdge, LogicalModel, RoutePolicy
from gateway.replaying import Replayer, tally
from ledger.carrying import every
from ledger.queries import decisions
from ledger.queries.actions import drained_routes
from ledger.queries.holds import open_reservations
from ledger.records import Reservation
from tests.factories import NOW_US
from tests.gateway.operations.publishing import size
from tests.server import Server
from tests.server_fixtures import Fleet
from tests.system.watching import until

OPERATOR = Actor(name="ada", role="admin", via="command")
TENANT = "support-desk"
FIRST = "route-policy-v1"
REPLACED = msgspec.structs.replace


@pytest.fixture
def served(fleet: Fleet) -> Iterator[tuple[Fleet, Server]]:
    with fleet.serving() as server:
        assert server.chat("hello", key=server.keys[TENANT], max_tokens=4)[0] == 200
        yield fleet, server


def publish(fleet: Fleet, policy: RoutePolicy, based_on: str | None = FIRST) -> Done | Refused:
    tree = named(policy)
    return anywhere.perform(
        fleet.ledger,
        PublishPolicy(revision=policy.revision, policy=tree, based_on=based_on, reason="a test"),
        OPERATOR,
    )


def asked(server: Server, model: str = "assist") -> tuple[int, str | None, str | None]:
    """(status, route, policy revision) of one more request."""
    status, _, body = server.chat("hello", key=server.keys[TENANT], max_tokens=4, model=model)
    answer = json.loads(body)
    receipt = answer.get("receipt") or {}
    return status, receipt.get("route_id"), receipt.get("policy_revision")


def assert_replays_identically(fleet: Fleet, least: int) -> None:
    with contextlib.closing(fleet.reader()) as connection:
        result = tally(Replayer(connection).all(), keep=3)
    assert result.first_different == ()
    assert result.identical >= least
    assert (result.different, result.not_comparable) == (0, 0)


def with_new_model() -> RoutePolicy:
    """The demonstration's policy with a route that it didn't have, and a model served by it."""
    policy = demo_policy()
    route = REPLACED(policy.routes[0], route_id="fresh-v1")
    model = LogicalModel(
        name="fresh", primary_routes=("fresh-v1",), max_input_tokens=8_192,
        max_output_tokens=1_024, max_total_tokens=8_192, default_output_tokens=64,
        default_deadline_us=30_000_000,
    )  # fmt: skip
    return REPLACED(
        policy, revision="v2", routes=(*policy.routes, route), models=(*policy.models, model)
    )


def test_a_published_policy_decides_the_next_request_and_a_new_route_is_served(served):
    """SPEC 2, 5; RTE-3: decisions before and after it replay identically."""
    fleet, server = served
    assert asked(server, "fresh")[0] == 404
    done = publish(fleet, with_new_model())
    assert isinstance(done, Done), done
    assert asked(server, "fresh") == (200, "fresh-v1", "v2")
    assert asked(server)[2] == "v2"

    without = REPLACED(demo_policy(), revision="v3")
    assert isinstance(publish(fleet, without, based_on="v2"), Done)
    assert asked(server, "fresh")[0] == 404
    assert asked(server)[2] == "v3"

    back = ReturnToPolicy(to="v2", revision="v4", reason="fresh is missed")
    returned = anywhere.perform(fleet.ledger, back, OPERATOR)
    assert isinstance(returned, Done)
    assert returned.summary.startswith("Returned to v2, published as v4")
    assert returned.after["returned_to"] == "v2"
    assert asked(server, "fresh") == (200, "fresh-v1", "v4")
    assert server.call("/readyz")[0] == 200
    assert_replays_identically(fleet, least=5)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            {"edges": (("fast-v2", "long-context-v4"), ("long-context-v4", "fast-v2"))},
            "edges[long-context-v4 -> fast-v2]: they go in a circle: fast-v2 -> long-context-v4 ->",
        ),
        ({"address": "sim:no-such-profile"}, "routes[fast-v2].address: no profile"),
        ({"address": "openai:ftp://host/v1"}, "routes[fast-v2].address: 'openai:ftp"),
        ({"identity_id": "mid_unknown"}, "routes[fast-v2].identity_id: no such model identity"),
        ({"queue_limit": 0}, "routes[fast-v2].queue_limit: it is 0. Set it to 1 or more."),
    ],
)  # fmt: skip
def test_a_refused_policy_changes_nothing_and_names_each_path(served, change, said):
    """FBK-1: a fallback graph with a cycle is refused at publishing."""
    fleet, server = served
    policy = REPLACED(demo_policy(), revision="v2")
    if "edges" in change:
        edges = tuple(
            FallbackEdge(
                from_route=origin, to_route=target, allowed_reasons=("overloaded",),
                required_evaluation_suite="core-chat-v1", quality_floor_milli=800,
            )
            for origin, target in change["edges"]
        )  # fmt: skip
        policy = REPLACED(policy, edges=edges)
    else:
        first = REPLACED(policy.routes[0], **change)
        policy = REPLACED(policy, routes=(first, *policy.routes[1:]))
    before = size(fleet)
    refused = publish(fleet, policy)
    assert isinstance(refused, Refused)
    assert refused.code == "INVALID_POLICY"
    assert any(problem.startswith(said) for problem in refused.problems), refused.problems
    assert size(fleet) == before
    assert asked(server)[2] == FIRST


def test_of_two_who_publish_at_once_one_wins_and_the_other_is_told(served):
    fleet, server = served
    results: list[Done | Refused] = []
    threads = [
        threading.Thread(
            target=lambda number: results.append(
                publish(fleet, REPLACED(demo_policy(), revision=f"v2-{number}", retry_after_ms=2))
            ),
            args=(number,),
        )
        for number in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    won = [result for result in results if isinstance(result, Done)]
    told = [result for result in results if isinstance(result, Refused)]
    assert (len(won), len(told)) == (1, 3)
    assert {refused.code for refused in told} == {"MOVED"}
    assert f"in force is {won[0].subject}" in told[0].message
    assert asked(server)[2] == won[0].subject


def test_a_drained_route_gets_nothing_new_until_it_is_brought_back_also_over_a_restart(fleet):
    """RTY-2: the audit row alone is the record."""
    taking = {"fast-v2", "fast-us-v2"}
    with fleet.serving() as server:
        assert server.call("/readyz")[0] == 200  # from here on the ledger is the server's
        for route_id in sorted(taking | {"fast-v3"}):
            done = anywhere.perform(
                fleet.ledger, DrainRoute(route_id=route_id, reason="maintenance"), OPERATOR
            )
            assert isinstance(done, Done), done
        assert done.after["models_without_route"] == ["assist"]
        drained_status, route, _ = asked(server)
        assert (drained_status, route) != (200, "fast-v2")
        again = anywhere.perform(
            fleet.ledger, DrainRoute(route_id="fast-v2", reason="again"), OPERATOR
        )
        assert isinstance(again, Refused)
        assert again.code == "NO_CHANGE"
    with fleet.serving() as server:
        assert asked(server)[:2] == (drained_status, route)
        undone = anywhere.perform(
            fleet.ledger, UndrainRoute(route_id="fast-us-v2", reason="done"), OPERATOR
        )
        assert isinstance(undone, Done)
        routes = {asked(server)[1] for _ in range(8)}
        assert "fast-us-v2" in routes
        assert "fast-v2" not in routes
        with contextlib.closing(fleet.reader()) as connection:
            assert drained_routes(connection) == {"fast-v2", "fast-v3"}
            assert len(list(decisions.decisions(connection))) > 9
    assert_replays_identically(fleet, least=9)


def test_a_fleet_file_applied_while_the_server_runs_is_in_force_at_once_and_whole(served):
    fleet, server = served
    with contextlib.closing(fleet.reader()) as connection:
        text = write_fleet(fleet_in_force(connection, 2 * NOW_US))
    changed = text.replace("in_flight_limit = 96", "in_flight_limit = 96\nmax_output_tokens = 8")
    for old, new in (("route-policy-v1", "v2"), ('"assist"\nprimary', '"helper"\nprimary')):
        assert old in changed
        changed = changed.replace(old, new)
    assert asked(server, "helper")[0] == 404
    applied = anywhere.perform(fleet.ledger, ApplyFleet(text=changed, reason="a test"), OPERATOR)
    assert isinstance(applied, Done), applied
    assert asked(server, "helper")[::2] == (200, "v2")
    assert asked(server)[0] == 404
    status, _, body = server.chat("hello", key=server.keys[TENANT], max_tokens=9, model="helper")
    assert (status, json.loads(body)["error"]["code"]) == (400, "TOKEN_BUDGET_EXCEEDED")
    broken = changed.replace("queue_limit = 64", "queue_limit = 0").replace('"v2"', '"v3"')
    before = size(fleet)
    refused = anywhere.perform(fleet.ledger, ApplyFleet(text=broken, reason="a test"), OPERATOR)
    assert isinstance(refused, Refused)
    assert all(problem.startswith("line ") for problem in refused.problems)
    assert size(fleet) == before
    assert asked(server, "helper")[::2] == (200, "v2")
    assert_replays_identically(fleet, least=4)


def test_what_runs_on_a_route_that_a_new_policy_has_not_ends_there_and_gives_all_back(fleet):
    """LED-6: its slot and KV come back, and its receipt names the policy that decided it."""
    policy = demo_policy()
    only = {"fast-v2", "fast-us-v2", "fast-v3"}
    without = REPLACED(
        policy,
        revision="v2",
        models=(policy.models[1],),
        routes=tuple(each for each in policy.routes if each.route_id not in only),
        edges=(),
    )
    answers: list[tuple[int, dict]] = []
    with fleet.serving(time_scale=4.0) as server:

        def ask() -> None:
            status, _, body = server.chat("hello", key=server.keys[TENANT], max_tokens=200)
            answers.append((status, json.loads(body)))

        running = threading.Thread(target=ask)
        running.start()
        with contextlib.closing(fleet.reader()) as connection:
            until(
                lambda: bool(connection.execute(every(Reservation)).fetchall()),
                "the request is accepted",
            )
        assert isinstance(publish(fleet, without), Done)
        assert asked(server)[0] == 404
        running.join()
        assert asked(server, "assist-long")[0] == 200
        assert server.call("/readyz")[0] == 200
    ((status, answer),) = answers
    assert (status, answer["receipt"]["status"]) == (200, "completed")
    assert answer["receipt"]["policy_revision"] == FIRST
    assert answer["receipt"]["route_id"] in only
    with contextlib.closing(fleet.reader()) as connection:
        assert open_reservations(connection) == []
    assert_replays_identically(fleet, least=2)


def test_no_one_is_told_that_a_route_is_drained_that_the_policy_has_not(fleet):
    for operation in (DrainRoute, UndrainRoute):
        refused = anywhere.perform(
            fleet.ledger, operation(route_id="no-such", reason="r"), OPERATOR
        )
        assert isinstance(refused, Refused)
        assert refused.code in ("NO_SUCH_ROUTE", "NOT_DRAINED")
