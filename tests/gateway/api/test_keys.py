"""API keys: shown once, kept as a hash, scoped, with an end (SEC-2)."""

import pytest

from gateway.api.auth import KEY_RANDOM_BYTES, KeyRing, mint_key
from tests.factories import NOW_US
from tests.gateway.api.client import Client, SmallGateway, keys_of


def minted(**fields):
    given = {"tenant_id": "acme", "created_at_us": NOW_US, "created_by": "tests", **fields}
    return mint_key(bytes(range(KEY_RANDOM_BYTES)), **given)


def test_the_record_of_a_key_holds_its_hash_and_prefix_and_not_the_key():
    key, record = minted()
    assert key.startswith(record.prefix) and len(record.prefix) == 9
    assert len(record.key_hash) == 32
    assert key not in repr(record)
    assert len(key) == 3 + 56


def test_a_bearer_is_its_key_tenant_and_scopes():
    key, record = minted(scopes=["receipts"])
    caller = KeyRing([record]).caller(f"bearer  {key} ", NOW_US)
    assert caller is not None
    assert (caller.tenant_id, caller.key_id) == ("acme", record.key_id)
    assert caller.scopes == frozenset({"receipts"})


@pytest.mark.parametrize("authorization", [None, "", "Bearer", "Bearer ", "Basic a", "Bearer \x00"])
def test_whatever_is_no_key_is_nobody(authorization):
    _, record = minted()
    assert KeyRing([record]).caller(authorization, NOW_US) is None
    assert KeyRing([]).caller(f"Bearer {minted()[0]}", NOW_US) is None
    assert KeyRing([record]).caller("Bearer " + "a" * 100_000, NOW_US) is None


def test_a_key_ends_at_its_expiry():
    key, record = minted(expires_at_us=NOW_US)
    ring = KeyRing([record])
    assert ring.caller(f"Bearer {key}", NOW_US - 1) is not None
    assert ring.caller(f"Bearer {key}", NOW_US) is None


def test_a_key_takes_known_scopes_and_enough_randomness():
    with pytest.raises(ValueError, match="unknown scopes"):
        minted(scopes=["everything"])
    with pytest.raises(ValueError, match="random bytes"):
        mint_key(b"short", tenant_id="a", created_at_us=0, created_by="tests")


def test_a_key_without_the_scope_is_told_which_one_is_missing(ledger_path):
    reader = Client(SmallGateway(ledger_path, scopes=("receipts",)))
    reply = reader.get("/v1/models")
    assert reply.status == 403
    assert "inference" in reply.body.decode()
    assert reader.get("/api/v1/slo").status == 200
    writer = Client(SmallGateway(ledger_path, scopes=("inference",)))
    assert writer.get("/api/v1/requests/req_1").status == 403
    assert "reports" in writer.get("/api/v1/slo").body.decode()
    assert writer.get("/v1/models").status == 200


def test_keys_of_two_tenants_are_told_apart():
    keys, ring = keys_of("a", "b")
    assert [ring.caller(f"Bearer {keys[t]}", NOW_US).tenant_id for t in "ab"] == ["a", "b"]
