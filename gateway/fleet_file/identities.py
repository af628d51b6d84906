"""Model identities: the eight fields, and the id that is their hash (SPEC 2). Pure."""

import hashlib

import msgspec
import orjson

from ledger.records import ModelIdentity

ID_PREFIX = "mid_"
ID_DIGITS = 24
EMPTY_ACTION = "Say `none` where there is none"


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """What one served model exactly is."""

    logical_model: str
    weights_revision: str
    tokenizer_revision: str
    runtime_name: str
    runtime_revision: str
    quantization: str
    serving_config_revision: str
    prompt_policy_revision: str


def identity_id(identity: Identity) -> str:
    """The id: the same eight fields give the same, any other field another."""
    digest = hashlib.sha256(orjson.dumps(list(msgspec.structs.astuple(identity)))).hexdigest()
    return ID_PREFIX + digest[:ID_DIGITS]


def empty_fields(identity: Identity) -> list[str]:
    """The fields that say nothing: which of two models it is would depend on a blank."""
    return [name for name in Identity.__struct_fields__ if not getattr(identity, name).strip()]


def identity_record(identity: Identity) -> ModelIdentity:
    """The row that registers an identity."""
    return ModelIdentity(identity_id=identity_id(identity), **msgspec.structs.asdict(identity))


def identity_of(record: ModelIdentity) -> Identity:
    """The eight fields of a registered identity."""
    return msgspec.convert(record, Identity, from_attributes=True)
