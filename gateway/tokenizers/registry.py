"""The tokenizers by revision: each loaded once per process, on first use, whatever thread asks."""

import asyncio
import threading
from collections.abc import Callable, Sequence

from gateway.policy.values import TokenCount
from gateway.submission import Message
from gateway.tokenizers.base import Tokenizer, UnknownRevision, size_bytes

# Above this size a count takes long enough (about 1 ms and more) that it goes to a thread, so that
# the event loop keeps serving; below it the hand-over would cost more than the count.
COUNT_IN_THREAD_ABOVE_BYTES = 8_192


def _openai(revision: str) -> Tokenizer:
    from gateway.tokenizers.openai_bpe import OpenAITokenizer

    return OpenAITokenizer(revision)


def _mistral(revision: str) -> Tokenizer:
    # mistral-common takes 0.4 s to import: only a process that counts with it pays.
    from gateway.tokenizers.mistral import MistralChatTokenizer

    return MistralChatTokenizer(revision)


_LOADERS: dict[str, Callable[[str], Tokenizer]] = {
    "cl100k_base/chat-1": _openai,
    "o200k_base/chat-1": _openai,
    "mistral-v1": _mistral,
    "mistral-v3": _mistral,
    "mistral-v3-tekken": _mistral,
    "mistral-v7": _mistral,
}

REVISIONS: tuple[str, ...] = tuple(sorted(_LOADERS))

_loaded: dict[str, Tokenizer] = {}
_loading = threading.Lock()


def tokenizer(revision: str) -> Tokenizer:
    """Returns the tokenizer of a revision, loading it on first use (20 ms to 1 s).

    Raises UnknownRevision, or VocabularyMismatch where the installed file isn't the named one.
    """
    found = _loaded.get(revision)
    if found is not None:
        return found
    loader = _LOADERS.get(revision)
    if loader is None:
        raise UnknownRevision(
            f"no tokenizer revision {revision!r}; known are {', '.join(REVISIONS)}"
        )
    with _loading:
        if revision not in _loaded:
            _loaded[revision] = loader(revision)
        return _loaded[revision]


async def count_chat_for(
    revisions: Sequence[str], messages: Sequence[Message], tools_json: str | None
) -> tuple[TokenCount, ...]:
    """Returns one count for each distinct revision, in order of first appearance (BUD-3).

    Large chats, and revisions that aren't loaded yet, are counted in a thread.
    """
    distinct = tuple(dict.fromkeys(revisions))
    small = size_bytes(messages, tools_json) <= COUNT_IN_THREAD_ABOVE_BYTES
    if small and _loaded.keys() >= set(distinct):
        return _counts(distinct, messages, tools_json)
    return await asyncio.to_thread(_counts, distinct, messages, tools_json)


def _counts(
    revisions: Sequence[str], messages: Sequence[Message], tools_json: str | None
) -> tuple[TokenCount, ...]:
    return tuple(
        [
            TokenCount(
                tokenizer_revision=revision,
                tokens=tokenizer(revision).count_chat(messages, tools_json),
            )
            for revision in revisions
        ]
    )
