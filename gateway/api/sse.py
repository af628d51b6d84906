"""Server-sent events as OpenAI's clients read them: pure bytes, one event a call."""

DONE = b"data: [DONE]\n\n"


def event(payload: bytes) -> bytes:
    """Returns one event with one line of JSON as its data.

    Raises ValueError where the payload has a line break, which would end the line early: JSON
    encoders escape them.
    """
    if b"\n" in payload or b"\r" in payload:
        raise ValueError("an event's data is one line; this payload has a line break in it")
    return b"data: " + payload + b"\n\n"


def error_event(payload: bytes) -> bytes:
    """Returns the event that ends a stream that failed; nothing may follow it (DLV-5)."""
    return b"event: error\n" + event(payload)
