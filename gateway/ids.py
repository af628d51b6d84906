"""Names of requests, attempts and keys: pure, sortable by time, and not to be guessed (SEC-2).

A request id is "req_" and 27 characters of Crockford's base32 in lower case: 11 for the time in
microseconds (55 bits, enough for a thousand years), 16 for 80 random bits. Like a UUIDv7 it sorts
in the order of its time, which a B-tree takes 1.6 times faster than random ids.
"""

RANDOM_BYTES = 10

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_PAIRS = tuple([high + low for high in _ALPHABET for low in _ALPHABET])  # of each 10 bits
_TIME_BITS = 55


def request_id(now_us: int, random_bytes: bytes) -> str:
    """Returns the id of a request that came at `now_us`, from 10 random bytes."""
    return "req_" + _sortable(now_us, random_bytes)


def exchange_id(now_us: int, random_bytes: bytes) -> str:
    """Returns the id of an HTTP exchange that isn't a request of the ledger (ADM-1)."""
    return "xch_" + _sortable(now_us, random_bytes)


def completion_id(request_id: str) -> str:
    """Returns the id that an OpenAI client sees in the answer and in each of its chunks."""
    return "chatcmpl-" + request_id.removeprefix("req_")


def response_id(request_id: str) -> str:
    """Returns the id under which a response is asked for again."""
    return "resp_" + request_id.removeprefix("req_")


def request_of_response(response_id: str) -> str | None:
    """Returns the request that a response's id stands for; None where it is no such id."""
    head, _, tail = response_id.partition("_")
    return f"req_{tail}" if head == "resp" and tail else None


def crockford(value: bytes) -> str:
    """Returns bytes, a multiple of five of them, in Crockford's base32, lower case, in order."""
    if len(value) % 5:
        raise ValueError(f"{len(value)} bytes aren't a whole number of base32 characters")
    return _base32(int.from_bytes(value, "big"), 8 * len(value))


def _base32(number: int, bits: int) -> str:
    """Returns a number of `bits` bits, a multiple of ten, two characters for each ten."""
    pairs = _PAIRS
    return "".join([pairs[number >> shift & 1023] for shift in range(bits - 10, -1, -10)])


def _sortable(now_us: int, random_bytes: bytes) -> str:
    if not 0 <= now_us < 1 << _TIME_BITS:
        raise ValueError(f"{now_us} µs is no time that an id can hold")
    if len(random_bytes) != RANDOM_BYTES:
        raise ValueError(f"an id takes {RANDOM_BYTES} random bytes, not {len(random_bytes)}")
    # Written out, with numbers of a machine word each: every request waits for its id.
    pairs, t = _PAIRS, now_us
    a, b = int.from_bytes(random_bytes[:5], "big"), int.from_bytes(random_bytes[5:], "big")
    return (
        f"{pairs[t >> 45]}{pairs[t >> 35 & 1023]}{pairs[t >> 25 & 1023]}{pairs[t >> 15 & 1023]}"
        f"{pairs[t >> 5 & 1023]}{_ALPHABET[t & 31]}"
        f"{pairs[a >> 30]}{pairs[a >> 20 & 1023]}{pairs[a >> 10 & 1023]}{pairs[a & 1023]}"
        f"{pairs[b >> 30]}{pairs[b >> 20 & 1023]}{pairs[b >> 10 & 1023]}{pairs[b & 1023]}"
    )
