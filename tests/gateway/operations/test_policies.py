"""Policies drafted, compared, published, returned to; refused whole, each problem told (SPEC 5)."""

import contextlib
import json

import msgspec
import pytest

from gateway.demo.fleet import TENANTS, policy
from gateway.fleet_file.differences import differences
from gateway.fleet_file.in_force import declared_policy
from gateway.fleet_file.named import named
from gateway.operations.base import Refused
from gateway.operations.policies import (
    DraftPolicy,
    PublishPolicy,
    ReturnToPolicy,
    policy_of,
)
from gateway.operations.registry import read
from gateway.operations.tenants import SetTenant
from gateway.policy.values import RoutePolicy
from ledger.queries import configuration as stored
from ledger.queries import drafts
from ledger.records import ControlAction
from ledger.store import Store
from tests.gateway.operations.publishing import (
    ADMIN,
    OPERATOR,
    SECRETS,
    actions,
    assert_nowhere_in,
    done,
    in_force,
    refused,
)
from tests.policy_factories import edge, replaced
from tests.server_fixtures import Fleet

FIRST = "route-policy-v1"


def tree(**changed) -> dict:
    """The demonstration's policy by name, as v2, some fields replaced."""
    return named(replaced(policy(), revision="v2", **changed))


def with_route(place: int = 0, **changed) -> dict:
    found = tree()
    found["routes"][place] |= changed
    return found


def publish(policy: dict | None, **fields) -> PublishPolicy:
    given = {"revision": "v2", "based_on": FIRST, "reason": "a test"} | fields
    return PublishPolicy(policy=policy, **given)


def test_a_draft_is_kept_revision_by_revision_with_what_is_still_wrong(fleet):
    unsound = with_route(queue_limit=0)
    first = done(
        fleet, DraftPolicy(revision="v2", policy=unsound, note="less queue"), actor=OPERATOR
    )
    assert first.summary == (
        "Kept revision 1 of the draft v2, with 1 to be put right before it can be published."
    )
    assert first.after["problems"] == ["routes[fast-v2].queue_limit: it is 0. Set it to 1 or more."]
    assert refused(fleet, publish(None)).code == "INVALID_POLICY"
    second = done(fleet, DraftPolicy(revision="v2", policy=with_route(queue_limit=9)))
    assert second.summary == "Kept revision 2 of the draft v2."
    with contextlib.closing(fleet.reader()) as connection:
        kept = drafts.draft(connection, "route_policy", "v2", 1)
        newest = drafts.drafts(connection, "route_policy")
    assert (kept.note, kept.based_on, kept.drafted_by) == ("less queue", FIRST, "console:otto")
    assert [each.revision for each in newest] == [2]
    assert in_force(fleet) == FIRST
    assert refused(fleet, DraftPolicy(revision="v2", policy=with_route(queue_limit=9))).code == (
        "NO_CHANGE"
    )


def test_a_published_draft_is_in_force_and_the_audit_log_says_what_changed(fleet):
    done(fleet, DraftPolicy(revision="v2", policy=with_route(queue_limit=128)))
    published = done(fleet, PublishPolicy(revision="v2", reason="more room"))
    assert published.summary == "Published v2: 2 models, 5 routes, 2 fallback edges."
    assert in_force(fleet) == "v2"
    with contextlib.closing(fleet.reader()) as connection:
        action = actions(connection)[-1]
    assert (action.action, action.subject, action.actor, action.reason) == (
        "publish_policy", "v2", "command:ada", "more room",
    )  # fmt: skip
    assert json.loads(action.before_json) == {"revision": FIRST}
    assert json.loads(action.after_json) == {
        "revision": "v2",
        "changes": ["revision: route-policy-v1 -> v2", "routes[fast-v2].queue_limit: 64 -> 128"],
    }


def test_an_edge_without_evidence_is_published_and_told_as_worth_a_look(fleet):
    """FBK-1: it does nothing until the evidence is there, and that refuses nothing."""
    unproven = replaced(policy().edges[0], required_evaluation_suite="core-chat-v9")
    published = done(fleet, publish(tree(edges=(unproven,))))
    told = (
        "edges[fast-v2 -> long-context-v4]: long-context-v4's model identity lacks a pass in "
        "core-chat-v9, so the edge is refused. Record the evaluation; the edge is usable from then "
        "on."
    )
    assert published.summary == (
        f"Published v2: 2 models, 5 routes, 1 fallback edges. Worth a look: {told}"
    )
    assert published.after["warnings"] == [told]
    assert in_force(fleet) == "v2"


def test_a_named_revision_of_a_draft_can_be_published(fleet):
    done(fleet, DraftPolicy(revision="v2", policy=with_route(queue_limit=11)))
    done(fleet, DraftPolicy(revision="v2", policy=with_route(queue_limit=12)))
    assert refused(fleet, publish(None, draft_revision=3)).code == "NO_SUCH_DRAFT"
    done(fleet, publish(None, draft_revision=1))
    with contextlib.closing(fleet.reader()) as connection:
        body = msgspec.json.decode(stored.policy(connection, "v2").body_json, type=RoutePolicy)
    assert body.routes[0].queue_limit == 11


@pytest.mark.parametrize(
    ("policy", "problem"),
    [
        (with_route(queue_limit=0), "routes[fast-v2].queue_limit: it is 0."),
        (with_route(queue_limt=1), "routes[fast-v2].queue_limt: there is no such field. Did you"),
        (with_route(identity_id="mid_x"), "routes[fast-v2].identity_id: no such model identity"),
        (
            with_route(tokenizer_revision="cl100k_base/chat-1"),
            "routes[fast-v2].tokenizer_revision: its model identity counts with o200k_base/chat-1.",
        ),
        (with_route(address="sim:none"), "routes[fast-v2].address: no profile 'none'"),
        (with_route(address="sim:"), "routes[fast-v2].address: 'sim:' is not `sim:PROFILE"),
        (
            with_route(provider_kind="openai", address="openai:http://127.0.0.1:1/v1"),
            "routes[fast-v2].address: it names no model; add model=NAME.",
        ),
        (
            with_route(provider_kind="kserve", address="openai:http://127.0.0.1:1/v1"),
            "routes[fast-v2].address: it is not `kserve:http://HOST:PORT?model=NAME`.",
        ),
        (
            with_route(
                provider_kind="openai", address="openai:http://169.254.169.254/v1?model=m"
            ),
            "routes[fast-v2].address: its host is a link-local or metadata address",
        ),
        (
            tree(edges=(edge("fast-v2", "nowhere"),)),
            "edges[fast-v2 -> nowhere]: the policy has no route nowhere.",
        ),
        (
            tree(edges=(edge("fast-v2", "fast-v2"),)),
            "edges[fast-v2 -> fast-v2]: they go in a circle: fast-v2 -> fast-v2.",
        ),
        (tree(ordering=("route_id", "cost")), "ordering: route_id tells any two routes apart"),
        (
            tree(retry_after_ms=0),
            "retry_after_ms: it is 0. Set it to 1 or more.",
        ),
    ],
)  # fmt: skip
def test_a_policy_that_could_not_work_is_refused_with_the_path_of_each_problem(
    fleet, policy, problem
):
    said = refused(fleet, publish(policy))
    assert said.code == "INVALID_POLICY"
    assert any(each.startswith(problem) for each in said.problems), said.problems
    assert in_force(fleet) == FIRST


def test_a_fallback_graph_with_a_cycle_is_refused_at_publishing(fleet):
    """FBK-1: an edge can't loop."""
    circle = tree(
        edges=(
            edge("fast-v2", "long-context-v4"),
            edge("long-context-v4", "fast-v3"),
            edge("fast-v3", "fast-v2"),
        )
    )
    said = refused(fleet, publish(circle))
    assert said.code == "INVALID_POLICY"
    assert (
        "edges[fast-v3 -> fast-v2]: they go in a circle: "
        "fast-v2 -> long-context-v4 -> fast-v3 -> fast-v2. "
        "Drop one of them."
    ) in said.problems


def test_all_problems_are_told_at_once(fleet):
    several = with_route(queue_limit=0, address="sim:none", max_input_tokens=0)
    several["retry_after_ms"] = 0
    assert len(refused(fleet, publish(several)).problems) == 4


def test_where_a_cost_budget_applies_every_route_needs_a_price(fleet):
    """CST-7: unpriced is refused where a cost budget applies; a tenant's regions count."""
    moved = tree()
    fresh = {**moved["routes"][0], "route_id": "fresh-v1", "region": "us-east"}
    with contextlib.closing(fleet.reader()) as connection:
        identities = [each.identity_id for each in stored.identities(connection)]
    assert fresh["identity_id"] in identities
    unpriced = "mid_unpriced"
    moved["routes"].append(fresh)
    moved["models"][0]["primary_routes"].append("fresh-v1")
    del moved["models"][0]["canary"]
    done(fleet, publish(moved))  # priced by its identity
    del moved["revision"]
    moved["routes"][-1]["identity_id"] = unpriced
    said = refused(fleet, publish(moved, revision="v3", based_on="v2"))
    assert [each.split(",")[0] for each in said.problems] == [
        "routes[fresh-v1].identity_id: no such model identity is registered. Register it first: "
        "register_identity",
        "routes[fresh-v1]: route fresh-v1 has no price in rates-1",
    ]
    assert "research-lab has a cost budget" in said.problems[1]
    # Without a budget that reaches its region nothing is missed.
    for tenant_id, quota in TENANTS.items():
        if quota.budget_pico is not None:
            freed = msgspec.structs.replace(quota, allowed_regions=("eu-west",))
            if freed != quota:
                done(fleet, SetTenant(tenant_id=tenant_id, quota=freed, reason="moved"))
    said = refused(fleet, publish(moved, revision="v3", based_on="v2"))
    assert len(said.problems) == 1


def test_a_revision_is_published_once_and_never_changes(fleet):
    done(fleet, publish(with_route(queue_limit=9)))
    assert refused(fleet, publish(tree())).code == "REVISION_EXISTS"
    assert refused(fleet, DraftPolicy(revision="v2", policy=tree())).code == "REVISION_EXISTS"
    same = with_route(queue_limit=9) | {"revision": "v3"}
    said = refused(fleet, publish(same, revision="v3", based_on="v2"))
    assert said.code == "NO_CHANGE"


@pytest.mark.parametrize("name", ["", " v2", "v 2", "v2\n", "-v2", "v" * 101, "v2+1", SECRETS[0]])
def test_a_revision_has_a_plain_name(fleet, name):
    assert refused(fleet, publish(tree(), revision=name)).code == "BAD_NAME"


def test_who_did_not_see_what_is_in_force_is_told(fleet):
    done(fleet, DraftPolicy(revision="v3", policy=with_route(queue_limit=5) | {"revision": "v3"}))
    done(fleet, publish(with_route(queue_limit=9)))
    said = refused(fleet, PublishPolicy(revision="v3", reason="r"))
    assert said.code == "MOVED"
    assert "in force is v2, and this is based on route-policy-v1" in said.message
    assert refused(fleet, publish(tree(), revision="v4", based_on=None)).code in (
        "INVALID_POLICY",
        "MOVED",
    )
    done(fleet, PublishPolicy(revision="v3", based_on="v2", reason="seen"))
    assert in_force(fleet) == "v3"


def test_an_earlier_policy_comes_back_under_a_new_revision_that_says_so(fleet):
    done(fleet, publish(with_route(queue_limit=9)))
    assert refused(fleet, ReturnToPolicy(to="v9", revision="v3", reason="r")).code == (
        "NO_SUCH_POLICY"
    )
    back = done(fleet, ReturnToPolicy(to=FIRST, revision="v3", reason="worse"), actor=OPERATOR)
    assert back.summary.startswith("Returned to route-policy-v1, published as v3: ")
    assert in_force(fleet) == "v3"
    with contextlib.closing(fleet.reader()) as connection:
        assert json.loads(actions(connection)[-1].after_json)["returned_to"] == FIRST
        found = differences(policy_of(connection, FIRST), policy_of(connection, "v3"))
        assert [each.path for each in found] == ["revision"]
        assert policy_of(connection, "none") is None
    again = refused(fleet, ReturnToPolicy(to=FIRST, revision="v4", reason="r"))
    assert again.code == "NO_CHANGE"


@pytest.mark.parametrize("secret", SECRETS)
def test_a_credential_is_never_written_wherever_it_stands(fleet: Fleet, secret: str):
    """SEC-1: credentials are names of environment variables; a value is refused, unrepeated."""
    address = f"openai:http://127.0.0.1:1/v1?model=m&key={secret.split()[-1]}"
    attempts = [
        publish(with_route(provider_kind="openai", address=address)),
        publish(with_route(region=secret)),
        publish(with_route(api_key=secret)),
        publish({**tree(), secret: 1}),
        DraftPolicy(revision="v2", policy=with_route(address=address)),
        DraftPolicy(revision="v2", policy=tree(), note=f"the key is {secret}"),
        publish(with_route(queue_limit=9), reason=f"for {secret}"),
    ]
    for operation in attempts:
        said = refused(fleet, operation)
        assert isinstance(said, Refused)
        assert secret not in repr(said)
        assert "credential" in repr(said)
    assert_nowhere_in(fleet.ledger.parent, secret)


def test_a_body_that_is_nested_without_end_is_refused(fleet):
    for depth in (900, 100_000):
        text = '{"revision": "v2", "policy": ' + '{"a":' * depth + "1" + "}" * depth + "}"
        operation = read("draft_policy", text.encode())
        if not isinstance(operation, Refused):
            operation = refused(fleet, operation)
        assert operation.code in ("INVALID_REQUEST", "INVALID_POLICY")


def test_publishing_needs_an_admin_and_a_reason_and_returning_an_operator(fleet):
    assert refused(fleet, publish(tree()), actor=OPERATOR).code == "ROLE_MISSING"
    assert refused(fleet, publish(tree(), reason=""), actor=ADMIN).code == "REASON_MISSING"


def test_what_is_published_while_an_objective_acts_stands_under_its_action(fleet):
    """SLO-4: the declared policy is what people compare and return to; the derived one decides."""
    acting = ControlAction(
        action="slo.limit_prefill", subject="fast-v2", actor="rule", acted_at_us=1, reason="burn",
        before_json="{}", after_json="{}", episode="e-1", phase="applied",
    )  # fmt: skip
    with Store.open(fleet.ledger) as store:
        store.append((acting,)).result()
    done(fleet, publish(with_route(queue_limit=40)))
    assert in_force(fleet) == "v2+3"
    with contextlib.closing(fleet.reader()) as connection:
        derived, declared = policy_of(connection, "v2+3"), declared_policy(connection)
    assert derived is not None
    assert declared is not None
    assert (derived.routes[0].queue_limit, derived.routes[1].queue_limit) == (20, 64)
    assert (declared.revision, declared.routes[0].queue_limit) == ("v2", 40)
    more = with_route(queue_limit=50) | {"revision": "v3"}
    done(fleet, publish(more, revision="v3", based_on="v2"))
    assert in_force(fleet).startswith("v3+")
