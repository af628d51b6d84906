"""Headers about a tenant's minute and about this gateway's own time, as clients read them.

`x-ratelimit-*` are OpenAI's; RateLimit and RateLimit-Policy are the IETF's draft of one name for
all. Only limits that the tenant has are named. Pure.
"""

import re
from collections.abc import Mapping
from functools import lru_cache

from gateway.api.http import Header
from gateway.policy.values import TenantState

MINUTE_S = 60
_SECONDS = re.compile(r"[0-9]{1,6}(\.[0-9]{1,9})?")


def allowance_headers(tenant: TenantState | None) -> tuple[Header, ...]:
    """Returns the headers for what is left of a tenant's requests and tokens in this minute.

    A reset is when one more request, or one more token, fits: 0 s while it does.
    """
    if tenant is None:
        return ()
    meters = (
        (b"requests", tenant.requests_per_minute, tenant.requests_in_minute,
         tenant.requests_free_ms),
        (b"tokens", tenant.tokens_per_minute, tenant.tokens_in_minute, tenant.tokens_free_ms),
    )  # fmt: skip
    headers: list[Header] = []
    policies, left = [], []
    for name, limit, used, free_ms in meters:
        if limit is None:
            continue
        remaining = max(0, limit - used)
        reset_s = -(-free_ms // 1_000)
        told, left_name, reset_name, policy = _limit(name, limit)
        headers += (told, (left_name, b"%d" % remaining), (reset_name, b"%dms" % free_ms))
        policies.append(policy)
        left.append(b'"%b";r=%d;t=%d' % (name, remaining, reset_s))
    if policies:
        headers.append((b"ratelimit-policy", b", ".join(policies)))
        headers.append((b"ratelimit", b", ".join(left)))
    return tuple(headers)


@lru_cache(maxsize=256)  # tenants' limits
def _limit(name: bytes, limit: int) -> tuple[Header, bytes, bytes, bytes]:
    """Returns what is the same each time: a limit's header, the names of the two headers that
    follow it, and its part of the policy."""
    return (
        (b"x-ratelimit-limit-" + name, b"%d" % limit),
        b"x-ratelimit-remaining-" + name,
        b"x-ratelimit-reset-" + name,
        b'"%b";q=%d;w=%d' % (name, limit, MINUTE_S),
    )


def overhead_header(arrived_us: int, handed_over_us: int | None) -> tuple[Header, ...]:
    """Returns the ms from a call's arrival to its hand-over to the first backend.

    Reading its body, counting, deciding and the ledger's commit are in it. None of it
    where an Idempotency-Key joined a call: that had been handed over before.
    """
    if handed_over_us is None or handed_over_us < arrived_us:
        return ()
    return (
        (b"x-weighbridge-overhead-ms", f"{(handed_over_us - arrived_us) / 1_000:.3f}".encode()),
    )


def patience_ms(headers: Mapping[str, str], stream: bool) -> int | None:
    """Returns how long a client of OpenAI's waits for a whole answer, by its own header; else None.

    A hint: it can shorten a deadline that was not asked for, and one that can't be read is none. A
    stream's client waits that long for each of its pieces, which is no bound on the whole.
    """
    text = headers.get("x-stainless-read-timeout", "")
    if stream or not _SECONDS.fullmatch(text):
        return None
    return int(float(text) * 1_000) or None
