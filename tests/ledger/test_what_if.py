"""A rate table tried on past traffic, exactly and in bounded memory (CST-5)."""

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.queries.what_if import served
from ledger.rate_lookup import Priced, price_told
from ledger.rates import Rate, RateTable, Usage, Window
from ledger.reading import connect_read_only
from ledger.what_if import DAY_US, GROUPS_LIMIT, OTHERS, Served, as_if_in_effect, tried
from tests import factories
from tests.factories import NOW_US


def table(input_units=3, output_units=8, **overrides):
    rate = Rate(
        key="route-a",
        input_micro_per_mtok=input_units * 1_000_000,
        output_micro_per_mtok=output_units * 1_000_000,
        cached_input_micro_per_mtok=500_000,
        **overrides,
    )
    return RateTable(version="rates-2", effective_from_us=0, currency="units", rates=(rate,))


def read(path, since_us=0, until_us=NOW_US + 10**9, **options):
    connection = connect_read_only(path)
    found = list(served(connection, since_us, until_us, **options))
    connection.close()
    return found


def test_past_traffic_is_priced_by_the_table_and_compared_to_the_pico_unit(store, ledger_path):
    store.append(
        [
            *(factories.receipt(number) for number in range(1, 1_001)),
            factories.receipt(1_001, tenant_id="other", route_id="route-b", identity_id="mid_b"),
            factories.rejected_receipt(1_002),
        ]
    ).result()
    trial = tried(table(), read(ledger_path), ("tenant", "route"))
    (first, acme), (second, other) = trial.groups
    assert (first, second) == (("acme", "route-a"), ("other", "route-b"))
    assert (acme.requests, acme.before_pico, acme.by_table_pico) == (
        1_000, 3_600_000_000_000, 4_600_000_000_000
    )  # fmt: skip
    assert (other.compared, other.difference_pico, other.unpriced_by_table) == (0, None, 1)
    assert other.apart_before_pico == 3_600_000_000
    assert trial.whole.requests == 1_001


def test_the_period_is_half_open_and_every_page_size_reads_each_receipt_once(store, ledger_path):
    same_time = [factories.receipt(number, accepted_at_us=NOW_US) for number in range(1, 8)]
    store.append([*same_time, factories.receipt(9, accepted_at_us=NOW_US + 1)]).result()
    for page_rows in (1, 2, 3, 7, 8, 100):
        assert len(read(ledger_path, NOW_US, NOW_US + 1, page_rows=page_rows)) == 7
        assert len(read(ledger_path, NOW_US, NOW_US + 2, page_rows=page_rows)) == 8
    assert read(ledger_path, NOW_US + 2) == []


def test_a_resolved_unknown_counts_once_as_what_it_was_resolved_to(store, ledger_path):
    store.append([factories.receipt(1, status="unknown", output_tokens=0)]).result()
    before = read(ledger_path)
    (filed,) = store.append([factories.receipt(2)]).result()
    store.append([factories.receipt(1, revision=1, resolves_hash=filed.entry_hash)]).result()
    assert [one.output_tokens for one in before] == [0]
    assert sorted(one.output_tokens for one in read(ledger_path)) == [200, 200]


def row(**overrides):
    record = factories.receipt(**overrides)
    return Served(*[getattr(record, name) for name in Served._fields[:-1]])


def test_batches_and_further_meters_are_priced_as_on_the_receipt():
    batch = row(priority="batch", usage_json='{"reasoning":50}')
    trial = tried(
        table(batch_multiplier_permille=500, meters=(("reasoning", 10_000_000),)), [batch]
    )
    assert trial.whole.by_table_pico == (3_000_000_000 + 150 * 8_000_000 + 50 * 10_000_000) // 2


def test_what_was_unpriced_and_what_would_be_are_counted_and_never_zero_in_silence():
    trial = tried(table(unpriced=("output",)), [row(rate_key=None, cost_total_pico=0), row()])
    whole = trial.whole
    assert (whole.unpriced_before, whole.unpriced_by_table, whole.unpriced_both) == (1, 2, 1)


def test_cst_5_what_the_table_does_not_price_is_no_saving_and_stands_apart_with_its_cost():
    """Three that both price, two that the table doesn't, one that had no price before."""
    lost = row(route_id="route-b", identity_id="mid_b", rate_key="route-b")
    found = row(rate_key=None, cost_total_pico=0)
    whole = tried(table(), [row(), lost, row(), found, lost, row()]).whole
    assert (whole.requests, whole.compared) == (6, 3)
    assert (whole.before_pico, whole.by_table_pico) == (3 * 3_600_000_000, 3 * 4_600_000_000)
    assert whole.difference_pico == 3 * 1_000_000_000
    assert (whole.unpriced_by_table, whole.apart_before_pico) == (2, 2 * 3_600_000_000)
    assert (whole.unpriced_before, whole.apart_by_table_pico) == (1, 4_600_000_000)


@settings(max_examples=25)
@given(st.lists(st.sampled_from(["both", "before", "table", "neither"]), max_size=20))
def test_cst_5_every_request_is_compared_or_apart_and_no_cost_of_before_is_lost(kinds):
    made = {
        "both": row(),
        "before": row(route_id="route-b", identity_id="mid_b", rate_key="route-b"),
        "table": row(rate_key=None, cost_total_pico=0),
        "neither": row(route_id="b", identity_id="b", rate_key=None, cost_total_pico=0),
    }
    whole = tried(table(), [made[kind] for kind in kinds]).whole
    apart = whole.unpriced_before + whole.unpriced_by_table - whole.unpriced_both
    assert (whole.compared, whole.compared + apart) == (kinds.count("both"), len(kinds))
    assert whole.before_pico + whole.apart_before_pico == sum(
        made[kind].cost_total_pico for kind in kinds
    )


def test_cst_5_retries_and_hedges_are_priced_by_their_own_usage_and_route(store, ledger_path):
    """Two attempts of two routes; the second answered, the first had used 100 tokens."""
    priced = {"rate_key": "route-a", "cost_pico": 3_600_000_000}
    lost = {"input_tokens": 100, "output_tokens": 0, "rate_key": "route-b", "cost_pico": 7}
    store.append(
        [
            factories.attempt(1, attempt_id="first", route_id="route-b"),
            factories.attempt(1, attempt_id="second", ordinal=1),
            factories.attempt(1, attempt_id="third", ordinal=2),
            factories.attempt_event(1, attempt_id="first", outcome="unknown", cost_pico=0),
            factories.attempt_event(1, attempt_id="first", outcome="failed", **lost),
            factories.attempt_event(1, attempt_id="second", **priced),
            factories.attempt_event(
                1, attempt_id="third", input_tokens=None, output_tokens=None, cost_pico=None
            ),
            factories.receipt(
                1, attempts=3, cost_retry_and_hedge_pico=7, cost_total_pico=3_600_000_007
            ),
        ]
    ).result()
    both = msgspec.structs.replace(
        table(3), rates=(*table(3).rates, msgspec.structs.replace(table(5).rates[0], key="route-b"))
    )
    whole = tried(both, read(ledger_path)).whole
    assert (whole.before_pico, whole.retry_and_hedge_before_pico) == (3_600_000_007, 7)
    assert whole.by_table_pico == 5_100_000_000
    assert whole.retry_and_hedge_by_table_pico == 500_000_000
    without = tried(table(3), read(ledger_path)).whole  # no price for route-b
    assert (without.compared, without.unpriced_by_table) == (0, 1)


def test_retries_without_usage_behind_what_they_cost_are_unpriced():
    paid = row(cost_retry_and_hedge_pico=5, cost_total_pico=3_600_000_005)
    whole = tried(table(2, 8), [paid]).whole
    assert (whole.compared, whole.unpriced_by_table) == (0, 1)
    assert whole.apart_before_pico == 3_600_000_005


def test_a_rate_for_a_region_is_tried_where_the_route_is():
    both = msgspec.structs.replace(
        table(), rates=(*table(2).rates, *table(9, region="eu-west").rates)
    )
    here = tried(both, [row()], places={"route-a": ("openai", "eu-west")}).whole
    there = tried(both, [row()], places={"route-a": ("openai", "us-east")}).whole
    assert (here.by_table_pico, there.by_table_pico) == (10_600_000_000, 3_600_000_000)


TIERED = RateTable(
    version="rates-1", effective_from_us=0, currency="units",
    rates=(
        *table(2).rates,
        *table(1, service_tier="flex", windows=(Window(
            utc_offset_minutes=330, from_second=0, to_second=43_200),)).rates,
        *table(4, 16, service_tier="flex").rates,
        *table(3, region="eu-west", batch_multiplier_permille=333).rates,
    ),
)  # fmt: skip


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["", "default", "flex", "priority", "scale"]),
            st.sampled_from(["batch", "normal"]),
            st.integers(0, DAY_US),
            st.integers(0, 5),
        ),
        max_size=6,
    ),
    st.sampled_from(["us-east", "eu-west"]),
)
def test_cst_5_a_table_tried_on_what_it_priced_makes_no_difference(requests, region):
    """Whatever service tier the provider said: one that no rate has is priced as it was then."""
    made = []
    for tier, priority, at_us, tokens in requests:
        usage = Usage(input_tokens=7 * tokens, output_tokens=tokens)
        place = ("openai", region, tier)
        priced = price_told(
            TIERED, ("route-a",), usage, batch=priority == "batch", at_us=at_us, place=place
        )
        assert isinstance(priced, Priced)
        made.append(
            row(
                priority=priority, accepted_at_us=at_us, rate_key=priced.key,
                service_tier=tier or None, input_tokens=7 * tokens, output_tokens=tokens,
                cost_total_pico=priced.cost.total_pico,
            )
        )  # fmt: skip
    whole = tried(TIERED, made, places={"route-a": ("openai", region)}).whole
    assert (whole.compared, whole.by_table_pico) == (len(made), whole.before_pico)


def test_cst_5_a_tier_that_a_table_prices_anew_is_tried_at_that_price(store, ledger_path):
    """The receipt of one attempt says the tier; of several, the attempt that answered does."""
    tier = {"service_tier": "flex", "rate_key": "route-a"}
    alone = {"attempts": 1, "closes": 1, "service_tier": "flex"}
    store.append(
        [
            factories.receipt(1, **alone),
            factories.attempt(2, attempt_id="first"),
            factories.attempt(2, attempt_id="second", ordinal=1),
            factories.attempt_event(2, attempt_id="first", input_tokens=0, output_tokens=0,
                                    cost_pico=0, outcome="failed"),
            factories.attempt_event(2, attempt_id="second", **tier),
            factories.receipt(2, attempts=2),
        ]
    ).result()  # fmt: skip
    both = msgspec.structs.replace(
        table(), rates=(*table(2).rates, *table(5, service_tier="flex").rates)
    )
    whole = tried(both, read(ledger_path)).whole
    assert (whole.compared, whole.by_table_pico) == (2, 2 * 6_600_000_000)


def test_cst_7_a_request_of_which_nothing_ran_lacks_no_price():
    idle = row(status="failed", rate_key=None, input_tokens=0, output_tokens=0, cost_total_pico=0)
    whole = tried(table(fixed_pico=7), [idle, row()]).whole
    assert (whole.requests, whole.compared, whole.unpriced_before) == (2, 2, 0)
    assert whole.by_table_pico == 4_600_000_007


def test_groups_beyond_the_limit_are_added_up_as_others():
    rows = [row(tenant_id=f"t{number}") for number in range(GROUPS_LIMIT + 3)]
    trial = tried(table(), rows, ("tenant",))
    assert len(trial.groups) == GROUPS_LIMIT + 1
    assert dict(trial.groups)[(OTHERS,)].requests == 3
    assert sum(sums.by_table_pico for _, sums in trial.groups) == trial.whole.by_table_pico


@given(st.integers(0, 10**18), st.integers(0, 10**18))
def test_a_table_of_later_is_tried_at_the_same_time_of_day(at_us, effective_from_us):
    moved = as_if_in_effect(at_us, effective_from_us)
    assert moved % DAY_US == at_us % DAY_US
    assert moved >= max(at_us, effective_from_us)
    assert moved == at_us or moved < effective_from_us + DAY_US
