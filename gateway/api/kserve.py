"""The Open Inference Protocol v2 as a server: metadata, health, infer, generate, generate_stream.

A logical model's versions are the identities of its primary routes, and an answer's version is the
identity that made it. The caller doesn't choose one: a version in the URL is taken where the model
has no other, and refused where routing would choose.
"""

from dataclasses import dataclass
from typing import Any

import orjson
from msgspec.structs import replace

from gateway.api import errors
from gateway.api.answers import Receipts, usage_json
from gateway.api.calls import Answering, Calls
from gateway.api.errors import Failure
from gateway.api.forms import ChunkWriter, Finished, Form, Format
from gateway.api.headers import encoding_problem
from gateway.api.http import OCTETS, Header, Request, Response
from gateway.api.kserve_body import (
    TEXT_INPUT,
    TEXT_OUTPUT,
    Wanted,
    read_generate,
    read_infer,
    with_binary_data,
)
from gateway.api.ports import Ports, Run
from gateway.api.problems import Problem
from gateway.api.replies import failed_in
from gateway.api.sse import event
from gateway.api.wire import ChatRequest
from gateway.submission import Caller, Delta

NAME = "weighbridge"
EXTENSIONS = ("generate", "binary_tensor_data")
PLATFORM = "weighbridge"
BINARY_HEADER = "inference-header-content-length"
GENERATE, STREAM, INFER = "generate", "generate_stream", "infer"


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerateForm:
    """A call of this protocol; `infer`: its answer is a tensor."""

    asked: Wanted
    infer: bool

    @property
    def wanted(self) -> ChatRequest:
        return self.asked.chat

    def writer(self, run: Run, choices: int) -> ChunkWriter:
        return GenerateEvents(self, run)

    def whole(self, run: Run, finished: Finished, receipts: Receipts) -> bytes:
        gathered, finish_reason = finished[0]
        head = self.head(run)
        if self.infer:
            output = {
                "name": TEXT_OUTPUT, "datatype": "BYTES", "shape": [1], "data": [gathered.text()],
            }  # fmt: skip
            return orjson.dumps({**head, "outputs": [output]})
        return orjson.dumps(
            {**head, TEXT_OUTPUT: gathered.text(), **ending(finish_reason, receipts)}
        )

    def head(self, run: Run) -> dict[str, Any]:
        own_id = {} if self.asked.id is None else {"id": self.asked.id}
        return {"model_name": run.logical_model, "model_version": run.identity_id, **own_id}


def ending(finish_reason: str, receipts: Receipts) -> dict[str, Any]:
    """Returns what ends an answer: why, its counts, and its receipt."""
    usage = usage_json(receipts)
    return {
        "finish_reason": finish_reason,
        "num_input_tokens": usage["prompt_tokens"],
        "num_output_tokens": usage["completion_tokens"],
        "receipt": receipts[0][1],
    }


class GenerateEvents:
    """Writes generate_stream's events; the last has `done`."""

    def __init__(self, form: GenerateForm, run: Run) -> None:
        self._head = form.head(run)

    def role(self, index: int, first: Delta | None = None) -> bytes:
        return b""

    def piece(self, index: int, piece: Delta) -> bytes:
        if not piece.text:
            return b""
        return event(orjson.dumps({**self._head, TEXT_OUTPUT: piece.text, "done": False}))

    def finish(self, index: int, finish_reason: str) -> bytes:
        return b""

    def last(self, index: int, finish_reason: str, receipts: Receipts) -> bytes:
        end = {**self._head, TEXT_OUTPUT: "", "done": True, **ending(finish_reason, receipts)}
        return event(orjson.dumps(end))


class Generate(Calls):
    """Answers one of the protocol's three calls."""

    def __init__(self, ports: Ports, body_limit_bytes: int, kind: str) -> None:
        super().__init__(ports, body_limit_bytes, Format(name=f"v2_{kind}", read=_never))
        self._kind = kind

    def _read(self, request: Request, body: bytes) -> Form | Problem:
        encoded = encoding_problem(request.headers.get("content-encoding"))
        if encoded is not None:
            return encoded
        model, *version = request.parameters
        unfit = version_problem(self._ports, model, *version)
        if unfit is not None:
            return unfit
        if self._kind == INFER:
            asked = read_infer(model, body, request.headers.get(BINARY_HEADER))
        else:
            asked = read_generate(model, body, self._kind == STREAM)
        if isinstance(asked, Problem):
            return asked
        return GenerateForm(asked=asked, infer=self._kind == INFER)

    async def reply(
        self, request: Request, caller: Caller, answering: Answering
    ) -> Response | None:
        return await self.answer(request, answering)

    async def whole(self, answering: Answering) -> Response:
        response, form = await super().whole(answering), answering.form
        if response.code is not None or not isinstance(form, GenerateForm) or not form.asked.binary:
            return response
        body, length = with_binary_data(response.body)
        headers = (*response.headers, (BINARY_HEADER.encode(), str(length).encode()))
        return replace(response, body=body, content_type=OCTETS, headers=headers)

    def failed(self, failure: Failure, headers: tuple[Header, ...] = ()) -> Response:
        return failed_in(failure, protocol_error(failure), headers)

    def failure_body(self, failure: Failure) -> bytes:
        return protocol_error(failure)


class Protocol:
    """Says what is served: server, models, versions, and whether requests are taken."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports

    async def server(self, request: Request, caller: Caller) -> Response:
        body = {"name": NAME, "version": "1", "extensions": list(EXTENSIONS)}
        return Response(body=orjson.dumps(body))

    async def live(self, request: Request) -> Response:
        return Response(body=b'{"live":true}')

    async def ready(self, request: Request) -> Response:
        ready, _ = self._ports.ready()
        return Response(body=orjson.dumps({"ready": ready}), status=200 if ready else 503)

    async def model(self, request: Request, caller: Caller) -> Response:
        found = self._versions(request)
        if isinstance(found, Response):
            return found
        tensor = {"datatype": "BYTES", "shape": [1]}
        body = {
            "name": request.parameters[0],
            "versions": list(found),
            "platform": PLATFORM,
            "inputs": [{"name": TEXT_INPUT, **tensor}],
            "outputs": [{"name": TEXT_OUTPUT, **tensor}],
        }
        return Response(body=orjson.dumps(body))

    async def model_ready(self, request: Request, caller: Caller) -> Response:
        found = self._versions(request)
        if isinstance(found, Response):
            return found
        ready, _ = self._ports.ready()
        body = {"name": request.parameters[0], "ready": ready}
        return Response(body=orjson.dumps(body), status=200 if ready else 503)

    def _versions(self, request: Request) -> tuple[str, ...] | Response:
        model, *version = request.parameters
        versions = self._ports.versions(model)
        if not versions or not set(version) <= set(versions):
            failure = errors.of_reason("MODEL_NOT_FOUND")
            return failed_in(failure, protocol_error(failure))
        return tuple(version) or versions


def version_problem(ports: Ports, model: str, version: str | None = None) -> Problem | None:
    """Returns why a version can't be asked for; None where it can, or none was."""
    if version is None:
        return None
    versions = ports.versions(model)
    if version not in versions:
        return Problem(code="MODEL_NOT_FOUND", message="The model has no such version.")
    if len(versions) > 1:
        message = "The model has several versions, of which routing chooses: name none."
        return Problem(code="INVALID_REQUEST", message=message, param="model_version")
    return None


def protocol_error(failure: Failure) -> bytes:
    """Returns the protocol's error object: a sentence, and our code beside it."""
    message = f"{failure.message} {failure.caller_action}".strip()
    return orjson.dumps({"error": message, "code": failure.code, "request_id": failure.request_id})


def _never(body: bytes) -> Form | Problem:
    raise TypeError("a call of this protocol is read with its URL")
