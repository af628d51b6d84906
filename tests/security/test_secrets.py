"""Secrets are compared by hash or in constant time, and are nowhere to be read (SEC-2).

Time itself is not measured: on a busy machine it tells nothing. What is held is the code's shape.
"""

import ast
import hmac

import pytest

from gateway.api.auth import KeyRing, key_hash
from tests.gateway.api.client import keys_of
from tests.server import ROOT, Server

COMPARES = {  # modules that decide whether a secret is right, and what they do it with
    "gateway/api/auth.py": "compare_digest",
    "gateway/idempotency.py": "hmac",
    "gateway/control/webhook.py": "hmac",
}
SECRET_NAMES = {"key_text", "key_hash", "presented", "password", "signature", "secret"}


@pytest.mark.parametrize("name", sorted(COMPARES))
def test_no_secret_is_compared_character_by_character(name: str):
    source = (ROOT / name).read_text()
    assert COMPARES[name] in source
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Compare) and any(
            isinstance(each, ast.Eq | ast.NotEq) for each in node.ops
        ):
            sides = [node.left, *node.comparators]
            named = {getattr(side, "id", getattr(side, "attr", "")) for side in sides}
            assert not named & SECRET_NAMES, f"{name}:{node.lineno}"


def test_a_key_is_found_by_its_hash_and_compared_in_constant_time(monkeypatch):
    """A guess that shares a beginning with a key shares nothing with its hash."""
    (key,), ring = keys_of("tenant-a")[0].values(), keys_of("tenant-a")[1]
    compared = []

    def compare(one: bytes, other: bytes) -> bool:
        compared.append((one, other))
        return one == other

    monkeypatch.setattr(hmac, "compare_digest", compare)
    for length in range(1, len(key)):
        assert ring.caller(f"Bearer {key[:length]}", 0) is None
    assert compared == []
    assert ring.caller(f"Bearer {key}", 0) is not None
    assert compared == [(key_hash(key), key_hash(key))]


def test_whatever_is_wrong_with_a_key_looks_the_same(server: Server):
    key = server.keys["support-desk"]
    guesses = [None, "wb_", key[:-1], key + "x", key.upper(), "x" * 200, "Bearer"]
    told = set()
    for guess in guesses:
        status, headers, body = server.call("/v1/models", key=guess)
        told.add((status, body, headers["www-authenticate"]))
    assert len(told) == 1


def test_a_ring_forgets_a_revoked_key():
    keys, ring = keys_of("tenant-a", "tenant-b")
    assert ring.caller(f"Bearer {keys['tenant-a']}", 0) is not None
    assert KeyRing([]).caller(f"Bearer {keys['tenant-a']}", 0) is None
