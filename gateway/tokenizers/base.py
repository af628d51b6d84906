"""What a tokenizer is here: a revision that counts, and can prove which vocabulary it counts with.

A revision names a vocabulary and a chat template together, because either changes the count
(BUD-3). No tokenizer returns token ids: only counts leave this package.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from gateway.submission import Message

# The most UTF-8 bytes that are ever handed to a tokenizer at once. The body limit keeps requests
# below it; it is checked here too, since a count's time grows with the text.
TEXT_LIMIT_BYTES = 1_048_576

_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenizerIdentity:
    """Which counting code and which vocabulary stand behind a revision."""

    revision: str
    package: str
    package_version: str
    vocabulary_file: str
    vocabulary_sha256: str
    template: str


class Tokenizer(Protocol):
    """Counts tokens. Both counts raise TextTooLarge above TEXT_LIMIT_BYTES."""

    identity: TokenizerIdentity

    def count_text(self, text: str) -> int:
        """Returns the tokens of the text alone: no begin or end marker, no special tokens."""
        ...

    def count_chat(self, messages: Sequence[Message], tools_json: str | None) -> int:
        """Returns the input tokens of the chat under the revision's template, markers included."""
        ...


class TextTooLarge(ValueError):
    """The text is over TEXT_LIMIT_BYTES; the message gives sizes, never the text."""


class UnknownRevision(LookupError):
    """No tokenizer of that name; the message lists the names that exist."""


class VocabularyMismatch(RuntimeError):
    """An installed vocabulary file isn't the one that the revision names."""


def countable(text: str) -> str:
    """Returns the text with each lone surrogate replaced by U+FFFD.

    Tokenizers disagree on lone surrogates (some count them, some raise), and no backend can be
    sent one: what is counted and what is forwarded both go through here.
    """
    return text if text.isascii() else _SURROGATE.sub("�", text)


def size_bytes(messages: Sequence[Message], tools_json: str | None) -> int:
    """Returns an upper bound of the chat's UTF-8 size in bytes, without encoding it."""
    texts = [message.content for message in messages]
    texts += [message.tool_calls_json for message in messages if message.tool_calls_json]
    if tools_json is not None:
        texts.append(tools_json)
    characters, ascii_only = 0, True
    for text in texts:
        characters += len(text)
        ascii_only = ascii_only and text.isascii()
    for message in messages:
        characters += len(message.role)
    # CPython keeps ASCII text at one byte a character; anything else is at most four in UTF-8.
    return characters if ascii_only else characters * 4


def check_size(texts: Sequence[str]) -> None:
    """Raises TextTooLarge where the texts together are over TEXT_LIMIT_BYTES of UTF-8."""
    size = sum([len(text) if text.isascii() else len(text.encode()) for text in texts])
    if size > TEXT_LIMIT_BYTES:
        raise TextTooLarge(
            f"the text has {size} bytes of UTF-8; at most {TEXT_LIMIT_BYTES} are counted"
        )
