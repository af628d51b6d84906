"""Open unknowns settled: on what a provider or an invoice says, or by a named person (LED-6)."""

import re
from typing import ClassVar

import msgspec

from gateway.auth_roles import Role
from gateway.operations.base import Operation, Plan, Refused, Seen
from gateway.policy.values import RoutePolicy
from gateway.resolving import Became, Found, resolution
from ledger.money import units_text
from ledger.queries import configuration as stored
from ledger.queries.unknowns import OpenUnknown, open_unknown
from ledger.rates import RateTable, Usage
from ledger.records import Settlement
from ledger.usage.reading import TIER_LIMIT_CHARS

TOKENS_LIMIT = 10**9
TEXT_LIMIT_CHARS = 500
_CODE = re.compile(r"[A-Z][A-Z0-9_]{0,63}")


class ResolveUnknown(Operation, frozen=True, kw_only=True):
    """Settle an attempt whose end was unknown, with the evidence of how it ended."""

    NAME: ClassVar[str] = "resolve_unknown"
    ROLE: ClassVar[Role] = "operator"

    attempt_id: str  # request_id.ordinal
    became: Became
    evidence: str = ""  # where it is known from: an invoice line, a provider's log
    input_tokens: int | None = None  # of one that ran; None: as it was counted when it was sent
    cached_input_tokens: int = 0
    output_tokens: int | None = None
    error_code: str | None = None
    provider_request_id: str | None = None
    service_tier: str = ""  # where the provider says that it ran: it may have its own rate

    def plan(self, seen: Seen) -> Plan | Refused:
        one = open_unknown(seen.connection, self.attempt_id)
        if one is None:
            message = f"{self.attempt_id!r} is no open unknown: settled already, or still running."
            return Refused(code="NO_OPEN_UNKNOWN", message=message)
        found = self._found(one)
        if isinstance(found, Refused):
            return found
        rates = stored.rate_table(seen.connection, one.receipt.record.rate_table_version)
        if rates is None:
            message = f"The ledger has no rate table {one.receipt.record.rate_table_version}."
            return Refused(code="NO_SUCH_RATES", message=message)
        table = msgspec.json.decode(rates.body_json, type=RateTable)
        try:
            rows, receipt = resolution(
                one, found, table, _region(seen, one), seen.now_us, seen.actor.label
            )
        except (ValueError, OverflowError) as problem:
            return Refused(code="UNUSABLE_USAGE", message=f"It can't be priced: {problem}.")
        held = units_text(one.reservation.cost_pico)
        spent_pico = sum(row.cost_pico for row in rows if isinstance(row, Settlement))
        return Plan(
            records=rows,
            summary=f"{self.attempt_id} {_WORDS[self.became]}: of {held} units held, "
            f"{units_text(spent_pico)} are spent.",
            subject=self.attempt_id,
            before={"status": "unknown", "held_pico": one.reservation.cost_pico},
            after={
                "became": self.became,
                "spent_pico": spent_pico,
                "receipt_revision": receipt.revision if receipt else None,
            },
            evidence=self.evidence,
        )

    def _unclear(self) -> Refused | None:
        """What contradicts itself, or is no code and no reference."""
        counted = bool(self.input_tokens or self.output_tokens or self.cached_input_tokens)
        if counted and self.became in ("not_run", "written_off"):
            message = f"Tokens are of what ran; {self.became} takes none."
            return Refused(code="UNUSABLE_USAGE", message=message)
        if self.error_code is not None and not _CODE.fullmatch(self.error_code):
            message = "An error_code is of capitals, digits and _, at most 64: PROVIDER_FAILED."
            return Refused(code="INVALID_REQUEST", message=message)
        texts = (self.evidence, self.provider_request_id or "")
        if any(len(text) > TEXT_LIMIT_CHARS or not text.isprintable() for text in texts):
            message = (
                f"evidence and provider_request_id are one line of {TEXT_LIMIT_CHARS} at most."
            )
            return Refused(code="INVALID_REQUEST", message=message)
        return None

    def _found(self, one: OpenUnknown) -> Found | Refused:
        unclear = self._unclear()
        if unclear is not None:
            return unclear
        ran = self.became in ("completed", "cancelled", "failed")
        if ran and not self.evidence.strip():
            message = "Name the evidence that it ran: an invoice line, a provider's log or answer."
            return Refused(code="EVIDENCE_MISSING", message=message)
        if self.became == "completed" and self.output_tokens is None:
            message = "A completed attempt needs its output_tokens."
            return Refused(code="USAGE_MISSING", message=message)
        inputs = one.reservation.input_tokens if self.input_tokens is None else self.input_tokens
        outputs = self.output_tokens or 0
        if not (0 <= self.cached_input_tokens <= inputs <= TOKENS_LIMIT) or not (
            0 <= outputs <= TOKENS_LIMIT
        ):
            message = f"Tokens are counts up to {TOKENS_LIMIT:,}, the cached ones among the input."
            return Refused(code="UNUSABLE_USAGE", message=message)
        if len(self.service_tier) > TIER_LIMIT_CHARS:
            message = f"A service tier is a word of at most {TIER_LIMIT_CHARS} characters."
            return Refused(code="UNUSABLE_USAGE", message=message)
        return Found(
            became=self.became,
            usage=Usage(
                input_tokens=inputs if ran else 0,
                cached_input_tokens=self.cached_input_tokens if ran else 0,
                output_tokens=outputs if ran else 0,
            ),
            usage_source="estimated" if self.input_tokens is None else "provider",
            error_code=self.error_code or (None if self.became == "completed" else "RESOLVED"),
            provider_request_id=self.provider_request_id,
            service_tier=self.service_tier.lower(),
        )


_WORDS = {
    "completed": "turned out completed",
    "cancelled": "turned out cancelled",
    "failed": "turned out failed",
    "not_run": "turned out never to have run",
    "written_off": "was written off",
}


def _region(seen: Seen, one: OpenUnknown) -> str:
    """The region of the attempt's route, by the policy that its request was decided under."""
    record = stored.policy(seen.connection, one.receipt.record.policy_revision)
    if record is None:
        return ""
    policy = msgspec.json.decode(record.body_json, type=RoutePolicy)
    return next((r.region for r in policy.routes if r.route_id == one.attempt.route_id), "")
