"""Mistral's vocabularies and chat templates, as the package mistral-common holds them.

The template is applied to any chat that the API accepts, also to one that Mistral's own service
would refuse (an assistant's turn last, a system message in the middle): a count is always given.
Three things have no place in a template and are counted in a declared way: an assistant's turn
without text counts as one space; one with text and tool calls, and every tool turn or call under
v1 (which has no tools), counts as its text followed by the JSON of its calls; a tool definition
that isn't of type "function" is left out.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from typing import Any

import msgspec
from mistral_common.protocol.instruct.messages import (
    AssistantMessage,
    SystemMessage,
    ToolMessage,
    UserMessage,
)
from mistral_common.protocol.instruct.normalize import get_normalizer
from mistral_common.protocol.instruct.request import ChatCompletionRequest
from mistral_common.protocol.instruct.tool_calls import Function, FunctionCall, Tool, ToolCall
from mistral_common.tokens.tokenizers.mistral import MistralTokenizer

from gateway.submission import Message
from gateway.tokenizers.base import (
    TokenizerIdentity,
    VocabularyMismatch,
    check_size,
    countable,
)

_PACKAGE = "mistral-common"
_UNNAMED_CALL_ID = "000000000"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Vocabulary:
    file_name: str
    sha256: str
    template: str


_VOCABULARIES = {
    "mistral-v1": _Vocabulary(
        file_name="tokenizer.model.v1",
        sha256="dadfd56d766715c61d2ef780a525ab43b8e6da4de6865bda3d95fdef5e134055",
        template="v1",
    ),
    "mistral-v3": _Vocabulary(
        file_name="mistral_instruct_tokenizer_240323.model.v3",
        sha256="9addc8bdce5988448ae81b729336f43a81262160ae8da760674badab9d4c7d33",
        template="v3",
    ),
    "mistral-v3-tekken": _Vocabulary(
        file_name="tekken_240911.json",
        sha256="1948e2d48b0e7377f1bb5f1210f1ae5f984934e75713fc07e2452729b8365316",
        template="v3",
    ),
    "mistral-v7": _Vocabulary(
        file_name="mistral_instruct_tokenizer_241114.model.v7",
        sha256="1b968b8dc352f42192367337c78ccc61e1eaddc6d641a579372d4f20694beb7a",
        template="v7",
    ),
}

REVISIONS = tuple(sorted(_VOCABULARIES))


class _FunctionDefinition(msgspec.Struct):
    name: str
    description: str = ""
    parameters: dict[str, Any] = {}


class _ToolDefinition(msgspec.Struct):
    type: str = "function"
    function: _FunctionDefinition | None = None


class _CalledFunction(msgspec.Struct):
    name: str
    arguments: str = "{}"


class _CallMade(msgspec.Struct):
    function: _CalledFunction
    id: str = _UNNAMED_CALL_ID


class MistralChatTokenizer:
    """Counts with one of Mistral's vocabularies under its own template."""

    def __init__(self, revision: str) -> None:
        """Reads, checks and builds the vocabulary (0.02 s, or 0.8 s for a tekken file)."""
        vocabulary = _VOCABULARIES[revision]
        distribution = metadata.distribution(_PACKAGE)
        path = str(distribution.locate_file(f"mistral_common/data/{vocabulary.file_name}"))
        with open(path, "rb") as vocabulary_file:
            found_sha256 = hashlib.file_digest(vocabulary_file, "sha256").hexdigest()
        if found_sha256 != vocabulary.sha256:
            raise VocabularyMismatch(
                f"{vocabulary.file_name} of {_PACKAGE} {distribution.version} has sha256 "
                f"{found_sha256}, revision {revision} needs {vocabulary.sha256}; "
                f"install the locked versions"
            )
        self.identity = TokenizerIdentity(
            revision=revision,
            package=_PACKAGE,
            package_version=distribution.version,
            vocabulary_file=vocabulary.file_name,
            vocabulary_sha256=found_sha256,
            template=vocabulary.template,
        )
        self._instruct = MistralTokenizer.from_file(path).instruct_tokenizer
        version = self._instruct.tokenizer.version
        self._normalizer = get_normalizer(version, self._instruct.tokenizer.model_settings_builder)
        self._knows_tools = vocabulary.template != "v1"
        self._text_beside_calls = vocabulary.template == "v7"

    def count_text(self, text: str) -> int:
        check_size((clean := countable(text),))
        return len(self._instruct.tokenizer.encode(clean, bos=False, eos=False))

    def count_chat(self, messages: Sequence[Message], tools_json: str | None) -> int:
        check_size(
            [
                text
                for message in messages
                for text in (countable(message.content), countable(message.tool_calls_json or ""))
            ]
            + [countable(tools_json or "")]
        )
        request: ChatCompletionRequest[Any] = ChatCompletionRequest(
            messages=[self._turn(message) for message in messages],
            tools=_tools(countable(tools_json)) if tools_json and self._knows_tools else None,
        )
        normalized = self._normalizer.from_chat_completion_request(request)
        return len(self._instruct.encode_instruct(normalized).tokens)

    def _turn(self, message: Message) -> Any:
        """Returns the message as the template's own kind of turn."""
        text = countable(message.content)
        calls_json = countable(message.tool_calls_json or "")
        if message.role in ("system", "developer"):
            return SystemMessage(content=text)
        if message.role in ("tool", "function") and self._knows_tools:
            return ToolMessage(content=text, tool_call_id=message.tool_call_id or _UNNAMED_CALL_ID)
        if message.role != "assistant":
            return UserMessage(content=text)
        if calls_json and self._knows_tools and (not text or self._text_beside_calls):
            return AssistantMessage(content=text, tool_calls=_calls(calls_json))
        return AssistantMessage(content=text + calls_json or " ")


def _calls(calls_json: str) -> list[ToolCall]:
    return [
        ToolCall(
            id=call.id,
            function=FunctionCall(name=call.function.name, arguments=call.function.arguments),
        )
        for call in msgspec.json.decode(calls_json, type=list[_CallMade])
    ]


def _tools(tools_json: str) -> list[Tool]:
    return [
        Tool(
            function=Function(
                name=definition.function.name,
                description=definition.function.description,
                parameters=definition.function.parameters,
            )
        )
        for definition in msgspec.json.decode(tools_json, type=list[_ToolDefinition])
        if definition.type == "function" and definition.function is not None
    ]
