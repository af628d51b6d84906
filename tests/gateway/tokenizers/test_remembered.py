"""A text that comes again has the count that it had, and nothing of it is kept (BUD-3, SEC-1)."""

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.submission import Message
from gateway.tokenizers import tokenizer
from gateway.tokenizers.remembered import WORTH_CHARS, RememberedCounts

LONG = "a sentence that is said so often that it is worth remembering, and so it is hashed. " * 8


class Counting:
    """Counts words, and how often it was asked."""

    def __init__(self):
        self.asked = 0

    def __call__(self, text):
        self.asked += 1
        return len(text.split())


def test_a_text_is_counted_once_and_a_short_one_each_time():
    counting = Counting()
    remembered = RememberedCounts(counting)
    assert [remembered(LONG) for _ in range(3)] == [136, 136, 136]
    assert counting.asked == 1
    short = "x" * (WORTH_CHARS - 1)
    assert [remembered(short), remembered(short), counting.asked] == [1, 1, 3]
    long_enough = short + "x"
    assert [remembered(long_enough), remembered(long_enough), counting.asked] == [1, 1, 4]
    assert remembered(LONG + "more") == 137


def test_the_text_that_was_longest_out_of_use_is_forgotten_first():
    counting = Counting()
    remembered = RememberedCounts(counting, texts_limit=2)
    one, two, three = (LONG + name for name in ("one", "two", "three"))
    for text in (one, two, one, three):
        remembered(text)
    assert counting.asked == 3
    remembered(one)
    assert counting.asked == 3
    remembered(two)
    assert counting.asked == 4


def test_no_text_is_kept_of_what_is_remembered():
    remembered = RememberedCounts(Counting())
    remembered(LONG)
    kept = remembered.__dict__["_counts"]
    assert [(len(name), tokens) for name, tokens in kept.items()] == [(16, 136)]
    assert all(word.encode() not in name for name in kept for word in LONG.split() if len(word) > 3)


def test_two_processes_have_two_names_for_a_text():
    first, second = RememberedCounts(Counting()), RememberedCounts(Counting())
    first(LONG), second(LONG)
    assert first.__dict__["_counts"].keys() != second.__dict__["_counts"].keys()


def test_threads_that_count_the_same_texts_get_the_same_counts():
    remembered = RememberedCounts(lambda text: len(text.split()), texts_limit=8)
    texts = [LONG + "word " * number for number in range(32)]
    found = []

    def count_all():
        for _ in range(20):
            for number, text in enumerate(texts):
                found.append(remembered(text) == 136 + number)

    threads = [threading.Thread(target=count_all) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4 * 20 * 32
    assert all(found)


@pytest.mark.parametrize("revision", ["cl100k_base/chat-1", "o200k_base/chat-1"])
@given(st.data())
def test_a_chat_has_the_tokens_of_its_parts_however_often_they_came(revision, data):
    """3 a message, its role and its text, and 3 for the answer: counted twice, of texts that
    repeat one another."""
    counts = tokenizer(revision)
    texts = data.draw(st.lists(st.text(max_size=120).map(lambda text: text + LONG), max_size=3))
    chosen = data.draw(st.lists(st.sampled_from(texts), max_size=6)) if texts else []
    chat = [Message(role="user", content=text) for text in chosen]
    expected = 3 + sum(3 + counts.count_text("user") + counts.count_text(each) for each in chosen)
    assert [counts.count_chat(chat, None) for _ in range(2)] == [expected, expected]
