"""GET /v1/models, and the answers that OpenAI's clients ask for and no route here gives."""

import orjson

from gateway.api import errors
from gateway.api.http import Request, Response
from gateway.api.ports import Ports
from gateway.api.problems import Problem
from gateway.api.replies import failed
from gateway.api.submitting import no_such_model
from gateway.submission import Caller


class Models:
    """Lists the logical models of the policy in force."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports

    async def every(self, request: Request, caller: Caller) -> Response:
        data = [_model_json(name) for name in self._ports.models()]
        return Response(body=orjson.dumps({"object": "list", "data": data}))

    async def one(self, request: Request, caller: Caller) -> Response:
        if request.parameter not in self._ports.models():
            return failed(errors.of_problem(no_such_model(self._ports.models())))
        return Response(body=orjson.dumps(_model_json(request.parameter)))


class NotGiven:
    """POST /v1/embeddings: no provider kind here makes them, and the refusal says so."""

    def __init__(self, body_limit_bytes: int) -> None:
        self._limit = body_limit_bytes

    async def __call__(self, request: Request, caller: Caller) -> Response:
        await request.body(self._limit)
        message = "No route gives embeddings: this gateway answers chats and texts."
        return failed(errors.of_problem(Problem(code="CAPABILITY_UNAVAILABLE", message=message)))


def _model_json(name: str) -> dict[str, object]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "weighbridge"}
