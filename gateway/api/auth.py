"""API keys: made once, kept as a hash, looked up without telling how close a guess came (SEC-2)."""

import hashlib
import hmac
from collections.abc import Iterable

from gateway.ids import crockford
from gateway.submission import Caller
from ledger.records import ApiKey

SCOPE_INFERENCE = "inference"
SCOPE_RECEIPTS = "receipts"
SCOPE_REPORTS = "reports"  # the costs of every tenant, not only the key's own
SCOPE_OPERATE = "operate"  # operations that need the role operator
SCOPE_ADMINISTER = "administer"  # every operation
ALL_SCOPES = (SCOPE_INFERENCE, SCOPE_RECEIPTS)  # what a tenant's key has unless told otherwise
KNOWN_SCOPES = (*ALL_SCOPES, SCOPE_REPORTS, SCOPE_OPERATE, SCOPE_ADMINISTER)

KEY_RANDOM_BYTES = 35  # 280 bits: whole base32 characters, and above the 256 that are asked for
KEY_LIMIT_CHARS = 128  # a longer one isn't hashed
_SHOWN_CHARS = 9  # "wb_" and six more

_BEARER = "bearer "


class KeyRing:
    """The keys that are in force. A change is a new ring: rings are never edited."""

    def __init__(self, keys: Iterable[ApiKey]) -> None:
        self._by_hash = {
            key.key_hash: (
                key,
                Caller(
                    tenant_id=key.tenant_id,
                    key_id=key.key_id,
                    scopes=frozenset(key.scopes.split()),
                ),
            )
            for key in keys
        }

    def caller(self, authorization: str | None, now_us: int) -> Caller | None:
        """Returns who the Authorization header's bearer key belongs to; None if to nobody.

        What is wrong with a key (absent, unknown, expired) is not told apart to its bearer.
        """
        if authorization is None or authorization[: len(_BEARER)].lower() != _BEARER:
            return None
        key_text = authorization[len(_BEARER) :].strip()
        if not key_text or len(key_text) > KEY_LIMIT_CHARS:
            return None
        presented = key_hash(key_text)
        found = self._by_hash.get(presented)
        if found is None:
            return None
        key, caller = found
        # The lookup went by a hash of 256 bits, of which a guesser controls none; the comparison
        # is constant in time all the same.
        if not hmac.compare_digest(key.key_hash, presented):
            return None
        if key.expires_at_us is not None and key.expires_at_us <= now_us:
            return None
        return caller


def key_hash(key_text: str) -> bytes:
    """Returns the 32 bytes that the ledger keeps of a key."""
    return hashlib.sha256(key_text.encode("utf-8", "replace")).digest()


def mint_key(
    random_bytes: bytes,
    *,
    tenant_id: str,
    created_at_us: int,
    created_by: str,
    scopes: Iterable[str] = ALL_SCOPES,
    expires_at_us: int | None = None,
) -> tuple[str, ApiKey]:
    """Returns a new key's text, which is shown once, and the record that is kept of it.

    Takes KEY_RANDOM_BYTES random bytes. Raises ValueError for fewer, and for an unknown scope.
    """
    if len(random_bytes) != KEY_RANDOM_BYTES:
        raise ValueError(f"a key takes {KEY_RANDOM_BYTES} random bytes, not {len(random_bytes)}")
    unknown = sorted(set(scopes := tuple(scopes)) - set(KNOWN_SCOPES))
    if unknown:
        raise ValueError(f"unknown scopes {unknown}; known are {', '.join(KNOWN_SCOPES)}")
    key_text = "wb_" + crockford(random_bytes)
    digest = key_hash(key_text)
    return key_text, ApiKey(
        key_id="key_" + hashlib.sha256(b"key id\x00" + digest).hexdigest()[:20],
        tenant_id=tenant_id,
        prefix=key_text[:_SHOWN_CHARS],
        key_hash=digest,
        scopes=" ".join(scopes),
        created_at_us=created_at_us,
        created_by=created_by,
        expires_at_us=expires_at_us,
    )
