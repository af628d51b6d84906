"""A text that matches a regular expression of the simple kinds, made without matching. Pure.

Characters, classes, groups, alternatives and repeats: what is read is walked once, so no expression
costs more than its own length times the repeats. Anything else (look-around, back references, named
classes, boundaries) is not simple, and gives None.
"""

from collections.abc import Callable

REPEAT_LIMIT = 256
DEPTH_LIMIT = 16
TEXT_LIMIT_CHARS = 4_096
_CLASS_OF = {"d": "0", "w": "a", "s": " ", "D": "x", "W": "-", "S": "x"}
_SPANS_OF = {
    "d": [("0", "9")],
    "w": [("a", "z"), ("A", "Z"), ("0", "9"), ("_", "_")],
    "s": [(" ", " "), ("\t", "\r")],
}
_PLAIN_OF = {"n": "\n", "t": "\t", "r": "\r"}
_CANDIDATES = "aA0-_ .xX19@/#"

Node = Callable[[int], str]  # the extra repeats wanted of each open repeat, to its text


class _NotSimple(ValueError):
    pass


def text_matching(pattern: str, least_chars: int, most_chars: int | None) -> str | None:
    """Return a text of so many characters; None where the pattern isn't simple or none fits."""
    try:
        node = _Reader(pattern).whole()
        for extra in range(REPEAT_LIMIT + 1):
            text = node(extra)
            if len(text) >= least_chars:
                return text if most_chars is None or len(text) <= most_chars else None
            if extra and text == node(extra - 1):
                break
    except (_NotSimple, RecursionError):
        return None
    # Without an anchor at its end the pattern may stand anywhere in the text.
    if "$" in pattern or (most_chars is not None and most_chars < least_chars):
        return None
    return text + "-" * (least_chars - len(text))


def _joined(nodes: list[Node]) -> Node:
    def text(extra: int) -> str:
        made = "".join(node(extra) for node in nodes)
        if len(made) > TEXT_LIMIT_CHARS:
            raise _NotSimple
        return made

    return text


def _repeated(node: Node, least: int, most: int | None) -> Node:
    def text(extra: int) -> str:
        count = least + extra if most is None else min(least + extra, most)
        one = node(extra)
        if len(one) * count > TEXT_LIMIT_CHARS:
            raise _NotSimple
        return one * count

    return text


class _Reader:
    def __init__(self, pattern: str) -> None:
        self._pattern, self._at = pattern, 0

    def whole(self) -> Node:
        node = self._alternatives(0)
        if self._at < len(self._pattern):
            raise _NotSimple
        return node

    def _peek(self) -> str:
        return self._pattern[self._at : self._at + 1]

    def _next(self) -> str:
        char = self._peek()
        if not char:
            raise _NotSimple
        self._at += 1
        return char

    def _alternatives(self, depth: int) -> Node:
        """Return the first alternative's text; the others are read to be sure of them."""
        if depth > DEPTH_LIMIT:
            raise _NotSimple
        first = self._sequence(depth)
        while self._peek() == "|":
            self._at += 1
            self._sequence(depth)
        return first

    def _sequence(self, depth: int) -> Node:
        nodes: list[Node] = []
        begins = self._at
        while self._peek() not in ("", "|", ")"):
            char = self._next()
            if char == "^":
                if self._at - 1 != begins:
                    raise _NotSimple
                continue
            if char == "$":
                if self._peek() not in ("", "|", ")"):
                    raise _NotSimple
                continue
            nodes.append(self._repeats(self._atom(char, depth)))
        return _joined(nodes)

    def _atom(self, char: str, depth: int) -> Node:
        if char == "(":
            if self._peek() == "?":
                self._at += 1
                if self._next() != ":":
                    raise _NotSimple
            node = self._alternatives(depth + 1)
            if self._next() != ")":
                raise _NotSimple
            return node
        if char in "*+?{":
            raise _NotSimple
        if char == "[":
            char = self._class()
        elif char == ".":
            char = "x"
        elif char == "\\":
            char = self._escaped(_CLASS_OF)
        return lambda extra: char

    def _escaped(self, classes: dict[str, str]) -> str:
        char = self._next()
        known = classes.get(char) or _PLAIN_OF.get(char)
        if known is None and char.isalnum():
            raise _NotSimple
        return known or char

    def _class(self) -> str:
        """Return a character of a class in brackets."""
        outside = self._peek() == "^"
        self._at += outside
        spans: list[tuple[str, str]] = []
        while True:
            char = self._next()
            if char == "]":
                break
            if char == "\\":
                if outside and self._peek() in _SPANS_OF:
                    spans += _SPANS_OF[self._next()]
                    continue
                char = self._escaped({} if outside else _CLASS_OF)
            last = char
            if self._peek() == "-" and self._pattern[self._at + 1 : self._at + 2] not in ("", "]"):
                self._at += 1
                last = self._next()
                if last == "\\":
                    last = self._escaped({})
            if last < char:
                raise _NotSimple
            spans.append((char, last))
        if not outside and spans:
            return spans[0][0]
        for char in _CANDIDATES:
            if outside and not any(low <= char <= high for low, high in spans):
                return char
        raise _NotSimple

    def _repeats(self, node: Node) -> Node:
        bounds: dict[str, tuple[int, int | None]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}
        char = self._peek()
        if char in bounds and char:
            self._at += 1
            least, most = bounds[char]
        elif char == "{":
            inside, closed, _ = self._pattern[self._at + 1 :].partition("}")
            low, comma, high = inside.partition(",")
            if not closed or not low.isdecimal() or not (high.isdecimal() or not high):
                raise _NotSimple
            self._at += len(inside) + 2
            least, most = int(low), int(high) if high else None if comma else int(low)
            if least > REPEAT_LIMIT:
                raise _NotSimple
        else:
            return node
        if self._peek() == "?":
            self._at += 1  # as few as possible: the same texts match
        return _repeated(node, least, most)
