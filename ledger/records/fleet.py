"""What is served, by which policy, at which price: identities, policies, rates, tenants, keys."""

from typing import ClassVar

from ledger.records.base import Index, Indexes, Record, Unique


class ModelIdentity(Record, frozen=True, kw_only=True):
    TABLE: ClassVar[str] = "model_identity"
    UNIQUE: ClassVar[Unique] = (("identity_id",),)
    identity_id: str  # hash of the eight fields below
    logical_model: str
    weights_revision: str
    tokenizer_revision: str
    runtime_name: str
    runtime_revision: str
    quantization: str
    serving_config_revision: str
    prompt_policy_revision: str


class RateTableRecord(Record, frozen=True, kw_only=True):
    TABLE: ClassVar[str] = "rate_table"
    UNIQUE: ClassVar[Unique] = (("version",),)
    INDEXES: ClassVar[Indexes] = (Index("rate_table_effective", "effective_from_us"),)
    version: str
    effective_from_us: int
    currency: str
    body_json: str  # ledger.rates.RateTable
    published_at_us: int
    published_by: str


class RoutePolicyRecord(Record, frozen=True, kw_only=True):
    TABLE: ClassVar[str] = "route_policy"
    UNIQUE: ClassVar[Unique] = (("revision",),)
    revision: str
    body_json: str  # gateway.policy.values.RoutePolicy
    published_at_us: int
    published_by: str


class Draft(Record, frozen=True, kw_only=True):
    """A rate table or route policy on its way: nothing is decided or priced by it.

    Drafting again is a new revision under the same name; publishing makes a RateTableRecord or
    RoutePolicyRecord of one revision and leaves the draft as it is.
    """

    TABLE: ClassVar[str] = "draft"
    UNIQUE: ClassVar[Unique] = (("kind", "name", "revision"),)
    LABEL: ClassVar[str] = "name"
    kind: str  # rate_table | route_policy
    name: str  # the version or revision that it is to be published as
    revision: int  # 1, 2, …: the highest is the newest
    body_json: str  # ledger.rates.RateTable or gateway.policy.values.RoutePolicy
    based_on: str | None  # the published version or revision that it started from
    drafted_at_us: int
    drafted_by: str
    note: str = ""


class Tenant(Record, frozen=True, kw_only=True):
    TABLE: ClassVar[str] = "tenant"
    UNIQUE: ClassVar[Unique] = (("tenant_id", "revision"),)
    tenant_id: str
    revision: int  # 1, 2, …: the highest is in force
    body_json: str  # quotas and defaults
    changed_at_us: int
    changed_by: str


class ApiKey(Record, frozen=True, kw_only=True):
    TABLE: ClassVar[str] = "api_key"
    UNIQUE: ClassVar[Unique] = (("key_id",), ("key_hash",))
    key_id: str
    tenant_id: str
    prefix: str  # shown; the key itself is shown once, at creation
    key_hash: bytes  # sha256 of the whole key, which has 256 random bits
    scopes: str  # space-separated
    created_at_us: int
    created_by: str
    expires_at_us: int | None = None


class ApiKeyRevocation(Record, frozen=True, kw_only=True):
    TABLE: ClassVar[str] = "api_key_revocation"
    UNIQUE: ClassVar[Unique] = (("key_id",),)
    key_id: str
    revoked_at_us: int
    revoked_by: str
    reason: str


class EvaluationResult(Record, frozen=True, kw_only=True):
    TABLE: ClassVar[str] = "evaluation_result"
    UNIQUE: ClassVar[Unique] = (("evaluation_id",),)
    evaluation_id: str
    suite: str
    identity_id: str
    score_milli: int
    passed: int  # 0 or 1
    measured_at_us: int
    evidence: str  # a reference, never content
