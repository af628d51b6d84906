"""What a simulated route says: words that are plainly simulated, or JSON that fits a schema.

It never pretends to be a model's answer (DLV-7). One piece of text stands for one token; the same
seed gives the same pieces.
"""

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

from gateway.providers.simulated_json import Unmet, json_text

OPENING = ("Simulated", " answer", ":")
WORDS = (
    " load", " axle", " scale", " ticket", " gross", " tare", " net", " weigh", " lorry", " bay",
    " gate", " queue", " tonne", " beam", " plate", " cargo", " stamp", " yard", " driver", " road",
)  # fmt: skip
DIGEST_BYTES = 32
_WORD_OF = tuple(WORDS[byte % len(WORDS)] for byte in range(256))
JSON_PIECE_CHARS = 4
MEAN_TOKENS = 120


def natural_length(seed: str) -> int:
    """Return how many tokens an answer has that is allowed to stop by itself: 8 to 8 + 8 means."""
    draw = int.from_bytes(_digest(seed, 0)[:4], "big") / 2**32
    # An exponential-like spread without a float's platform differences mattering: rounded once.
    return 8 + int(MEAN_TOKENS * min(8.0, draw / (1.0 - draw * 0.999)))


def word_pieces(seed: str, tokens: int) -> Iterator[str]:
    """Yield `tokens` pieces of text, one a token: a digest's byte chooses each word."""
    yield from OPENING[:tokens]
    for begun in range(0, tokens, DIGEST_BYTES):
        drawn = _digest(seed, 1 + begun // DIGEST_BYTES)
        for byte in drawn[max(0, len(OPENING) - begun) : tokens - begun]:
            yield _WORD_OF[byte]


def json_pieces(seed: str, schema: Mapping[str, Any], most: int) -> list[str] | Unmet:
    """Return the pieces of a JSON text that is valid under `schema`, or why there is none.

    At most `most` and one, which tells that the text was cut off. `schema` has no references
    (gateway.schemas).
    """
    text = json_text(seed, schema, most * JSON_PIECE_CHARS)
    if isinstance(text, Unmet):
        return text
    whole = range(0, min(len(text), (most + 1) * JSON_PIECE_CHARS), JSON_PIECE_CHARS)
    return [text[at : at + JSON_PIECE_CHARS] for at in whole]


def unmet_pieces(unmet: Unmet, most: int) -> list[str]:
    """Return words that say why no JSON was made: no valid answer, and plainly so."""
    said = f" no JSON was found that fits the schema: {unmet.why}."
    return [*OPENING, *(f" {word}" for word in said.split())][: most + 1]


def _digest(seed: str, counter: int) -> bytes:
    return hashlib.sha256(f"{seed}/{counter}".encode()).digest()
