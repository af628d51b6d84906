"""Tenants: a quota in words, its form in units and ms, many months with one query."""

import pytest
from django.http import QueryDict
from django.test import Client
from hypothesis import given
from hypothesis import strategies as st

from gateway.pages.acting import tree_of
from gateway.pages.tenants_view import fields, limits
from gateway.quota import Quota
from ledger.reading import reader
from tests.gateway.pages.test_receipts import text_of
from tests.ledger.seeded import Plans
from tests.sample_console import Console

amounts = st.none() | st.integers(1, 2**60)


@given(amounts, amounts, amounts)
def test_what_the_form_shows_is_what_it_sends_back(budget, deadline, most):
    """CST-9: exact, in units and milliseconds."""
    quota = Quota(
        in_flight_limit=3,
        budget_pico=budget,
        default_deadline_us=deadline,
        default_max_cost_pico=most,
    )
    form = QueryDict(mutable=True)
    form["tenant_id"], form["reason"] = "a", "r"
    kinds = {"_pico": ":units", "_us": ":ms"}
    for name, value in fields(quota).items():
        kind = next((kind for end, kind in kinds.items() if name.endswith(end)), "")
        if not isinstance(getattr(quota, name), tuple):
            form[f"quota.{name}{kind}"] = value
    sent = tree_of(form, "set_tenant")["quota"]
    assert sent["budget_pico"] == budget
    assert sent["default_deadline_us"] == deadline
    assert sent["default_max_cost_pico"] == most


@pytest.mark.parametrize("text", ["ten", "1,5", "1e99", "0.0000000000001"])
def test_an_amount_that_is_none_is_refused_by_the_name_of_its_field(text: str):
    form = QueryDict(mutable=True)
    form["quota.budget_pico:units"] = text
    with pytest.raises(ValueError, match=r"^quota\.budget: "):
        tree_of(form, "set_tenant")


def test_a_quota_is_told_in_words_with_its_units():
    said = {
        one.label: (one.value, one.given)
        for one in limits(
            Quota(in_flight_limit=1_600, budget_pico=12 * 10**12, default_deadline_us=8_000_000)
        )
    }
    assert said["Requests in flight"] == ("1,600", True)
    assert said["Budget of a month"] == ("12.000000 units", True)
    assert said["Deadline, where a request has none"] == ("8.000\u00a0s", True)
    assert said["Regions"] == ("any", False)


def test_the_months_of_all_tenants_take_one_query_of_costs_a_zone(sample: Console, viewer: Client):
    with Plans(reader(sample.folder / "ledger.sqlite3")) as plans:
        said = text_of(viewer.get("/tenants"))
    assert "borealis" in said
    sums = [one for one in plans.statements if "rollup" in one and "tenant" in one]
    three = len(sums)
    with Plans(reader(sample.folder / "ledger.sqlite3")) as plans:
        viewer.get("/tenants/borealis")
    one = len([each for each in plans.statements if "rollup" in each and "tenant" in each])
    assert three <= 2 * one  # two zones, three tenants
