"""Rate tables drafted, compared, published ahead of their time (CST-5, CST-7)."""

import contextlib
import json

import msgspec
import pytest

from gateway.demo.fleet import FAST_V2, IDENTITIES, rate_table
from gateway.fleet_file.differences import differences
from gateway.fleet_file.named import named
from gateway.operations import anywhere
from gateway.operations.base import Done, Seen
from gateway.operations.rate_checks import LEAD_US, table_faults
from gateway.operations.rates import DraftRates, PublishRates, rates_of
from ledger.queries import configuration as stored
from ledger.queries import drafts
from ledger.rates import Rate, RateTable, Tier, Window
from tests.factories import NOW_US
from tests.gateway.operations.publishing import ADMIN, actions, done, refused
from tests.policy_factories import replaced
from tests.server_fixtures import Fleet

FIRST = "rates-1"
FAR_US = 4_000_000_000_000_000  # in the year 2096
FREE = {"input_micro_per_mtok": 0, "output_micro_per_mtok": 0, "cached_input_micro_per_mtok": 0}


class Stopped:
    """A clock that stands still."""

    def __init__(self, now_us: int) -> None:
        self._now_us = now_us

    def now_us(self) -> int:
        return self._now_us


def tree(effective_from_us: int | None = FAR_US, **first_rate) -> dict:
    """The demonstration's rates, those of the first key changed."""
    found = named(rate_table(effective_from_us or 0))
    found["rates"][0] |= first_rate
    del found["version"]
    if effective_from_us is None:
        del found["effective_from_us"]
    return found


def publish(table: dict | None, **fields) -> PublishRates:
    given = {"version": "rates-2", "based_on": FIRST, "reason": "a test"} | fields
    return PublishRates(table=table, **given)


def test_a_published_table_takes_effect_at_its_time_and_the_audit_log_says_what_changed(fleet):
    said = done(fleet, publish(tree(input_micro_per_mtok=3_000_000)))
    assert said.summary == (
        "Published the rate table rates-2, in effect from 2096-10-02T07:06:40+00:00."
    )
    with contextlib.closing(fleet.reader()) as connection:
        assert stored.rate_table_in_effect(connection, FAR_US - 1).version == FIRST
        assert stored.rate_table_in_effect(connection, FAR_US).version == "rates-2"
        action = actions(connection)[-1]
        found = differences(rates_of(connection, FIRST), rates_of(connection, "rates-2"))
    rate = f"rates[{FAST_V2.identity_id}].input_micro_per_mtok"
    assert f"{rate}: 2000000 -> 3000000" in json.loads(action.after_json)["changes"]
    assert [each.path for each in found] == ["effective_from_us", rate, "version"]


def test_a_table_without_a_time_takes_effect_soon_and_never_in_the_past(fleet):
    now_us = 2 * NOW_US
    result = anywhere.perform(
        fleet.ledger, publish(tree(effective_from_us=None)), ADMIN, clock=Stopped(now_us)
    )
    assert isinstance(result, Done)
    assert result.after["effective_from_us"] == now_us + LEAD_US
    for late in (1, now_us, now_us + LEAD_US - 1):
        again = publish(tree(late), version="rates-3", based_on="rates-2")
        said = anywhere.perform(fleet.ledger, again, ADMIN, clock=Stopped(now_us))
        assert said.problems[0].startswith(
            "effective_from_us: it has to be 5 s ahead: what was accepted keeps its price. Set it"
        )
    given = publish(
        tree(1), version="rates-3", based_on="rates-2", effective_from_us=now_us + LEAD_US
    )
    assert isinstance(anywhere.perform(fleet.ledger, given, ADMIN, clock=Stopped(now_us)), Done)


def test_a_table_that_takes_effect_after_every_calendar_is_refused(fleet):
    late = publish(tree(effective_from_us=None), effective_from_us=2**62)
    said = anywhere.perform(fleet.ledger, late, ADMIN, clock=Stopped(NOW_US))
    assert said.problems[0].startswith("effective_from_us: it is after the year 2999.")


def test_before_the_first_table_nothing_was_priced_so_that_it_may_lie_in_the_past(ledger_path):
    first = PublishRates(version=FIRST, table=tree(1), reason="a start")
    assert isinstance(anywhere.perform(ledger_path, first, ADMIN), Done)
    second = PublishRates(version="rates-2", table=tree(2), based_on=FIRST, reason="too late")
    assert anywhere.perform(ledger_path, second, ADMIN).code == "INVALID_RATES"


def test_a_draft_can_be_kept_compared_and_published(fleet):
    """CST-5: what is tried on past traffic before it is published is the draft."""
    unsound = tree(None, input_micro_per_mtok=-1)
    said = done(fleet, DraftRates(version="rates-2", table=unsound))
    assert said.after["problems"] == [
        f"rates[{FAST_V2.identity_id}].input_micro_per_mtok: it is -1. Set it to 0 or more."
    ]
    done(fleet, DraftRates(version="rates-2", table=tree(None, fixed_pico=7), note="per call"))
    with contextlib.closing(fleet.reader()) as connection:
        assert drafts.draft(connection, "rate_table", "rates-2").based_on == FIRST
        assert rates_of(connection, "rates-2").rates[0].fixed_pico == 7
        assert rates_of(connection, "rates-9") is None
        found = differences(rates_of(connection, FIRST), rates_of(connection, "rates-2"))
    assert f"rates[{FAST_V2.identity_id}].fixed_pico" in [each.path for each in found]
    done(fleet, publish(None, effective_from_us=FAR_US))
    assert refused(fleet, publish(None)).code == "VERSION_EXISTS"
    assert refused(fleet, publish(None, version="rates-9")).code == "NO_SUCH_DRAFT"


def test_of_two_who_publish_on_the_same_table_the_second_is_told(fleet):
    done(fleet, publish(tree()))
    said = refused(fleet, publish(tree(), version="rates-3"))
    assert said.code == "MOVED"
    assert said.message == (
        "The rate table published last is rates-2, and this is based on rates-1. Look at what "
        "differs, then publish with based_on set to rates-2."
    )


def test_a_route_in_force_that_loses_its_price_is_named_where_a_budget_applies(fleet: Fleet):
    """CST-7"""
    table = tree()
    del table["rates"][0]
    said = refused(fleet, publish(table))
    assert said.problems[0] == (
        "rates: route fast-v2 has no price in rates-2, and back-office has a cost budget. "
        "Publish rates for the route or its model identity first."
    )
    assert said.message.endswith(
        "A table is whole: what it leaves out has no price. Take the other prices from rates-1: "
        "`manage.py rates import … --version rates-2 --over rates-1`, or copy them from "
        "`manage.py rates show rates-1`."
    )
    unsound = refused(fleet, publish(tree(input_micro_per_mtok=-1)))
    assert unsound.message.endswith("Correct the draft and publish it again.")


def _rate(**changed) -> Rate:
    return Rate(**({"key": "k"} | FREE | changed))


def _tier(over: int, **changed) -> Tier:
    return Tier(**({"over_input_tokens": over} | FREE | changed))


@pytest.mark.parametrize(
    ("rates", "problem"),
    [
        ((), "rates: there is none."),
        ((_rate(key=""),), "rates[0].key: it is empty."),
        ((_rate(output_micro_per_mtok=-5),), "rates[k].output_micro_per_mtok: it is -5."),
        ((_rate(), _rate()), "rates[k].key: an earlier rate has this key for the same use"),
        ((_rate(tiers=(_tier(5), _tier(5))),), "rates[k].tiers: two have one threshold."),
        ((_rate(tiers=(_tier(-1),)),), "rates[k].tiers[-1].over_input_tokens: it is -1."),
        ((_rate(batch_multiplier_permille=1001),), "rates[k].batch_multiplier_permille: it is"),
        ((_rate(meters=(("steps", 1),)),), "rates[k].meters[0]: it is no meter with a price"),
        ((_rate(meters=(("web_search", -1),)),), "rates[k].meters[0]: it is no meter with a"),
        ((_rate(unpriced=("web_search",)),), "rates[k].unpriced[0]: it is no meter that a rate"),
        ((_rate(service_tier="auto"),), "rates[k auto].service_tier: auto is the standard tier."),
        (
            (_rate(valid_from_us=5, valid_to_us=5),),
            "rates[k 5].valid_to_us: it ends before it begins.",
        ),
        (
            (_rate(windows=(Window(utc_offset_minutes=0, from_second=5, to_second=5),)),),
            "rates[k].windows[0]: from 5 to 5 is no span of a day.",
        ),
        (
            (_rate(region="eu;tier=priority"),),
            "rates[k eu;tier=priority].region: it has one of # ; =, which tell rates apart",
        ),
        ((msgspec.structs.replace(_rate(), key="k#region=eu"),), "rates[k#region=eu].key: it has"),
        (
            (_rate(valid_to_us=10), _rate(valid_from_us=9)),
            "rates[k 9].key: an earlier rate has this key for the same use and time.",
        ),
    ],
)  # fmt: skip
def test_rates_that_could_not_price_are_refused_each_by_its_path(fleet, rates, problem):
    table = RateTable(version="r", effective_from_us=FAR_US, currency="units", rates=rates)
    with contextlib.closing(fleet.reader()) as connection:
        seen = Seen(connection=connection, now_us=NOW_US, actor=ADMIN)
        lines = [fault.shown(named(table)) for fault in table_faults(table, seen)]
    assert any(line.startswith(problem) for line in lines), lines


def test_dated_rates_of_one_key_that_follow_each_other_are_sound(fleet):
    rates = (_rate(valid_to_us=10), _rate(valid_from_us=10), _rate(region="eu"))
    table = RateTable(version="r", effective_from_us=FAR_US, currency="units", rates=rates)
    with contextlib.closing(fleet.reader()) as connection:
        seen = Seen(connection=connection, now_us=NOW_US, actor=ADMIN)
        assert list(table_faults(table, seen)) == []


def test_a_new_price_holds_for_what_is_accepted_after_it_without_a_restart(fleet):
    """SPEC 2: the table in effect at acceptance prices a request."""
    with fleet.serving() as server:
        key = server.keys["support-desk"]
        asked = {"max_tokens": 4}
        before = json.loads(server.chat("hello", key=key, **asked)[2])["receipt"]
        assert before["rate_table_version"] == FIRST
        priced = tree(None)
        priced["rates"] = [
            named(
                Rate(
                    key=each.identity_id, input_micro_per_mtok=10**9, output_micro_per_mtok=10**9,
                    cached_input_micro_per_mtok=10**9,
                )
            )
            for each in IDENTITIES
        ]  # fmt: skip
        made = done(fleet, publish(priced))
        effective_us = made.after["effective_from_us"]
        versions = []
        while not versions or versions[-1][1] == FIRST:
            receipt = json.loads(server.chat("hello", key=key, **asked)[2])["receipt"]
            versions.append((receipt["request_id"], receipt["rate_table_version"]))
        with contextlib.closing(fleet.reader()) as connection:
            rows = dict(
                connection.execute("SELECT request_id, accepted_at_us FROM receipt").fetchall()
            )
    assert versions[-1][1] == "rates-2"
    for request_id, version in versions:
        assert version == ("rates-2" if rows[request_id] >= effective_us else FIRST)


def test_the_bytes_of_a_table_are_what_was_asked(fleet):
    done(fleet, publish(tree()))
    with contextlib.closing(fleet.reader()) as connection:
        body = msgspec.json.decode(
            stored.rate_table(connection, "rates-2").body_json, type=RateTable
        )
    assert body == replaced(rate_table(FAR_US), version="rates-2")


def test_a_table_in_which_the_price_of_a_route_ends_is_refused_with_the_time(fleet):
    said = refused(fleet, publish(tree(valid_to_us=FAR_US + 60_000_000)))
    assert said.code == "INVALID_RATES"
    assert any(
        "has no price in rates-2 from 2096-10-02T07:07:40+00:00 on, and" in problem
        for problem in said.problems
    )


def test_a_table_in_another_currency_than_the_ledgers_is_refused(fleet):
    """Its sums, budgets and holds would add dollars to units."""
    said = refused(fleet, publish(tree() | {"currency": "USD"}))
    assert said.problems == (
        "currency: every table of this ledger is in units. Convert the prices and say units.",
    )
