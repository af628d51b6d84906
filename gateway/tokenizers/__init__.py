"""Offline token counts by tokenizer revision (BUD-3)."""

from gateway.tokenizers.base import (
    TEXT_LIMIT_BYTES,
    TextTooLarge,
    Tokenizer,
    TokenizerIdentity,
    UnknownRevision,
    VocabularyMismatch,
    countable,
)
from gateway.tokenizers.registry import REVISIONS, count_chat_for, tokenizer

__all__ = [
    "REVISIONS",
    "TEXT_LIMIT_BYTES",
    "TextTooLarge",
    "Tokenizer",
    "TokenizerIdentity",
    "UnknownRevision",
    "VocabularyMismatch",
    "count_chat_for",
    "countable",
    "tokenizer",
]
