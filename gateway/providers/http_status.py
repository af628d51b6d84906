"""What an HTTP answer that is no success says of an attempt (PRV-2, RTY-2). Pure.

Only a status by which the server says that it did not take the request is a rejection. A gateway's
502 or 504 says that somebody lost sight of it: unknown, never failed.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Literal

RETRY_AFTER_DEFAULT_MS = 1_000
"""Where an overloaded server gives no Retry-After, or one that can't be read."""
RETRY_AFTER_LIMIT_MS = 3_600_000
_SECONDS = re.compile(r"[0-9]{1,9}(\.[0-9]{1,3})?")
_MILLISECONDS = re.compile(r"[0-9]{1,12}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """How an attempt ended by its HTTP status alone."""

    ended: Literal["rejected", "failed", "unknown"]
    reason: str
    retry_after_ms: int | None = None


_OVERLOADED = {
    429: "PROVIDER_RATE_LIMITED",
    503: "PROVIDER_OVERLOADED",
    529: "PROVIDER_OVERLOADED",
}
_NOT_RUN = {
    401: "PROVIDER_CREDENTIAL_REFUSED",
    402: "PROVIDER_CREDIT_EXHAUSTED",
    403: "PROVIDER_CREDENTIAL_REFUSED",
    404: "PROVIDER_NOT_FOUND",
    408: "PROVIDER_TIMED_OUT_READING",
    409: "PROVIDER_CONFLICT",
    413: "PROVIDER_REQUEST_TOO_LARGE",
    425: "PROVIDER_TOO_EARLY",
    501: "PROVIDER_NOT_IMPLEMENTED",
    505: "PROVIDER_NOT_IMPLEMENTED",
}


def verdict(status: int, headers: Mapping[str, str], now_us: int) -> Verdict:
    """Return what a status other than 200 means; header names are looked up in lower case.

    409 and 425 are rejections that may pass later, so they carry Retry-After where it is given.
    """
    if status in _OVERLOADED:
        asked_ms = retry_after_ms(headers, now_us)
        wait_ms = RETRY_AFTER_DEFAULT_MS if asked_ms is None else asked_ms
        return Verdict(ended="rejected", reason=_OVERLOADED[status], retry_after_ms=wait_ms)
    if status in _NOT_RUN or 400 <= status < 500:
        return Verdict(
            ended="rejected",
            reason=_NOT_RUN.get(status, "PROVIDER_REFUSED"),
            retry_after_ms=retry_after_ms(headers, now_us),
        )
    if 300 <= status < 400:
        # Not followed: the request carries a credential and a prompt for one address only.
        return Verdict(ended="rejected", reason="PROVIDER_REDIRECTED")
    if status == 500:
        return Verdict(ended="failed", reason="PROVIDER_INTERNAL_ERROR")
    return Verdict(ended="unknown", reason="PROVIDER_LOST_BEHIND_GATEWAY")


def retry_after_ms(headers: Mapping[str, str], now_us: int) -> int | None:
    """Return how long the server asks to wait, 0 to RETRY_AFTER_LIMIT_MS; None: nothing readable.

    Retry-After is seconds (with up to three decimals) or a date, one in the past being 0; rounded
    up to ms. Of it and the `retry-after-ms` of some vendors the longer wins (RTY-2).
    """
    asked = [
        wait_ms
        for wait_ms in (
            _standard_ms(headers.get("retry-after", "").strip(), now_us),
            _vendor_ms(headers.get("retry-after-ms", "").strip()),
        )
        if wait_ms is not None
    ]
    return min(max(asked), RETRY_AFTER_LIMIT_MS) if asked else None


def _standard_ms(text: str, now_us: int) -> int | None:
    if _SECONDS.fullmatch(text):
        whole, _, decimals = text.partition(".")
        return int(whole) * 1_000 + int(decimals.ljust(3, "0"))
    try:
        date = parsedate_to_datetime(text)
    except ValueError:
        return None
    if date.tzinfo is None:  # "-0000": UTC of unknown origin
        date = date.replace(tzinfo=UTC)
    return max(0, -((now_us - int(date.timestamp()) * 1_000_000) // 1_000))


def _vendor_ms(text: str) -> int | None:
    return int(text) if _MILLISECONDS.fullmatch(text) else None
