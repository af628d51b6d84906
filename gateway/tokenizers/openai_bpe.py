"""OpenAI's vocabularies: tiktoken's encoder, fed with rank files from an installed package.

tiktoken itself downloads its rank files. The distribution bpe-openai ships the same bytes, so
they are read from there, checked against the sha256 that OpenAI publishes, and never fetched.

Template "chat-1": 3 tokens for each message, its role and its content, and 3 that prime the
answer, as OpenAI documents it for its chat models. Tool definitions and tool calls have no
published formula: they count as the tokens of their JSON text, definitions with a message's 3.
"""

import base64
import gzip
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata

from tiktoken import Encoding

from gateway.submission import Message
from gateway.tokenizers.base import (
    TokenizerIdentity,
    VocabularyMismatch,
    check_size,
    countable,
)
from gateway.tokenizers.remembered import RememberedCounts

_PACKAGE = "bpe-openai"
_TEMPLATE = "chat-1"
_TOKENS_PER_MESSAGE = 3
_TOKENS_PRIMING_THE_ANSWER = 3
_ROLES_LIMIT = 16  # whose counts are kept


@dataclass(frozen=True, slots=True, kw_only=True)
class _Vocabulary:
    """A vocabulary's definition: its rank file and the pattern that cuts text into pieces."""

    sha256: str  # of the uncompressed rank file
    pattern: str


# The patterns are part of what defines each encoding; a test compares them with tiktoken's own.
_VOCABULARIES = {
    "cl100k_base": _Vocabulary(
        sha256="223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
        pattern=(
            r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+"
            r"| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s"
        ),
    ),
    "o200k_base": _Vocabulary(
        sha256="446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
        pattern=(
            r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
            r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
            r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
        ),
    ),
}

REVISIONS = tuple(f"{name}/{_TEMPLATE}" for name in sorted(_VOCABULARIES))


class OpenAITokenizer:
    """Counts with one of OpenAI's vocabularies under the template "chat-1"."""

    def __init__(self, revision: str) -> None:
        """Reads, checks and builds the vocabulary (0.1 to 0.3 s of CPU)."""
        name = revision.removesuffix(f"/{_TEMPLATE}")
        vocabulary = _VOCABULARIES[name]
        file_name = f"bpe_openai/data/{name}.tiktoken.gz"
        distribution = metadata.distribution(_PACKAGE)
        with open(str(distribution.locate_file(file_name)), "rb") as packed:
            rank_file = gzip.decompress(packed.read())
        found_sha256 = hashlib.sha256(rank_file).hexdigest()
        if found_sha256 != vocabulary.sha256:
            raise VocabularyMismatch(
                f"{file_name} of {_PACKAGE} {distribution.version} has sha256 {found_sha256}, "
                f"revision {revision} needs {vocabulary.sha256}; install the locked versions"
            )
        self.identity = TokenizerIdentity(
            revision=revision,
            package=_PACKAGE,
            package_version=distribution.version,
            vocabulary_file=file_name,
            vocabulary_sha256=found_sha256,
            template=_TEMPLATE,
        )
        self._encoding = Encoding(
            name=name,
            pat_str=vocabulary.pattern,
            mergeable_ranks=_ranks(rank_file),
            special_tokens={},  # text that looks like a special token is text
        )
        self._tokens_of_role: dict[str, int] = {}
        self._remembered = RememberedCounts(self._tokens)

    def count_text(self, text: str) -> int:
        check_size((clean := countable(text),))
        return self._tokens(clean)

    def count_chat(self, messages: Sequence[Message], tools_json: str | None) -> int:
        parts, tokens = [], _TOKENS_PRIMING_THE_ANSWER
        for message in messages:
            tokens += _TOKENS_PER_MESSAGE + self._role_tokens(message.role)
            parts.append(countable(message.content))
            if message.tool_calls_json is not None:
                parts.append(countable(message.tool_calls_json))
        if tools_json is not None:
            parts.append(countable(tools_json))
            tokens += _TOKENS_PER_MESSAGE
        check_size(parts)
        for part in parts:
            tokens += self._remembered(part)
        return tokens

    def _role_tokens(self, role: str) -> int:
        """Returns a role's tokens, counted once: each count gives the interpreter lock away."""
        tokens = self._tokens_of_role.get(role)
        if tokens is None:
            check_size((clean := countable(role),))
            tokens = self._tokens(clean)
            if len(self._tokens_of_role) < _ROLES_LIMIT:
                self._tokens_of_role[role] = tokens
        return tokens

    def _tokens(self, text: str) -> int:
        return len(self._encoding.encode_ordinary(text))


def _ranks(rank_file: bytes) -> dict[bytes, int]:
    """Returns token bytes -> rank from lines of base64 token, space, rank."""
    ranks = {}
    for line in rank_file.splitlines():
        token, _, rank = line.partition(b" ")
        ranks[base64.b64decode(token)] = int(rank)
    return ranks
