"""The chat completion request as it comes in: strict about types, tolerant of unknown parameters.

What can't be read becomes a Problem that names the place and never quotes the content (SEC-3). A
number that can be read and makes no sense as a budget (0, -1, 10^12) is left to admission, which
refuses it with a receipt.
"""

import re
from typing import Annotated, Any, TypeVar

import msgspec
import orjson

from gateway.api.budget import TOKENS_LIMIT
from gateway.api.chat_messages import WireMessage, read_messages
from gateway.api.chat_tools import NamedTool, ResponseFormat, read_form, read_tools
from gateway.api.problems import Problem, invalid
from gateway.submission import Message, Parameters

METADATA_LIMIT = 64
STOP_LIMIT = 4
STOP_LIMIT_CHARS = 512
CHOICES_LIMIT = 8  # of n: each is a request of its own
TEMPERATURE_LIMIT = 2
PENALTY_LIMIT = 2
TOP_LOGPROBS_LIMIT = 20
LOGIT_BIAS_LIMIT = 1_024  # tokens
LOGIT_BIAS_MOST = 100

_PLACE = re.compile(r" - at `\$\.?([^`]*)`$")
_EXPECTED = re.compile(r"^Expected `[^`]*`(?:, got `[^`]*`| (?:<=|>=) -?[0-9]+)")
_MISSING = re.compile(r"missing required field `([a-z_]+)`")
_TOKEN_ID = re.compile(r"[0-9]{1,8}")
_EFFORT = re.compile(r"[a-z]{1,16}")

Count = Annotated[int, msgspec.Meta(ge=-TOKENS_LIMIT, le=TOKENS_LIMIT)]
Temperature = Annotated[float, msgspec.Meta(ge=0, le=TEMPERATURE_LIMIT)]
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
Penalty = Annotated[float, msgspec.Meta(ge=-PENALTY_LIMIT, le=PENALTY_LIMIT)]
Bias = Annotated[float, msgspec.Meta(ge=-LOGIT_BIAS_MOST, le=LOGIT_BIAS_MOST)]
Seed = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
Top = Annotated[int, msgspec.Meta(ge=0, le=TOP_LOGPROBS_LIMIT)]


class StreamOptions(msgspec.Struct):
    include_usage: bool | None = None


class ChatBody(msgspec.Struct):
    """The body as it may come: an unknown parameter is left alone."""

    model: str
    messages: list[WireMessage]
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: Count | None = None
    max_completion_tokens: Count | None = None
    n: Count | None = None
    tools: list[Any] | None = None
    tool_choice: str | NamedTool | None = None
    parallel_tool_calls: bool | None = None
    response_format: ResponseFormat | None = None
    temperature: Temperature | None = None
    top_p: Share | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    logit_bias: dict[str, Bias] | None = None
    stop: str | list[str] | None = None
    logprobs: bool | None = None
    top_logprobs: Top | None = None
    reasoning_effort: str | None = None
    seed: Seed | None = None
    ignore_eos: bool | None = None
    metadata: dict[str, str | Count] | None = None
    functions: Any = None
    function_call: Any = None
    modalities: list[str] | None = None


class ChatRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A chat completion request that could be read. `choices`: how many answers it asks for."""

    model: str
    messages: tuple[Message, ...]
    stream: bool
    include_usage: bool
    max_output_tokens: int | None
    tools_json: str | None
    schema: dict[str, Any] | None
    wants_json: bool
    parameters: Parameters
    seed: int | None
    ignore_eos: bool
    metadata: dict[str, str | int]
    choices: int = 1
    side_effects: bool | None = None  # None: true where there are tools (BUD-1)


_decoder = msgspec.json.Decoder(ChatBody)
Body = TypeVar("Body")


def read_chat_request(body: bytes) -> ChatRequest | Problem:
    """Returns the request, or what is wrong with it and where."""
    decoded = decoded_body(body, _decoder)
    return decoded if isinstance(decoded, Problem) else chat_request(decoded)


def chat_request(decoded: ChatBody) -> ChatRequest | Problem:
    """Returns the request of a body whose types are right, or what is wrong with it and where."""
    problem = _unsupported(decoded)
    if problem is not None:
        return problem
    messages = read_messages(decoded.messages)
    if isinstance(messages, Problem):
        return messages
    tools = read_tools(decoded.tools, decoded.tool_choice)
    if isinstance(tools, Problem):
        return tools
    form = read_form(decoded.response_format)
    if isinstance(form, Problem):
        return form
    cap = decoded.max_tokens if decoded.max_tokens is not None else decoded.max_completion_tokens
    stop = (decoded.stop,) if isinstance(decoded.stop, str) else tuple(decoded.stop or ())
    with_tools = tools.tools_json is not None
    return ChatRequest(
        model=decoded.model,
        messages=messages,
        stream=bool(decoded.stream),
        include_usage=bool(decoded.stream_options and decoded.stream_options.include_usage),
        max_output_tokens=cap,
        tools_json=tools.tools_json,
        schema=form.schema,
        wants_json=form.schema is not None,
        parameters=Parameters(
            temperature=decoded.temperature,
            top_p=decoded.top_p,
            presence_penalty=decoded.presence_penalty,
            frequency_penalty=decoded.frequency_penalty,
            stop=stop,
            logit_bias_json=_json(decoded.logit_bias),
            tool_choice_json=tools.tool_choice_json,
            parallel_tool_calls=decoded.parallel_tool_calls if with_tools else None,
            response_format_json=form.response_format_json,
            reasoning_effort=decoded.reasoning_effort,
            logprobs=bool(decoded.logprobs),
            top_logprobs=decoded.top_logprobs,
        ),
        seed=decoded.seed,
        ignore_eos=bool(decoded.ignore_eos),
        metadata=decoded.metadata or {},
        choices=1 if decoded.n is None else decoded.n,
    )


def decoded_body(body: bytes, decoder: "msgspec.json.Decoder[Body]") -> Body | Problem:
    """Returns the body as the decoder's type, or why it isn't one."""
    if not body:
        return invalid("The body is empty; it must be a JSON object.")
    try:
        body.decode()  # the parser doesn't look into what it skips
    except UnicodeDecodeError as error:
        return invalid(f"The body isn't UTF-8 (byte {error.start}).")
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        return _misfit(str(error))
    except msgspec.DecodeError:
        return invalid(
            "The body isn't JSON that can be read: check its syntax, and that each \\u escape of a "
            "surrogate has its other half."
        )
    except RecursionError:
        return invalid("The body is nested too deeply.")


def _misfit(text: str) -> Problem:
    """Returns a parser's type error as a Problem: its place and types, not its values."""
    found = _PLACE.search(text)
    place = found.group(1) if found else None
    missing = _MISSING.search(text)
    if missing:
        param = f"{place}.{missing.group(1)}" if place else missing.group(1)
        return invalid(f"{param} is missing.", param)
    expected = _EXPECTED.match(text)
    what = expected.group(0) if expected else "A value can't be used"
    return invalid(f"{what} at {place or 'the top of the body'}.", place)


def _unsupported(body: ChatBody) -> Problem | None:
    if body.n is not None and not 1 <= body.n <= CHOICES_LIMIT:
        return invalid(f"n must be from 1 to {CHOICES_LIMIT}.", "n")
    if body.functions or body.function_call not in (None, "none"):
        return invalid("functions are the older form: send tools and tool_choice.", "functions")
    if body.modalities is not None and body.modalities != ["text"]:
        return invalid('modalities must be ["text"]: no other is given.', "modalities")
    if body.top_logprobs and not body.logprobs:
        return invalid("top_logprobs asks for logprobs: send logprobs: true.", "top_logprobs")
    if isinstance(body.stop, list) and not 0 < len(body.stop) <= STOP_LIMIT:
        return invalid(f"stop must be a string or 1 to {STOP_LIMIT} strings.", "stop")
    stops = [body.stop] if isinstance(body.stop, str) else body.stop or []
    if stops and not all(0 < len(stop) <= STOP_LIMIT_CHARS for stop in stops):
        return invalid(f"A stop sequence has 1 to {STOP_LIMIT_CHARS} characters.", "stop")
    if None not in (body.max_tokens, body.max_completion_tokens) and (
        body.max_tokens != body.max_completion_tokens
    ):
        return invalid(
            "max_tokens and max_completion_tokens differ: send one of them.",
            "max_completion_tokens",
        )
    bias = body.logit_bias
    if bias and (len(bias) > LOGIT_BIAS_LIMIT or not all(map(_TOKEN_ID.fullmatch, bias))):
        return invalid(
            f"logit_bias may hold at most {LOGIT_BIAS_LIMIT} token ids as keys.", "logit_bias"
        )
    if body.reasoning_effort is not None and not _EFFORT.fullmatch(body.reasoning_effort):
        return invalid("reasoning_effort must be a word such as low.", "reasoning_effort")
    if body.metadata and len(body.metadata) > METADATA_LIMIT:
        return invalid(f"metadata may hold at most {METADATA_LIMIT} entries.", "metadata")
    return None


def _json(value: object) -> str | None:
    return orjson.dumps(value).decode() if value else None
