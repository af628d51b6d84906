"""Policies and rate tables: lists, one of each, differences, drafts, publishing by form."""

from urllib.parse import urlencode

import msgspec
import pytest
from django.http import QueryDict
from django.test import Client

from gateway.demo.fleet import policy as demo_policy
from gateway.demo.fleet import rate_table as demo_rates
from gateway.operations.policies import policy_of
from gateway.operations.rates import rates_of
from gateway.pages.acting import tree_of
from gateway.pages.policies_view import text_of as toml_of
from gateway.pages.rates_view import moved, rows
from ledger.queries.configuration import current_policy, policies_before, rate_tables
from ledger.rate_changes import changes
from ledger.rates import Rate, RateTable, Tier, Window
from ledger.reading import connect_read_only, reader
from ledger.store import Store
from tests import factories
from tests.gateway.pages.conftest import LogIn
from tests.gateway.pages.test_receipts import HX, text_of
from tests.ledger.seeded import Plans

SMALL = {
    "route_policy", "rate_table", "draft", "d", "evaluation_result", "model_identity", "tenant", "t"
}  # fmt: skip
"""Tables of one row a publication, not a request."""
PAGES = (
    "/policies", "/policies/compare", "/policies/revision/route-policy-v1", "/rates",
    "/rates/compare", "/rates/history", "/rates/history?key=fast-v2",
)  # fmt: skip


@pytest.fixture
def version(own_ledger) -> str:
    """The version of the demonstration's rate table."""
    connection = connect_read_only(own_ledger)
    (table,) = rate_tables(connection)
    connection.close()
    return table.version


def draft_form(revision: str, **changed) -> dict[str, str]:
    policy = msgspec.structs.replace(demo_policy(), **changed)
    return {
        "revision": revision, "policy:toml": toml_of(policy, "revision"), "next": "/policies",
    }  # fmt: skip


def test_a_policy_is_readable_whole(own_ledger, viewer: Client):
    said = text_of(viewer.get("/policies/revision/route-policy-v1"))
    for words in (
        "in force", "assist-long", "fast-v3-rollout", "canary 20 %: fast-v3", "core-chat-v1",
        "sim:llama-3.1-8b-rtx4090", "e2e, then cost, then route id", "[[routes]]",
    ):  # fmt: skip
        assert words in said
    assert "Publish this draft" not in said
    assert viewer.get("/policies/revision/none").status_code == 404


def test_a_draft_is_kept_checked_compared_and_published_by_form(own_ledger, log_in: LogIn):
    operator, admin = log_in("operator"), log_in("admin")
    answer = operator.post("/act/draft_policy", draft_form("v2/next", probe_allowance=3))
    assert (answer.status_code, answer["Location"]) == (302, "/policies")
    assert "v2/next" in text_of(operator.get("/policies"))
    said = text_of(operator.get("/policies/revision/v2/next"))
    assert "can be published" in said
    assert "Publish this draft" not in said
    query = urlencode({"before": "route-policy-v1", "after": "v2/next"})
    said = text_of(operator.get(f"/policies/compare?{query}"))
    assert "probe_allowance" in said
    assert "2 differences" in said  # and the revision
    assert "Publish this draft" in text_of(admin.get("/policies/revision/v2/next"))
    form = {"revision": "v2/next", "based_on": "route-policy-v1", "reason": "more probes"}
    assert admin.post("/act/publish_policy", form).status_code == 302
    connection = connect_read_only(own_ledger)
    current = current_policy(connection)
    published = policy_of(connection, "v2/next")
    connection.close()
    assert current is not None
    assert current.revision == "v2/next"
    assert published == msgspec.structs.replace(
        demo_policy(), revision="v2/next", probe_allowance=3
    )
    back = {"to": "route-policy-v1", "revision": "v3", "reason": "too many probes"}
    assert "Return to this policy" in text_of(operator.get("/policies/revision/route-policy-v1"))
    assert operator.post("/act/return_to_policy", back).status_code == 302
    assert "in force" in text_of(operator.get("/policies/revision/v3"))


def test_a_draft_that_can_t_be_published_says_every_fault_with_its_place(own_ledger, log_in: LogIn):
    client = log_in("admin")
    client.post("/act/draft_policy", draft_form("v2", retry_after_ms=0, probe_allowance=-1))
    said = text_of(client.get("/policies/revision/v2"))
    assert "can't be published yet: 2 problems" in said.replace("&#x27;", "'")
    assert "retry_after_ms" in said
    refused = client.post("/act/publish_policy", {"revision": "v2", "reason": "r"})
    assert refused.status_code == 422
    assert "INVALID_POLICY" in refused.content.decode()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("routes = [", "policy is no TOML: line 1"),
        ("x = 1979-05-27T07:32:00", "has no zone"),
        ("x = " + "[" * 2_000 + "]" * 2_000, "nested too deeply"),
        ("x = '" + "a" * 5_000_000 + "'", "longer than"),
    ],
)
def test_a_text_that_is_no_policy_is_refused_with_its_place(text, said):
    form = QueryDict(mutable=True)
    form["revision"], form["policy:toml"] = "v2", text
    with pytest.raises(ValueError, match=said):
        tree_of(form, "draft_policy")


def test_moments_of_a_text_become_microseconds():
    form = QueryDict(mutable=True)
    form["version"], form["table:toml"] = "v", "effective_from_us = 1970-01-01T00:00:01Z"
    assert tree_of(form, "draft_rates")["table"] == {"effective_from_us": 1_000_000}


def test_older_revisions_are_a_page_further(own_ledger, viewer: Client):
    body = msgspec.json.encode(demo_policy()).decode()
    with Store.open(own_ledger) as store:
        store.append(
            [factories.route_policy(revision=f"p-{each}", body_json=body) for each in range(60)]
        ).result()
    first = viewer.get("/policies").content.decode()
    assert ">p-59<" in first
    assert ">p-9<" not in first
    (link,) = [part.split('"')[0] for part in first.split('href="')[1:] if "before=" in part[:40]]
    second = viewer.get(link).content.decode()
    assert ">p-9<" in second
    assert ">route-policy-v1<" in second
    assert viewer.get("/policies?before=x").status_code == 400
    connection = connect_read_only(own_ledger)
    assert [one.record.revision for one in policies_before(connection, None, 2)] == ["p-59", "p-58"]
    connection.close()


def test_an_unknown_name_can_t_be_compared(own_ledger, viewer: Client):
    for path in ("/policies/compare?before=none", "/rates/compare?before=none"):
        answer = viewer.get(path)
        assert answer.status_code == 400
        assert "no published" in text_of(answer)


def test_a_rate_table_is_drafted_tried_published_and_has_a_history(
    own_ledger, log_in: LogIn, version: str
):
    """CST-5, CST-7."""
    client = log_in("admin")
    text = toml_of(demo_rates(0), "version", "effective_from_us").replace("2_000_000", "3_000_000")
    form = {"version": "dearer", "table:toml": text, "next": "/rates"}
    assert client.post("/act/draft_rates", form).status_code == 302
    assert "no longer the latest" not in text_of(client.get("/rates"))
    said = text_of(client.get(f"/rates/compare?before={version}&after=dearer"))
    assert "+50 %" in said
    page = text_of(client.get("/rates/version/dearer?within=24h"))
    assert "No requests in this range" in page
    odd = client.get("/rates/version/dearer?within=3y")
    assert odd.status_code == 400
    assert "That can't be tried: within: write one of 1h" in text_of(odd)
    form = {"version": "dearer", "based_on": version, "reason": "the new contract"}
    assert client.post("/act/publish_rates", form).status_code == 302
    connection = connect_read_only(own_ledger)
    table = rates_of(connection, "dearer")
    connection.close()
    assert table is not None
    assert "to come" in text_of(client.get("/rates"))
    said = text_of(client.get(f"/rates/history?key={table.rates[0].key}"))
    assert "dearer" in said
    assert version in said
    assert "Nothing is called that" in text_of(client.get("/rates/history?key=nothing"))
    route, *_ = demo_policy().routes
    said = text_of(client.get(f"/rates/history?key={route.route_id}"))
    assert f"{route.route_id} is priced as {route.identity_id}" in said
    assert client.get("/rates/version/none").status_code == 404


def test_a_trial_adds_up_to_what_the_requests_cost(ledger_path, viewer: Client):
    """CST-5: on the page as in the command."""
    from gateway.clock import SystemClock
    from tests.sample_console import TABLE, fill

    fill(ledger_path, count=60, end_us=SystemClock().now_us(), span_us=3_600_000_000)
    said = text_of(viewer.get(f"/rates/version/{TABLE.version}?within=24h"))
    assert "Difference 0.000000 units" in said
    assert "Not compared 0 unpriced by this table, 0 unpriced before" in said
    one = msgspec.structs.replace(TABLE, version="one-rate", rates=TABLE.rates[:1])
    with Store.open(ledger_path) as store:
        store.append([factories.rate_table(one)]).result()
    url = "/rates/version/one-rate?within=24h"
    rows = viewer.get(f"{url}&as=json&table=trial").json()["rows"]
    whole = {row["Unpriced by this table"] for row in rows if row["By this table"] == "unpriced"}
    assert whole
    assert "0" not in whole
    for row in rows:
        none = row["Unpriced by this table"] == row["Requests"]
        assert none == (row["Before"] is row["Difference"] is None)


def test_a_rate_shows_every_price_and_term_that_it_has():
    rate = Rate(
        key="m", input_micro_per_mtok=3_000_000, output_micro_per_mtok=15_000_000,
        cached_input_micro_per_mtok=300_000, fixed_pico=10**9, batch_multiplier_permille=500,
        tiers=(Tier(over_input_tokens=200_000, input_micro_per_mtok=6_000_000,
                    output_micro_per_mtok=22_500_000, cached_input_micro_per_mtok=600_000),),
        windows=(Window(from_second=0, to_second=3_600, utc_offset_minutes=0),), valid_to_us=9,
    )  # fmt: skip
    (row,) = rows([rate])
    assert (row.input, row.cached_input, row.output) == ("3.00", "0.30", "15.00")
    assert row.others == (
        "request 0.001", "cached input above 200,000 tokens 0.60",
        "input above 200,000 tokens 6.00", "output above 200,000 tokens 22.50",
    )  # fmt: skip
    assert row.terms == (
        "batch 50 %", "a tier prices the whole request, above its limit", "00:00:00-01:00:00 UTC",
    )  # fmt: skip
    assert rows([rate], "x") == []
    before = RateTable(version="a", effective_from_us=0, currency="USD", rates=(rate,))
    after = msgspec.structs.replace(
        before, rates=(msgspec.structs.replace(rate, input_micro_per_mtok=4_000_000),)
    )
    (change,) = moved(changes(before, after))
    assert (change.what, change.before, change.after, change.share, change.gone_up) == (
        "input", "3.00", "4.00", "+33 1/3 %", True,
    )  # fmt: skip


@pytest.mark.parametrize("path", PAGES)
def test_no_page_reads_a_large_table_from_end_to_end(own_ledger, viewer: Client, path: str):
    viewer.get(path)
    with Plans(reader(own_ledger)) as plans:
        assert viewer.get(path).status_code == 200
    scans = [each for each in plans.scans_of_large_tables() if each.split()[1] not in SMALL]
    assert scans == []


@pytest.mark.parametrize("path", [*PAGES[:2], *PAGES[3:6]])
def test_a_page_comes_whole_or_as_its_partial_and_empty_it_says_what_to_do(
    viewer: Client, path: str
):
    whole = viewer.get(path)
    assert whole.status_code == 200
    assert any(
        words in text_of(whole)
        for words in ("No policy yet", "No rate table yet", "Nothing to compare", "Whose price?")
    )
    part = viewer.get(path, headers=HX).content
    assert b"<html" not in part
    assert b'id="results"' in part
