"""POST /api/v1/operations/{name}: the API's way to change the running system (SEC-2)."""

import msgspec

from gateway.api.auth import SCOPE_ADMINISTER
from gateway.api.errors import Failure
from gateway.api.http import Request, Response
from gateway.api.ports import Ports
from gateway.api.replies import failed_natively
from gateway.auth_roles import Role
from gateway.operations.base import Actor, Refused
from gateway.operations.registry import described, read
from gateway.submission import Caller

UNAVAILABLE = 503
_STATUS = {
    "NO_SUCH_OPERATION": 404,
    "INVALID_REQUEST": 400,
    "ROLE_MISSING": 403,
    "CONFLICT": 409,
    "LEDGER_UNAVAILABLE": UNAVAILABLE,
    "PLANNING_FAILED": UNAVAILABLE,
}
_ACTIONS = {
    "NO_SUCH_OPERATION": "Use a name that GET /api/v1/operations lists.",
    "INVALID_REQUEST": "Correct the field that the message names; GET /api/v1/operations has them.",
    "ROLE_MISSING": "Use a key that has the scope; an administrator can make one.",
    "REASON_MISSING": "Send the body field `reason` with the request.",
    "NO_CHANGE": "Nothing is to be done: it is so already.",
    "CONFLICT": "Look at what is in force now, then decide again.",
    "MOVED": "Look at what is in force now, then decide again.",
    "LEDGER_UNAVAILABLE": "Send the same request again later.",
    "PLANNING_FAILED": "Send the same request again later.",
    "NOTHING_DUE": "Nothing is to be done: every closed window is evaluated.",
}
CORRECT = "Correct what the message and `problems` name and send it again; nothing was written."
REFUSED_STATUS = 422  # of a refusal that is no kind of its own


class Operations:
    """The list of operations, and doing one."""

    def __init__(self, ports: Ports, body_limit_bytes: int) -> None:
        self._ports, self._limit = ports, body_limit_bytes

    async def listed(self, request: Request, caller: Caller) -> Response:
        return Response(body=msgspec.json.encode({"operations": described()}))

    async def perform(self, request: Request, caller: Caller) -> Response:
        """Do it as the key's holder: 200 once it is durable and in force, else a problem."""
        operation = read(request.parameter, await request.body(self._limit))
        if isinstance(operation, Refused):
            return refused(operation)
        result = await self._ports.operations.perform(operation, actor_of(caller))
        if isinstance(result, Refused):
            return refused(result)
        return Response(body=msgspec.json.encode(result))


def actor_of(caller: Caller) -> Actor:
    """Return a key's holder as an actor: an admin or an operator by the key's scope."""
    role: Role = "admin" if SCOPE_ADMINISTER in caller.scopes else "operator"
    return Actor(name=caller.key_id, role=role, via="api")


def refused(refusal: Refused) -> Response:
    """Return a refusal as a problem of RFC 9457, with everything that is wrong listed."""
    status = _STATUS.get(refusal.code, REFUSED_STATUS)
    return failed_natively(
        Failure(
            status=status,
            code=refusal.code,
            message=refusal.message,
            caller_action=_ACTIONS.get(refusal.code, CORRECT),
            retryable=status == UNAVAILABLE,
            problems=refusal.problems,
        )
    )
