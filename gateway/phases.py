"""How a first token's time is split: queue, prefill, first decode, first-byte network (DLV-1).

Pure. The four parts add up to TTFT exactly; what the backend does not tell stays None.
"""

from msgspec.structs import replace

from gateway.providers.outcomes import Timings


def measured(
    timings: Timings,
    *,
    decided_at_us: int,
    started_at_us: int | None,
    first_piece_us: int | None,
    first_byte_us: int | None,
) -> Timings:
    """Return the backend's phases completed by what the gateway's own clock saw.

    TTFT runs from acceptance to the moment the caller's first byte was written; for a caller that
    does not stream, to the moment the token was there. The wait until the attempt began is part of
    the queue. What is left after the backend's own phases is network, and never negative: a phase
    that a backend reports longer than it can have been is cut, the last one first.
    """
    if first_piece_us is None or started_at_us is None:
        return timings
    seen_us = first_byte_us if first_byte_us is not None else first_piece_us
    first_token_us = max(0, seen_us - decided_at_us)
    if timings.queue_us is None or timings.prefill_us is None:
        network_us = max(0, seen_us - first_piece_us)
        return replace(timings, first_token_us=first_token_us, first_byte_network_us=network_us)
    left_us = first_token_us
    queue_us = min(left_us, started_at_us - decided_at_us + timings.queue_us)
    left_us -= queue_us
    prefill_us = min(left_us, timings.prefill_us)
    left_us -= prefill_us
    first_decode_us = min(left_us, timings.first_decode_us or 0)
    return replace(
        timings,
        queue_us=queue_us,
        prefill_us=prefill_us,
        first_decode_us=first_decode_us,
        first_byte_network_us=left_us - first_decode_us,
        first_token_us=first_token_us,
    )
