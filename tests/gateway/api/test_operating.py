"""POST /api/v1/operations: how a refusal is told."""

import json

import pytest

from gateway.api.operating import CORRECT, refused
from gateway.operations.base import Refused


@pytest.mark.parametrize(
    ("code", "status", "action"),
    [
        ("ROLE_MISSING", 403, "Use a key that has the scope"),
        ("REASON_MISSING", 422, "Send the body field `reason`"),
        ("NO_OPEN_UNKNOWN", 422, CORRECT),
        ("LEDGER_UNAVAILABLE", 503, "Send the same request again later."),
    ],
)
def test_every_refusal_says_what_its_caller_can_do(code, status, action):
    """SEC-3: an error is for its reader."""
    reply = refused(Refused(code=code, message="It is so."))
    assert reply.status == status
    assert json.loads(reply.body)["caller_action"].startswith(action)
