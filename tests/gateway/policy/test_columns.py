"""What is remembered and what is skipped for speed changes nothing (ADM-2)."""

from hypothesis import given
from hypothesis import strategies as st

from gateway.policy import candidates, ordering, replay
from gateway.policy.caps import Caps
from gateway.policy.estimates import Scale
from gateway.policy.filters import FILTERS, Bounds, awake, idle, sift
from gateway.policy.prepared import prepare
from gateway.policy.table import Table
from gateway.policy.values import PriorityShare
from tests.gateway.policy.corpus import Case, Draw, case, state
from tests.gateway.weighing import desk, weigh
from tests.policy_factories import replaced

cases = st.integers(0, 10**9).map(case)


def scale_of(each: Case) -> Scale:
    return Scale(each.request, each.context, each.policy)


def bounds_of(each: Case, scale: Scale) -> Bounds:
    return Bounds(scale, Caps(each.request, each.context.tenant, each.policy.models[0]))


@given(cases)
def test_a_filter_that_calls_itself_idle_would_keep_everybody(each: Case):
    scale = scale_of(each)
    weighed = scale.weighings(Table(each.routes))
    bounds = bounds_of(each, scale)
    asleep = idle(bounds, weighed)
    assert list(asleep) == [one.name for one in FILTERS]
    for one in FILTERS:
        if asleep[one.name]:
            assert len(one.keep(bounds, weighed.all())) == len(each.routes), one.name
    assert sift(bounds, weighed.all(), awake(bounds, weighed)) == sift(bounds, weighed.all())


@given(cases)
def test_the_columns_say_what_each_weighing_says(each: Case):
    weighed = scale_of(each).weighings(Table(each.routes))
    every = weighed.all()
    assert every == scale_of(each).weigh(each.routes)
    assert weighed.e2e_us == [one.e2e_us for one in every]
    assert weighed.most_need_kv == max(one.need_kv for one in every)
    if not weighed.some_uncounted:
        assert tuple(weighed.candidates) == candidates.primaries(every, {})


@given(cases)
def test_the_first_place_is_the_first_of_the_weighings(each: Case):
    routes = tuple(sorted(each.routes, key=lambda route: route.route_id))
    weighed = scale_of(each).weighings(Table(routes))
    place, reason = ordering.first_place(each.policy.ordering, weighed)
    assert (weighed.one(place), reason) == ordering.first(each.policy.ordering, weighed.all())


@given(cases, st.integers(0, 10**9))
def test_a_sheet_that_follows_another_equals_one_made_anew(each: Case, seed: int):
    draw = Draw(seed)
    share = PriorityShare(
        priority=each.request.priority,
        queue_permille=draw.between(1, 1_000),
        kv_permille=draw.of((1_000, 700)),
    )
    table, states = Table(each.routes), each.context.route_states
    for _ in range(3):
        changed = tuple(
            [state(draw, s.route_id, each.policy) if draw.one_in(3) else s for s in states]
        )
        followed, anew = table.sheet(changed, share), Table(each.routes).sheet(changed, share)
        assert followed.columns == anew.columns
        assert (followed.all_up, followed.all_open) == (anew.all_up, anew.all_open)
        assert followed.oldest_us == anew.oldest_us
        assert followed.least_room_kv == anew.least_room_kv
        states = changed


def test_a_route_that_is_there_twice_is_read_the_same_each_time():
    each = case(1)
    state = each.context.route_states[0]
    twice = (state, replaced(state, accepted_since=state.accepted_since + 500))
    share = PriorityShare(priority="normal", queue_permille=1_000)
    table = Table(each.routes)
    table.sheet(twice, share)
    moved = (replaced(state, accepted_since=state.accepted_since + 900), twice[1])
    assert table.sheet(moved, share).columns == Table(each.routes).sheet(moved, share).columns


@given(cases, st.integers(0, 10**9))
def test_texts_that_are_kept_for_states_read_as_those_made_anew(each: Case, seed: int):
    draw, texts, states = Draw(seed), replay.RouteTexts(), each.context.route_states
    for _ in range(3):
        states = tuple(
            [state(draw, s.route_id, each.policy) if draw.one_in(3) else s for s in states]
        )
        assert bytes(texts.of(states)) == bytes(replay.RouteTexts().of(states))


def test_only_the_route_that_took_a_request_has_a_new_state():
    at = desk()
    before = at.book.route_states()
    assert at.book.route_states() is before
    weighed = weigh(at)
    after = at.book.route_states()
    taken = [new.route_id for old, new in zip(before, after, strict=True) if old is not new]
    assert taken == [weighed.decision.route_id]


def test_a_policy_is_prepared_once_for_many_decisions():
    each = case(3)
    ready = prepare(each.policy, each.policy.routes)
    assert prepare(each.policy, each.policy.routes) is ready
    other = replaced(each.policy, revision="another")
    assert prepare(other, other.routes) is not ready
