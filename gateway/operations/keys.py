"""API keys: made, shown once, revoked (SEC-2)."""

import secrets
from typing import Annotated, ClassVar

import msgspec

from gateway.api.auth import ALL_SCOPES, KEY_RANDOM_BYTES, KNOWN_SCOPES, mint_key
from gateway.auth_roles import Role
from gateway.operations.base import Operation, Plan, Refused, Seen
from ledger.queries import configuration as stored
from ledger.records import ApiKeyRevocation

# Listed in the schema; another is refused by `plan`, in words that name it.
Scope = Annotated[str, msgspec.Meta(extra_json_schema={"enum": list(KNOWN_SCOPES)})]


class CreateKey(Operation, frozen=True, kw_only=True):
    """Make an API key for a tenant; its text is in the answer, once, and kept nowhere."""

    NAME: ClassVar[str] = "create_key"
    ROLE: ClassVar[Role] = "admin"

    tenant_id: str
    scopes: tuple[Scope, ...] = ALL_SCOPES
    expires_at_us: int | None = None

    def plan(self, seen: Seen) -> Plan | Refused:
        if stored.tenant(seen.connection, self.tenant_id) is None:
            message = f"There is no tenant {self.tenant_id!r}; set_tenant makes one."
            return Refused(code="NO_SUCH_TENANT", message=message)
        unknown = sorted(set(self.scopes) - set(KNOWN_SCOPES))
        if unknown or not self.scopes:
            known = ", ".join(KNOWN_SCOPES)
            message = f"Scopes are one or more of {known}; not {', '.join(unknown) or 'none'}."
            return Refused(code="UNKNOWN_SCOPE", message=message)
        if self.expires_at_us is not None and self.expires_at_us <= seen.now_us:
            message = "The key would have expired already; give a later time."
            return Refused(code="EXPIRY_PAST", message=message)
        text, record = mint_key(
            secrets.token_bytes(KEY_RANDOM_BYTES),
            tenant_id=self.tenant_id,
            scopes=self.scopes,
            created_at_us=seen.now_us,
            created_by=seen.actor.label,
            expires_at_us=self.expires_at_us,
        )
        return Plan(
            records=(record,),
            summary=f"Made the key {record.prefix}… for {self.tenant_id}.",
            subject=record.key_id,
            after={"tenant_id": self.tenant_id, "scopes": list(self.scopes)},
            shown_once=text,
        )


class RevokeKey(Operation, frozen=True, kw_only=True):
    """Revoke an API key: its next request is refused, what runs goes on."""

    NAME: ClassVar[str] = "revoke_key"
    ROLE: ClassVar[Role] = "admin"

    key_id: str

    def plan(self, seen: Seen) -> Plan | Refused:
        active = {key.key_id: key for key in stored.active_api_keys(seen.connection)}
        key = active.get(self.key_id)
        if key is None:
            message = f"There is no active key {self.key_id!r}: unknown, or revoked already."
            return Refused(code="NO_SUCH_KEY", message=message)
        record = ApiKeyRevocation(
            key_id=self.key_id,
            revoked_at_us=seen.now_us,
            revoked_by=seen.actor.label,
            reason=self.reason,
        )
        return Plan(
            records=(record,),
            summary=f"Revoked the key {key.prefix}… of {key.tenant_id}.",
            subject=self.key_id,
            before={"active": True},
            after={"active": False},
        )
