"""Bodies of the Open Inference Protocol v2: generate's JSON, and infer's tensors. Pure.

infer takes one text, in the tensor `text_input` (BYTES, one element), and gives one in the tensor
`text_output`: each as JSON data, or as binary data behind the JSON, whose length the header
inference-header-content-length says.
"""

import struct
from typing import Annotated, Any

import msgspec
import orjson

from gateway.api.chat_messages import WireMessage
from gateway.api.problems import Problem, invalid
from gateway.api.wire import ChatBody, ChatRequest, Count, chat_request, decoded_body

TEXT_INPUT = "text_input"
TEXT_OUTPUT = "text_output"
_LENGTH = struct.Struct("<I")  # before each element of BYTES
Text = Annotated[str, msgspec.Meta(max_length=128)]


class GenerateParameters(msgspec.Struct):
    """What can be asked for; other servers' parameters are left alone."""

    max_tokens: Count | None = None
    temperature: float | None = None
    top_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    stop: str | list[str] | None = None
    seed: int | None = None
    ignore_eos: bool | None = None


class GenerateBody(GenerateParameters, kw_only=True):
    """What can be asked for may stand beside the text, as Triton's backends take it, too."""

    text_input: str
    id: Text | None = None
    parameters: GenerateParameters | None = None


class Tensor(msgspec.Struct):
    name: str
    shape: list[int]
    datatype: str
    data: Any = None
    parameters: dict[str, Any] | None = None


class OutputParameters(msgspec.Struct):
    binary_data: bool | None = None


class Output(msgspec.Struct):
    """A tensor that is asked for. Without any, all are given."""

    name: str
    parameters: OutputParameters | None = None


class InferParameters(GenerateParameters):
    binary_data_output: bool | None = None  # of outputs that don't say it themselves


class InferBody(msgspec.Struct):
    inputs: list[Tensor]
    id: Text | None = None
    parameters: InferParameters | None = None
    outputs: list[Output] | None = None


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What a call of this protocol asks for: a chat of one message, and its own id.

    `binary`: the answer's tensor is wanted as binary data.
    """

    chat: ChatRequest
    id: str | None
    binary: bool = False


_generate = msgspec.json.Decoder(GenerateBody)
_infer = msgspec.json.Decoder(InferBody)


def read_generate(model: str, body: bytes, stream: bool) -> Wanted | Problem:
    """Returns the call, or what is wrong with it and where."""
    decoded = decoded_body(body, _generate)
    if isinstance(decoded, Problem):
        return decoded
    parameters = _joined(decoded, decoded.parameters or GenerateParameters())
    if isinstance(parameters, Problem):
        return parameters
    return _wanted(model, decoded.text_input, parameters, decoded.id, stream)


def _joined(
    beside: GenerateParameters, parameters: GenerateParameters
) -> GenerateParameters | Problem:
    """Returns what was asked for in either of the two places, each thing by one value."""
    asked: dict[str, Any] = {}
    for name in GenerateParameters.__struct_fields__:
        outer, inner = getattr(beside, name), getattr(parameters, name)
        if outer is not None and inner is not None and outer != inner:
            return invalid(f"{name} is there twice, and differs: send one of them.", name)
        asked[name] = outer if inner is None else inner
    return GenerateParameters(**asked)


def read_infer(model: str, body: bytes, header_length: str | None) -> Wanted | Problem:
    """Returns the call, or what is wrong with it and where."""
    binary = b""
    if header_length is not None:
        length = int(header_length) if _digits(header_length) else -1
        if not 0 < length <= len(body):
            return invalid(
                "inference-header-content-length is the length of the JSON at the body's start.",
                "inference-header-content-length",
            )
        body, binary = body[:length], body[length:]
    decoded = decoded_body(body, _infer)
    if isinstance(decoded, Problem):
        return decoded
    text: str | None = None
    for tensor in decoded.inputs:
        size = (tensor.parameters or {}).get("binary_data_size")
        piece: bytes | None = None
        if isinstance(size, int) and not isinstance(size, bool):
            if not 0 <= size <= len(binary):
                return invalid(f"inputs: {TEXT_INPUT} has less binary data than said.", "inputs")
            piece, binary = binary[:size], binary[size:]
        if tensor.name != TEXT_INPUT or text is not None:
            return invalid(f"inputs: there is one tensor, {TEXT_INPUT}, once.", "inputs")
        found = _element(tensor, piece)
        if isinstance(found, Problem):
            return found
        text = found
    if binary:
        return invalid(f"{len(binary)} bytes of binary data belong to no tensor.", "inputs")
    if text is None:
        return invalid(f"inputs must hold the tensor {TEXT_INPUT}.", "inputs")
    outputs = decoded.outputs or [Output(name=TEXT_OUTPUT)]
    if any(output.name != TEXT_OUTPUT for output in outputs):
        return invalid(f"outputs: there is one tensor, {TEXT_OUTPUT}.", "outputs")
    wanted = _wanted(model, text, decoded.parameters, decoded.id, False)
    if isinstance(wanted, Problem):
        return wanted
    own = outputs[0].parameters.binary_data if outputs[0].parameters else None
    every = decoded.parameters.binary_data_output if decoded.parameters else None
    return msgspec.structs.replace(wanted, binary=bool(every if own is None else own))


def with_binary_data(answer: bytes) -> tuple[bytes, int]:
    """Returns infer's JSON answer with its text as binary data behind it, and the JSON's length."""
    body = orjson.loads(answer)
    text = body["outputs"][0].pop("data")[0].encode()
    body["outputs"][0]["parameters"] = {"binary_data_size": _LENGTH.size + len(text)}
    head = orjson.dumps(body)
    return head + _LENGTH.pack(len(text)) + text, len(head)


def _digits(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 12


def _element(tensor: Tensor, binary: bytes | None) -> str | Problem:
    """Returns the one text of a tensor."""
    if tensor.datatype != "BYTES" or any(size != 1 for size in tensor.shape):
        return invalid(f"{TEXT_INPUT} must be of datatype BYTES, with one element.", "inputs")
    if binary is None:
        data = tensor.data
        while isinstance(data, list) and len(data) == 1:
            data = data[0]
        if isinstance(data, str):
            return data
        return invalid(f"{TEXT_INPUT}.data must hold one text.", "inputs")
    if tensor.data is not None:
        return invalid(f"{TEXT_INPUT} has both data and binary data: send one.", "inputs")
    if len(binary) < _LENGTH.size or _LENGTH.unpack_from(binary)[0] != len(binary) - _LENGTH.size:
        return invalid(f"{TEXT_INPUT} must be one element: its length, then its bytes.", "inputs")
    try:
        return binary[_LENGTH.size :].decode()
    except UnicodeDecodeError:
        return invalid(f"{TEXT_INPUT} isn't UTF-8.", "inputs")


def _wanted(
    model: str, text: str, parameters: GenerateParameters | None, own_id: str | None, stream: bool
) -> Wanted | Problem:
    asked = msgspec.structs.asdict(parameters or GenerateParameters())
    asked.pop("binary_data_output", None)  # says how the answer is written, not what it is
    try:
        body = msgspec.convert(
            {
                **asked,
                "model": model,
                "messages": [],
                "stream": stream,
            },
            ChatBody,
        )
    except msgspec.ValidationError:
        return invalid("A parameter has a value that can't be used.", "parameters")
    body.messages = [WireMessage(role="user", content=text)]
    chat = chat_request(body)
    if isinstance(chat, Problem):
        place = chat.param or ""
        return invalid(f"{place}: can't be used.", place.replace("messages[0]", TEXT_INPUT))
    return Wanted(chat=chat, id=own_id)
