"""CST-8: sums over a payload, place by place, by hand."""

import pytest

from ledger.rates import Usage
from ledger.usage import Convention, normalise
from ledger.usage.counts import COUNT_LIMIT, LIST_LIMIT, any_found, compiled, found

SUM = compiled("a + b | c - d")


@pytest.mark.parametrize(
    ("payload", "total", "bad"),
    [
        ({"a": 10, "b": 5, "d": 3}, 12, False),
        ({"a": 10, "c": 4, "d": 3}, 11, False),
        ({"a": 10, "b": 0, "c": 4}, 10, False),  # a zero is there, and is taken
        ({"a": 10, "b": None, "c": 4}, 14, False),  # null is nothing
        ({"a": 10, "b": "5", "c": 4}, 14, True),
        ({"a": 1, "d": 1}, 0, False),
        ({"a": 1, "d": 2}, 0, True),  # never below zero
        ({"b": 5}, None, False),  # the first term is missing
        ({"a": True, "b": 5}, None, True),
    ],
)
def test_a_sum_has_its_first_term_and_what_there_is_of_the_others(payload, total, bad):
    assert found(SUM, payload) == (total, bad)


@pytest.mark.parametrize(
    ("payload", "total", "bad"),
    [
        ({"b": 5}, 5, False),
        ({"a": 10, "b": 5, "d": 3}, 12, False),
        ({"d": 0}, 0, False),
        ({"d": 2}, 0, True),
        ({"b": -1}, None, True),
        ({}, None, False),
    ],
)
def test_a_sum_of_any_term_is_missing_only_where_every_term_is(payload, total, bad):
    assert any_found(SUM, payload) == (total, bad)


def test_the_fields_of_a_sum_are_those_that_its_places_begin_with():
    assert compiled("a.b + c[X].d | e.f - g").fields == {"a", "c", "e", "g"}


def test_a_count_is_a_whole_number_up_to_its_limit():
    for value, total in ((0, 0), (COUNT_LIMIT, COUNT_LIMIT), (COUNT_LIMIT + 1, None), (1.0, 1)):
        assert found(compiled("a"), {"a": value}).total == total


def test_of_a_list_those_elements_are_added_up_that_are_asked_for_and_within_its_limit():
    one, other = {"modality": "AUDIO", "n": 1}, {"modality": "TEXT", "n": 100}
    wanted = compiled("list[AUDIO|VIDEO].n")
    assert found(wanted, {"list": [one, other, {"ttl": "VIDEO", "n": 5}, 7]}) == (6, False)
    assert found(wanted, {"list": [other] * LIST_LIMIT + [one]}) == (None, False)
    assert found(wanted, {"list": [other] * (LIST_LIMIT - 1) + [one]}) == (1, False)
    assert found(wanted, {"list": {"modality": "AUDIO", "n": 1}}) == (None, False)


def test_a_text_that_is_no_sum_is_refused():
    with pytest.raises(ValueError, match="no step of a path"):
        compiled("a + b c")


def test_a_convention_that_counts_a_meter_that_there_is_not_is_refused():
    odd = Convention(name="odd", input="i", output="o", meters={"no_such_meter": "x"})
    with pytest.raises(ValueError, match=r"convention odd counts \['no_such_meter'\]"):
        _ = odd.sums
    assert set(Convention(name="plain", input="i", output="").sums) == {"input"}


def read(**payload: int) -> tuple[Usage, tuple[str, ...]]:
    convention = Convention(
        name="made", input="i", cached="c", output="o",
        meters={"input_audio": "ia", "input_image": "ii", "cached_input_audio": "ca",
                "reasoning": "r", "rerank_search": "s"},
    )  # fmt: skip
    normal = normalise(convention, {"usage": payload})
    assert normal is not None
    return normal.usage, normal.doubts


def test_a_part_may_fill_its_whole_and_is_held_to_what_is_left_of_it():
    """Of 10 tokens 4 are cached: 6 are fresh, of which sound and pictures are parts."""
    full = {"i": 10, "c": 4, "o": 5, "ia": 2, "ii": 4, "ca": 4, "r": 5, "s": 9}
    usage, doubts = read(**full)
    assert (dict(usage.meters), doubts) == (
        {"input_audio": 2, "input_image": 4, "cached_input_audio": 4, "reasoning": 5,
         "rerank_search": 9},
        (),
    )  # fmt: skip
    for name, meter in (("ii", "input_image"), ("ca", "cached_input_audio"), ("r", "reasoning")):
        held, doubts = read(**full | {name: full[name] + 1})
        assert (held, doubts) == (usage, (meter,))


def test_as_many_cached_as_input_is_no_doubt():
    assert read(i=10, c=10, o=0) == (
        Usage(input_tokens=10, output_tokens=0, cached_input_tokens=10), ()
    )  # fmt: skip


def test_a_sum_without_its_first_term_counts_nothing_unless_zeros_are_left_out():
    payload = {"usage": {"j": 5, "p": 6}}
    plain = Convention(name="plain", input="i + j", output="o + p")
    assert normalise(plain, payload) is None
    leaves_out = Convention(name="odd", input="i + j", output="o + p", omits_zeros=True)
    omitting = normalise(leaves_out, payload)
    assert omitting is not None
    assert (omitting.usage, omitting.doubts) == (Usage(input_tokens=0, output_tokens=6), ())
