"""How each family of providers counts: which fields, what is inside what, how streams report.

Facts of public interfaces. A receipt keeps a convention's name: what a name means never changes;
where a provider changes its counting, a new convention gets a new name.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from ledger.meters import METERS
from ledger.usage.counts import Sum, compiled

Stream = Literal["total", "running", "deltas"]


@dataclass(frozen=True, kw_only=True)
class Convention:
    """Sums over a usage object, as `ledger.usage.counts` reads them.

    `input` holds all input, `cached` the part of it that was read from a cache and `output` all
    output with its reasoning, wherever the provider counts them. "" of `output`: there is never
    any. `roots`: where a body keeps its usage, the first that is there. `omits_zeros`: a count
    that is not there is zero. `stream`: `total`, reported once; `running`, each report a total so
    far that replaces what it names; `deltas`, reports add up.
    """

    name: str
    roots: tuple[tuple[str, ...], ...] = (("usage",),)
    input: str
    cached: str = ""
    output: str
    meters: Mapping[str, str] = field(default_factory=dict)
    tier: str = ""
    omits_zeros: bool = False
    stream: Stream = "total"

    @cached_property
    def sums(self) -> Mapping[str, Sum]:
        """The compiled sums by the count that they give."""
        texts = {"input": self.input, "cached_input": self.cached, "output": self.output}
        unknown = self.meters.keys() - METERS.keys()
        if unknown:
            raise ValueError(f"convention {self.name} counts {sorted(unknown)}: no such meter")
        return {name: compiled(text) for name, text in {**texts, **self.meters}.items() if text}


_CHAT_CACHED = (
    "prompt_tokens_details.cached_tokens | prompt_cache_hit_tokens | cached_tokens"
    " | num_cached_tokens"
)
_CHAT_METERS = {
    "cache_write_5m": "prompt_tokens_details.cache_write_tokens",
    "input_audio": "prompt_tokens_details.audio_tokens",
    "input_image": "prompt_tokens_details.image_tokens",
    "input_video": "prompt_tokens_details.video_tokens",
    "reasoning": "completion_tokens_details.reasoning_tokens | reasoning_tokens",
    "output_audio": "completion_tokens_details.audio_tokens",
    "output_image": "completion_tokens_details.image_tokens",
}


def _gemini(name: str, kind: str) -> dict[str, str]:
    """What is of a modality: in prompt and tools without what was cached, cached, and put out."""
    cached = f"cacheTokensDetails[{kind}].tokenCount"
    return {
        f"input_{name}": (
            f"promptTokensDetails[{kind}].tokenCount | promptTokenDetails[{kind}].tokenCount"
            f" + toolUsePromptTokensDetails[{kind}].tokenCount - {cached}"
        ),
        f"cached_input_{name}": cached,
        f"output_{name}": f"candidatesTokensDetails[{kind}].tokenCount",
    }


_ALL = (
    Convention(
        name="openai-chat",
        input="prompt_tokens",
        cached=_CHAT_CACHED,
        output="completion_tokens",
        meters=_CHAT_METERS,
        tier="service_tier",
    ),
    Convention(
        name="openai-responses",
        roots=(("usage",), ("response", "usage")),
        input="input_tokens",
        cached="input_tokens_details.cached_tokens",
        output="output_tokens",
        meters={
            "cache_write_5m": "input_tokens_details.cache_write_tokens",
            "reasoning": "output_tokens_details.reasoning_tokens",
        },
        tier="service_tier",
    ),
    Convention(
        name="openai-realtime",
        roots=(("response", "usage"), ("usage",)),
        input="input_tokens",
        cached="input_token_details.cached_tokens",
        output="output_tokens",
        meters={
            "input_audio": (
                "input_token_details.audio_tokens"
                " - input_token_details.cached_tokens_details.audio_tokens"
            ),
            "input_image": (
                "input_token_details.image_tokens"
                " - input_token_details.cached_tokens_details.image_tokens"
            ),
            "cached_input_audio": "input_token_details.cached_tokens_details.audio_tokens",
            "cached_input_image": "input_token_details.cached_tokens_details.image_tokens",
            "output_audio": "output_token_details.audio_tokens",
        },
    ),
    Convention(
        name="openai-images",
        input="input_tokens",
        output="output_tokens",
        meters={
            "input_image": "input_tokens_details.image_tokens",
            "output_image": "output_tokens_details.image_tokens",
        },
    ),
    Convention(name="openai-embeddings", input="prompt_tokens", output=""),
    Convention(
        name="anthropic-messages",
        roots=(("usage",), ("message", "usage")),
        input="input_tokens + cache_creation_input_tokens + cache_read_input_tokens",
        cached="cache_read_input_tokens",
        output="output_tokens",
        meters={
            "cache_write_5m": (
                "cache_creation_input_tokens - cache_creation.ephemeral_1h_input_tokens"
            ),
            "cache_write_1h": "cache_creation.ephemeral_1h_input_tokens",
            "reasoning": "output_tokens_details.thinking_tokens",
            "web_search": "server_tool_use.web_search_requests",
        },
        tier="service_tier",
        stream="running",
    ),
    Convention(
        name="gemini",
        roots=(("usageMetadata",),),
        input="promptTokenCount + toolUsePromptTokenCount",
        cached="cachedContentTokenCount",
        output="candidatesTokenCount + thoughtsTokenCount",
        meters={
            **_gemini("audio", "AUDIO"),
            **_gemini("image", "IMAGE|DOCUMENT"),
            **_gemini("video", "VIDEO"),
            "reasoning": "thoughtsTokenCount",
        },
        tier="serviceTier",
        omits_zeros=True,
        stream="running",
    ),
    Convention(
        name="bedrock-converse",
        input=(
            "inputTokens + cacheReadInputTokens | cacheReadInputTokenCount"
            " + cacheWriteInputTokens | cacheWriteInputTokenCount"
        ),
        cached="cacheReadInputTokens | cacheReadInputTokenCount",
        output="outputTokens",
        meters={
            "cache_write_5m": (
                "cacheWriteInputTokens | cacheWriteInputTokenCount - cacheDetails[1h].inputTokens"
            ),
            "cache_write_1h": "cacheDetails[1h].inputTokens",
        },
    ),
    Convention(
        name="cohere-billed",
        roots=(("usage", "billed_units"), ("meta", "billed_units")),
        input="input_tokens",
        output="output_tokens",
        meters={"rerank_search": "search_units", "input_picture": "images"},
        omits_zeros=True,
    ),
    Convention(
        name="cohere-tokens",
        input="tokens.input_tokens",
        cached="cached_tokens",
        output="tokens.output_tokens",
    ),
    Convention(
        name="xai-chat",
        input="prompt_tokens",
        cached="prompt_tokens_details.cached_tokens | cached_prompt_text_tokens",
        output="completion_tokens + completion_tokens_details.reasoning_tokens | reasoning_tokens",
        meters={
            "input_image": "prompt_tokens_details.image_tokens",
            "reasoning": "completion_tokens_details.reasoning_tokens | reasoning_tokens",
            "output_audio": "completion_tokens_details.audio_tokens",
        },
        stream="running",
    ),
    Convention(
        name="perplexity-chat",
        input="prompt_tokens",
        output="completion_tokens + reasoning_tokens + citation_tokens",
        meters={
            "reasoning": "reasoning_tokens",
            "citation": "citation_tokens",
            "web_search": "num_search_queries",
        },
        stream="running",
    ),
    Convention(
        name="triton-generate",  # its stream's deltas are added up as they come
        roots=((),),
        input="num_input_tokens",
        output="num_output_tokens",
    ),
)

CONVENTIONS: Mapping[str, Convention] = {each.name: each for each in _ALL}


def convention_of(name: str) -> Convention:
    """The convention of a name. LookupError, with the names that there are, for another."""
    known = CONVENTIONS.get(name)
    if known is None:
        raise LookupError(f"no usage convention {name!r}; there are {', '.join(CONVENTIONS)}")
    return known
