"""What a simulated route says: words that are plainly simulated, or JSON that fits a schema.

It never pretends to be a model's answer (DLV-7). One piece of text stands for one token; the same
seed gives the same pieces.
"""

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

import orjson

OPENING = ("Simulated", " answer", ":")
WORDS = (
    " load", " axle", " scale", " ticket", " gross", " tare", " net", " weigh", " lorry", " bay",
    " gate", " queue", " tonne", " beam", " plate", " cargo", " stamp", " yard", " driver", " road",
)  # fmt: skip
DIGEST_BYTES = 32
_WORD_OF = tuple(WORDS[byte % len(WORDS)] for byte in range(256))
DEPTH_LIMIT = 8
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


def json_pieces(seed: str, schema: Mapping[str, Any], most: int) -> list[str]:
    """Return the pieces of a JSON text that is valid under `schema`, of the usual keywords.

    At most `most` and one, which tells that the text was cut off. `schema` has no references
    (gateway.schemas). A value that no JSON text holds gives words, which are not valid.
    """
    try:
        text = orjson.dumps(_Maker(most * JSON_PIECE_CHARS).value(schema, seed, 0)).decode()
    except (ArithmeticError, TypeError, ValueError):
        return list(word_pieces(seed, min(most, MEAN_TOKENS)))
    whole = range(0, min(len(text), (most + 1) * JSON_PIECE_CHARS), JSON_PIECE_CHARS)
    return [text[at : at + JSON_PIECE_CHARS] for at in whole]


def _digest(seed: str, counter: int) -> bytes:
    return hashlib.sha256(f"{seed}/{counter}".encode()).digest()


class _Maker:
    """Makes a value, up to so many parts: each part is a character at least, so a longer text
    would be cut off anyway, and what comes after is null."""

    def __init__(self, parts: int) -> None:
        self._parts_left = parts

    def value(self, schema: Any, seed: str, depth: int) -> Any:
        self._parts_left -= 1
        if self._parts_left < 0 or not isinstance(schema, Mapping):
            return None
        if "const" in schema:
            return schema["const"]
        if schema.get("enum"):
            return schema["enum"][_digest(seed, depth)[0] % len(schema["enum"])]
        for choice in ("anyOf", "oneOf", "allOf"):
            if schema.get(choice):
                return self.value(schema[choice][0], seed, depth)
        kind = schema.get("type", "object" if "properties" in schema else "string")
        if isinstance(kind, list):
            kind = kind[0]
        if kind == "object":
            return self._object(schema, seed, depth)
        if kind == "array":
            count = max(1 if depth < DEPTH_LIMIT else 0, int(schema.get("minItems", 0)))
            items = schema.get("items", {"type": "string"})
            return [self.value(items, f"{seed}.{index}", depth + 1) for index in range(count)]
        if kind in ("integer", "number"):
            return _number(schema, integer=kind == "integer")
        if kind == "boolean":
            return _digest(seed, depth)[0] % 2 == 1
        if kind == "null":
            return None
        text = "simulated" + "-" * max(0, int(schema.get("minLength", 0)) - len("simulated"))
        return text[: schema.get("maxLength", len(text))]

    def _object(self, schema: Mapping[str, Any], seed: str, depth: int) -> dict[str, Any]:
        properties = schema.get("properties", {})
        required = set(schema.get("required", ()))
        names = properties if depth < DEPTH_LIMIT else [n for n in properties if n in required]
        made = {name: self.value(properties[name], f"{seed}.{name}", depth + 1) for name in names}
        for name in sorted(required - set(made)):
            made[name] = "simulated"
        return made


def _number(schema: Mapping[str, Any], *, integer: bool) -> int | float:
    low = schema.get("minimum", schema.get("exclusiveMinimum", 0))
    value = low + 1 if "exclusiveMinimum" in schema and "minimum" not in schema else low
    high = schema.get("maximum", schema.get("exclusiveMaximum"))
    if high is not None and value > high:
        value = high
    step = schema.get("multipleOf")
    if step:
        value = -(-value // step) * step
    return int(value) if integer else value
