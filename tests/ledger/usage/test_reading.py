"""What each convention makes of a payload: inside and beside, zeros, absences, nonsense (CST-6)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.meters import METERS
from ledger.rates import Usage
from ledger.usage import CONVENTIONS, Convention, StreamUsage, convention_of, normalise

OURS = Usage(input_tokens=40, output_tokens=7)


def read(name, body, **options):
    return normalise(CONVENTIONS[name], body, **options)


def test_cached_tokens_are_inside_the_prompt_of_a_chat_and_beside_the_input_of_a_message():
    chat = read(
        "openai-chat",
        {
            "usage": {
                "prompt_tokens": 27_147,
                "completion_tokens": 351,
                "prompt_tokens_details": {"cached_tokens": 27_146},
            }
        },
    )
    message = read(
        "anthropic-messages",
        {"usage": {"input_tokens": 1, "cache_read_input_tokens": 27_146, "output_tokens": 351}},
    )
    assert (
        chat.usage
        == message.usage
        == Usage(input_tokens=27_147, output_tokens=351, cached_input_tokens=27_146)
    )
    assert (chat.convention, message.convention) == ("openai-chat", "anthropic-messages")
    assert (chat.source, message.source) == ("provider", "provider")


def test_reasoning_is_inside_the_completion_of_one_provider_and_beside_that_of_another():
    body = {
        "usage": {
            "prompt_tokens": 10,
            "completion_tokens": 240,
            "completion_tokens_details": {"reasoning_tokens": 165},
        }
    }
    inside, beside = read("openai-chat", body), read("xai-chat", body)
    assert (inside.usage.output_tokens, inside.usage.meters) == (240, (("reasoning", 165),))
    assert (beside.usage.output_tokens, beside.usage.meters) == (405, (("reasoning", 165),))


def test_cache_writes_keep_their_lifetimes_and_count_as_input():
    body = {
        "usage": {
            "input_tokens": 6,
            "output_tokens": 489,
            "cache_creation_input_tokens": 600,
            "cache_read_input_tokens": 20_443,
            "cache_creation": {"ephemeral_5m_input_tokens": 574, "ephemeral_1h_input_tokens": 26},
        }
    }
    assert read("anthropic-messages", body).usage == Usage(
        input_tokens=21_049,
        output_tokens=489,
        cached_input_tokens=20_443,
        meters=(("cache_write_5m", 574), ("cache_write_1h", 26)),
    )


def test_pictures_and_sound_are_counted_apart_fresh_and_cached():
    body = {
        "usageMetadata": {
            "promptTokenCount": 345,
            "cachedContentTokenCount": 191,
            "candidatesTokenCount": 70,
            "thoughtsTokenCount": 98,
            "promptTokensDetails": [
                {"modality": "TEXT", "tokenCount": 87},
                {"modality": "IMAGE", "tokenCount": 200},
                {"modality": "DOCUMENT", "tokenCount": 58},
            ],
            "cacheTokensDetails": [
                {"modality": "IMAGE", "tokenCount": 143},
                {"modality": "TEXT", "tokenCount": 48},
            ],
        }
    }
    assert read("gemini", body).usage == Usage(
        input_tokens=345,
        output_tokens=168,
        cached_input_tokens=191,
        meters=(("input_image", 115), ("cached_input_image", 143), ("reasoning", 98)),
    )


def test_a_reported_zero_is_a_zero_and_no_estimate():
    found = read(
        "openai-chat", {"usage": {"prompt_tokens": 12, "completion_tokens": 0}}, counted=OURS
    )
    assert (found.usage, found.source) == (Usage(input_tokens=12, output_tokens=0), "provider")


@pytest.mark.parametrize("value", [None, -3, True, 1.5, "7", 10**30, [], {}])
def test_what_is_no_count_is_missing_our_own_count_stands_for_it_and_that_is_marked(value):
    body = {"usage": {"prompt_tokens": 12, "completion_tokens": value}}
    found = read("openai-chat", body, counted=OURS)
    assert (found.usage, found.source) == (Usage(input_tokens=12, output_tokens=7), "estimated")
    assert found.doubts == ("output",)


def test_a_missing_count_with_nothing_of_ours_is_zero_and_doubtful():
    found = read("openai-chat", {"usage": {"prompt_tokens": 12}})
    assert (found.usage.output_tokens, found.source, found.doubts) == (0, "estimated", ("output",))


def test_a_provider_that_leaves_out_zeros_is_believed():
    found = read("gemini", {"usageMetadata": {"promptTokenCount": 7}})
    assert (found.usage, found.source) == (Usage(input_tokens=7, output_tokens=0), "provider")


def test_more_cached_than_input_is_held_to_the_input_and_marked():
    body = {
        "usage": {
            "prompt_tokens": 10,
            "completion_tokens": 1,
            "prompt_tokens_details": {"cached_tokens": 11},
        }
    }
    found = read("openai-chat", body)
    assert (found.usage.cached_input_tokens, found.doubts) == (10, ("cached_input",))


def test_an_answer_without_usage_is_none_or_wholly_our_own_count():
    assert read("openai-chat", {"choices": []}) is None
    assert read("openai-chat", {"usage": {"input_tokens": 4, "output_tokens": 5}}) is None
    ours = read("openai-chat", {"choices": []}, counted=OURS)
    assert (ours.usage, ours.source, ours.doubts) == (OURS, "estimated", ("input", "output"))


def test_the_service_tier_is_a_short_word_or_nothing():
    usage = {"input_tokens": 1, "output_tokens": 1}
    for said, read_as in (("Priority", "priority"), ("x" * 33, ""), ("a b", ""), (3, "")):
        body = {"usage": {**usage, "service_tier": said}}
        assert read("anthropic-messages", body).service_tier == read_as


def test_openai_says_the_service_tier_beside_the_usage_and_anthropic_in_it():
    chat = {"usage": {"prompt_tokens": 1, "completion_tokens": 1}, "service_tier": "flex"}
    assert read("openai-chat", chat).service_tier == "flex"
    usage = {"input_tokens": 1, "output_tokens": 1}
    event = {"response": {"usage": usage, "service_tier": "priority"}}
    assert read("openai-responses", event).service_tier == "priority"
    assert read("anthropic-messages", {"usage": usage, "service_tier": None}).service_tier == ""


def test_an_unknown_convention_is_named_with_those_that_there_are():
    with pytest.raises(LookupError, match="no usage convention 'openai'; there are openai-chat,"):
        convention_of("openai")


FIELDS = [
    *("usage", "usageMetadata", "prompt_tokens", "completion_tokens", "input_tokens", "meta"),
    *("output_tokens", "inputTokens", "cache_read_input_tokens", "cache_creation", "response"),
    *("prompt_tokens_details", "cached_tokens", "modality", "tokenCount", "promptTokensDetails"),
    *("ephemeral_1h_input_tokens", "audio_tokens"),
]
JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(FIELDS), inner, max_size=6)
    ),
    max_leaves=30,
)


@given(st.sampled_from(sorted(CONVENTIONS)), JUNK)
def test_whatever_a_payload_holds_the_usage_can_be_priced(name, body):
    found = normalise(CONVENTIONS[name], body if isinstance(body, dict) else {}, counted=OURS)
    usage, inside = found.usage, {"input": 0, "cached_input": 0, "output": 0}
    for meter, count in usage.meters:
        assert count > 0
        if (whole := METERS[meter].inside) is not None:
            inside[whole] += count
    assert 0 <= usage.cached_input_tokens <= usage.input_tokens
    assert inside["input"] <= usage.input_tokens - usage.cached_input_tokens
    assert inside["cached_input"] <= usage.cached_input_tokens
    assert inside["output"] <= usage.output_tokens


def stream(name, *events):
    usage = StreamUsage(CONVENTIONS[name])
    for event in events:
        usage.take(event)
    return usage.normalised()


def test_running_totals_are_not_added_up():
    """CST-8: a message's start, its deltas and its end say what the whole answer says."""
    start = {"input_tokens": 25, "cache_read_input_tokens": 100, "output_tokens": 1}
    found = stream(
        "anthropic-messages",
        {"type": "message_start", "message": {"usage": start}},
        {"type": "content_block_delta"},
        {"type": "message_delta", "usage": {"output_tokens": 12}},
        {"type": "message_delta", "usage": {"output_tokens": 15, "service_tier": None}},
    )
    whole = read("anthropic-messages", {"usage": {**start, "output_tokens": 15}})
    assert found == whole


def test_the_last_chunk_has_the_total_and_a_null_before_it_is_nothing():
    total = {"prompt_tokens": 9, "completion_tokens": 4}
    found = stream("openai-chat", {"usage": None}, {"choices": []}, {"usage": total})
    assert found == read("openai-chat", {"usage": total})
    assert stream("openai-chat", {"usage": None}) is None


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), min_size=1, max_size=6))
def test_deltas_add_up_to_the_whole_answer(steps):
    deltas = Convention(name="deltas", input="a", output="b", stream="deltas")
    usage = StreamUsage(deltas)
    for a, b in steps:
        usage.take({"usage": {"a": a, "b": b}})
    whole = {"usage": {"a": sum(a for a, _ in steps), "b": sum(b for _, b in steps)}}
    assert usage.normalised() == normalise(deltas, whole)


@given(
    st.sampled_from(["anthropic-messages", "gemini", "xai-chat"]),
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), min_size=1, max_size=6),
)
def test_a_stream_of_running_totals_equals_one_answer_with_the_last_of_each(name, steps):
    fields = {
        "anthropic-messages": ("usage", "input_tokens", "output_tokens"),
        "gemini": ("usageMetadata", "promptTokenCount", "candidatesTokenCount"),
        "xai-chat": ("usage", "prompt_tokens", "completion_tokens"),
    }
    root, first, second = fields[name]
    events = [{root: {first: one, second: other}} for one, other in steps]
    assert stream(name, *events) == read(name, events[-1])
