"""A call as a chat completion request: streamed, so that a cancel works and TTFT is known. Pure."""

from typing import Any

import orjson

from gateway.providers.base import Call
from gateway.providers.openai_address import Backend
from gateway.submission import Message

SCHEMA_NAME = "answer"


def request_fields(call: Call, backend: Backend) -> dict[str, Any]:
    """Return the fields of the request's JSON object, but those that it is to be sent without."""
    asked = call.parameters
    given: dict[str, Any] = {
        "model": backend.model,
        "messages": [_message(message) for message in call.messages],
        backend.output_cap: call.max_output_tokens,
        "stream": True,
        "stream_options": {"include_usage": True},
        "temperature": asked.temperature,
        "top_p": asked.top_p,
        "presence_penalty": asked.presence_penalty,
        "frequency_penalty": asked.frequency_penalty,
        "stop": list(asked.stop) or None,
        "seed": call.seed,
        "ignore_eos": call.ignore_eos or None,
        "logit_bias": _json(asked.logit_bias_json),
        "tools": _json(call.tools_json),
        "tool_choice": _json(asked.tool_choice_json),
        "parallel_tool_calls": asked.parallel_tool_calls,
        "response_format": _response_format(call),
        "reasoning_effort": asked.reasoning_effort,
        "logprobs": asked.logprobs or None,
        "top_logprobs": asked.top_logprobs,
        "store": backend.asks == "chat" or None,
    }
    return {
        name: value
        for name, value in given.items()
        if value is not None and name not in call.without
    }


def _json(text: str | None) -> orjson.Fragment | None:
    return None if text is None else orjson.Fragment(text)


def _response_format(call: Call) -> Any:
    """Return it as it was asked for; of a schema that came without its envelope, with one."""
    if call.parameters.response_format_json is not None:
        return _json(call.parameters.response_format_json)
    if call.schema is None:
        return None
    return {"type": "json_schema", "json_schema": {"name": SCHEMA_NAME, "schema": call.schema}}


def _message(message: Message) -> dict[str, Any]:
    sent: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.tool_calls_json is not None:
        sent["tool_calls"] = orjson.Fragment(message.tool_calls_json)
    if message.tool_call_id is not None:
        sent["tool_call_id"] = message.tool_call_id
    return sent
