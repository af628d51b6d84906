"""Counting for several routes at once, without holding up the event loop."""

import asyncio
import threading

from gateway.policy.values import TokenCount
from gateway.submission import Message
from gateway.tokenizers import count_chat_for, registry, tokenizer

REVISIONS = ("o200k_base/chat-1", "cl100k_base/chat-1")


def test_each_distinct_revision_is_counted_once_in_order_of_appearance():
    chat = [Message(role="user", content="Explain token budgets in two sentences.")]
    counts = asyncio.run(count_chat_for([*REVISIONS, REVISIONS[0]], chat, None))
    assert counts == (
        TokenCount(tokenizer_revision="o200k_base/chat-1", tokens=14),
        TokenCount(tokenizer_revision="cl100k_base/chat-1", tokens=15),
    )


def test_only_a_large_chat_is_counted_in_a_thread(monkeypatch):
    threads = []
    for revision in REVISIONS:
        tokenizer(revision)
    counting = registry._counts

    def observed(revisions, messages, tools_json):
        threads.append(threading.current_thread() is threading.main_thread())
        return counting(revisions, messages, tools_json)

    monkeypatch.setattr(registry, "_counts", observed)
    limit = registry.COUNT_IN_THREAD_ABOVE_BYTES
    for characters in (limit - len("user"), limit):
        chat = [Message(role="user", content="a" * characters)]
        asyncio.run(count_chat_for(REVISIONS, chat, None))
    assert threads == [True, False]


def test_a_revision_asked_for_by_many_threads_is_loaded_once(monkeypatch):
    loads = []

    def load(revision):
        loads.append(revision)
        return tokenizer("o200k_base/chat-1")

    monkeypatch.setitem(registry._LOADERS, "slow/1", load)
    threads = [threading.Thread(target=tokenizer, args=("slow/1",)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    registry._loaded.pop("slow/1")
    assert loads == ["slow/1"]
