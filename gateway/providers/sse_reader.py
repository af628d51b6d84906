"""Server-sent events read from bytes that may be cut anywhere (DLV-5). Pure, incremental.

Follows the parsing rules of the HTML standard (section 9.2.6) but for three things that real
servers do: the last event counts also where the blank line after it is missing, a line `error: …`
(older llama.cpp servers) is the data of an event named `error`, and an event of that name counts
also without data (Dynamo).
"""

from gateway.quiet import Quiet

LINE_LIMIT_BYTES = 1 << 20
EVENT_LIMIT_BYTES = 1 << 20
BOM = b"\xef\xbb\xbf"


class StreamTooLarge(Exception):
    """One line or event of the stream is over its limit; the message names which and how much."""


class SseEvent(Quiet, frozen=True, kw_only=True, gc=False):
    """One event: its name (`message` where the stream gave none) and its data, blank of an
    `error` alone."""

    name: str
    data: bytes


class SseReader:
    """Turns bytes into events. However the bytes are cut, the events are the same."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []  # of the line that has not ended yet
        self._part_bytes = 0
        self._after_cr = False  # the last byte seen was a CR: an LF right after it is no line
        self._at_start = True
        self._data: list[bytes] = []
        self._data_bytes = 0
        self._name = ""
        self.between_events = True  # what was fed so far ends between two events

    def feed(self, data: bytes) -> list[SseEvent]:
        """Return the events that these bytes complete, in order.

        Raises StreamTooLarge where a line is over LINE_LIMIT_BYTES or an event's data over
        EVENT_LIMIT_BYTES; the reader is of no use afterwards.
        """
        if data.endswith(b"\n\n") and self.between_events and b"\r" not in data:
            return self._whole_events(data)
        if self._after_cr and data:
            self._after_cr = False
            if data[0] == 0x0A:
                data = data[1:]
        self._parts.append(data)
        self._part_bytes += len(data)
        if b"\n" not in data and b"\r" not in data:
            self._check_line(self._part_bytes)
            self.between_events = not self._inside
            return []
        # bytes.splitlines ends lines at CR, LF and CRLF only, which are the standard's three.
        lines = b"".join(self._parts).splitlines(keepends=True)
        begun = b"" if lines[-1].endswith((b"\n", b"\r")) else lines.pop()
        self._check_line(len(begun))
        self._parts, self._part_bytes = [begun], len(begun)
        self._after_cr = data.endswith(b"\r")
        events: list[SseEvent] = []
        for line in lines:
            self._line(line.rstrip(b"\r\n"), events)
        self.between_events = not self._inside
        return events

    def first(self, data: bytes) -> tuple[SseEvent | None, int]:
        """Return the event that bytes from between two events begin with, and its size in bytes.

        None for any but an event of one line of data that ends with a blank line: what servers
        mostly send. Nothing of the bytes is kept.
        """
        size = data.find(b"\n\n") + 2
        block = data[6 : size - 2]
        if size < 2 or not data.startswith(b"data: ") or b"\n" in block or b"\r" in block:
            return None, 0
        if size > LINE_LIMIT_BYTES or not block.strip():
            return None, 0
        self._at_start = False
        return SseEvent(name="message", data=block), size

    @property
    def _inside(self) -> bool:
        return bool(self._part_bytes or self._data or self._name or self._after_cr)

    def _whole_events(self, data: bytes) -> list[SseEvent]:
        """Return the events of bytes that begin and end between events: what servers mostly send.

        An event of one line of data is taken as it is, any other one read line by line.
        """
        events: list[SseEvent] = []
        for block in data[:-2].split(b"\n\n"):
            plain = block.startswith(b"data: ") and b"\n" not in block
            if plain and len(block) <= LINE_LIMIT_BYTES:
                self._at_start = False
                if block[6:].strip():
                    events.append(SseEvent(name="message", data=block[6:]))
                continue
            for line in block.split(b"\n"):
                self._line(line, events)
            self._line(b"", events)
        return events

    def end(self) -> list[SseEvent]:
        """Return what the end of the stream completes: at most the one event that was begun."""
        events: list[SseEvent] = []
        self._line(b"".join(self._parts), events)
        self._parts, self._part_bytes = [], 0
        self._dispatch(events)
        self.between_events = not self._inside
        return events

    @staticmethod
    def _check_line(length: int) -> None:
        if length > LINE_LIMIT_BYTES:
            raise StreamTooLarge(f"a line of the stream is over {LINE_LIMIT_BYTES} bytes")

    def _line(self, line: bytes, events: list[SseEvent]) -> None:
        self._check_line(len(line))
        if self._at_start:
            self._at_start = False
            line = line.removeprefix(BOM)
        if not line:
            self._dispatch(events)
            return
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field in (b"data", b"error"):
            self._data.append(value)
            self._data_bytes += len(value) + 1
            if self._data_bytes > EVENT_LIMIT_BYTES:
                raise StreamTooLarge(f"an event of the stream is over {EVENT_LIMIT_BYTES} bytes")
            if field == b"error":
                self._name = "error"
        elif field == b"event":
            self._name = value.decode("utf-8", "replace")
        # Comments (an empty field name), ids, retry times and unknown fields are nothing to us.

    def _dispatch(self, events: list[SseEvent]) -> None:
        data, name = b"\n".join(self._data), self._name
        self._data, self._data_bytes, self._name = [], 0, ""
        if data.strip() or name == "error":
            events.append(SseEvent(name=name or "message", data=data))
