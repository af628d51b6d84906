"""The bridge between two periods' costs (CST-4): hand-computed, and exact for any two periods."""

from hypothesis import given
from hypothesis import strategies as st

from ledger.bridge import EFFECTS, Cell, bridge
from ledger.queries.bridge import bridge_between, cells
from ledger.reading import connect_read_only
from ledger.rollups.projection import Rollups
from ledger.store import Store
from ledger.zones import Period
from tests.ledger.receipts import HOUR_US, T0_US, receipt


def cell(requests, input_tokens=0, input_pico=0, **fields):
    values = {
        "requests": requests, "input_tokens": input_tokens, "cached_input_tokens": 0,
        "output_tokens": 0, "input_pico": input_pico, "cached_input_pico": 0, "output_pico": 0,
        "request_pico": 0,
    }  # fmt: skip
    return Cell(**(values | fields))


def effects(before, after):
    return dict(bridge(before, after).effects)


def test_CST_4_one_factor_at_a_time_has_the_whole_difference():
    base = {("m", "a"): cell(10, 1_000, 5_000)}  # 100 tokens a request at 5 pico
    nothing = dict.fromkeys(EFFECTS, 0)
    assert effects(base, base) == nothing
    assert effects(base, {("m", "a"): cell(20, 2_000, 10_000)}) == nothing | {"volume": 5_000}
    assert effects(base, {("m", "a"): cell(10, 3_000, 15_000)}) == nothing | {"token_mix": 10_000}
    assert effects(base, {("m", "a"): cell(10, 1_000, 4_000)}) == nothing | {"price": -1_000}
    retried = {("m", "a"): cell(10, 1_000, 5_000, retry_and_hedge_pico=700)}
    assert effects(base, retried) == nothing | {"retries_and_hedges": 700}
    moved = {("m", "b"): cell(10, 1_000, 9_000)}
    assert effects(base, moved) == nothing | {"route_mix": 4_000}
    other_model = {("n", "c"): cell(10, 1_000, 9_000)}
    assert effects(base, other_model) == nothing | {"model_mix": 4_000}


def test_CST_4_a_hand_computed_month():
    # March: 100 requests of 10 tokens at 2 on route a. April: 150 requests, a third on route b,
    # which costs 4 a token; route a now costs 3 and requests there have 12 tokens.
    march = {("m", "a"): cell(100, 1_000, 2_000)}
    april = {("m", "a"): cell(100, 1_200, 3_600), ("m", "b"): cell(50, 500, 2_000)}
    assert effects(march, april) == {
        "volume": 1_000,  # 50 more at 20 each
        "model_mix": 0,
        "route_mix": 1_000,  # 50 of 150 at 40 in place of 20
        "token_mix": 400,  # 100 requests, 2 more tokens at 2
        "price": 1_200,  # 1,200 tokens, 1 more each
        "retries_and_hedges": 0,
    }
    assert bridge(march, april).after_pico - bridge(march, april).before_pico == 3_600


def test_CST_4_parts_of_a_pico_unit_go_to_the_largest_remainder_and_of_equals_to_the_first():
    base = {("m", "a"): cell(3, 3, 4)}  # a token a request, at 4/3
    nothing = dict.fromkeys(EFFECTS, 0)
    # One request more is 4/3, a higher price of four tokens 7 - 16/3 = 5/3: together 3.
    dearer = {("m", "a"): cell(4, 4, 7)}
    assert effects(base, dearer) == nothing | {"volume": 1, "price": 2}
    # 4/3, then four tokens more 16/3, then 9 - 32/3 = -5/3: together 5, each with a third left.
    longer = {("m", "a"): cell(4, 8, 9)}
    assert effects(base, longer) == nothing | {"volume": 2, "token_mix": 5, "price": -2}


def test_CST_4_from_and_to_a_period_of_nothing_all_of_it_is_volume():
    base = {("m", "a"): cell(10, 1_000, 5_000), ("n", "b"): cell(30, 300, 90)}
    nothing = dict.fromkeys(EFFECTS, 0)
    assert effects({}, base) == nothing | {"volume": 5_090}
    assert effects(base, {}) == nothing | {"volume": -5_090}
    assert effects({}, {}) == nothing


def test_CST_4_a_meter_that_is_used_for_the_first_time_is_a_mix_of_tokens_and_no_price():
    base = {("m", "a"): cell(10, 1_000, 5_000)}
    nothing = dict.fromkeys(EFFECTS, 0)
    for meter in ("cached_input", "output"):
        more: dict[str, int] = {f"{meter}_tokens": 40, f"{meter}_pico": 600}
        used = {("m", "a"): cell(10, 1_000, 5_000, **more)}
        assert effects(base, used) == nothing | {"token_mix": 600}
        assert effects(used, base) == nothing | {"token_mix": -600}


amounts = st.integers(0, 10**15)


@st.composite
def drawn_cell(draw):
    tokens = [draw(st.integers(0, 10**6)) for _ in range(3)]
    costs = [draw(amounts) if count else 0 for count in tokens]
    return Cell(
        requests=draw(st.integers(1, 1000)), input_tokens=tokens[0],
        cached_input_tokens=tokens[1], output_tokens=tokens[2], input_pico=costs[0],
        cached_input_pico=costs[1], output_pico=costs[2], request_pico=draw(amounts),
        retry_and_hedge_pico=draw(amounts),
    )  # fmt: skip


periods = st.dictionaries(
    st.tuples(st.sampled_from("mn"), st.sampled_from("abc")), drawn_cell(), max_size=5
)


@given(periods, periods)
def test_CST_4_the_effects_of_any_two_periods_add_up_to_the_difference(before, after):
    found = bridge(before, after)
    assert sum(pico for _, pico in found.effects) == found.after_pico - found.before_pico
    assert tuple(name for name, _ in found.effects) == EFFECTS


def test_from_the_ledger_the_bridge_ends_at_what_each_period_cost(ledger_path):
    early = [receipt(request_id=f"req_{n}", accepted_at_us=T0_US) for n in range(3)]
    late = [
        receipt(
            request_id=f"req_late_{n}", accepted_at_us=T0_US + HOUR_US, route_id=f"route_{n}",
            cost_fixed_pico=7, cached_input_tokens=500, cost_cached_input_pico=11,
        )
        for n in range(2)
    ]  # fmt: skip
    refused = receipt(
        request_id="req_no", status="rejected", route_id=None, accepted_at_us=T0_US,
        cost_input_pico=0, cost_output_pico=0, cost_total_pico=0,
    )  # fmt: skip
    with Store.open(ledger_path, projections=(Rollups(),)) as store:
        store.append([*early, *late, refused]).result()
    connection = connect_read_only(ledger_path)
    first = Period(start_us=T0_US, end_us=T0_US + HOUR_US)
    second = Period(start_us=T0_US + HOUR_US, end_us=T0_US + 2 * HOUR_US)
    found = bridge_between(connection, first, second)
    assert found.before_pico == sum(one.cost_total_pico for one in early)
    assert found.after_pico == sum(one.cost_total_pico for one in late)
    assert set(cells(connection, first)) == {("chat-large", "route_a")}
    connection.close()
