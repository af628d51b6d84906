"""Counts against published ones, against tiktoken's own definitions, and in property (BUD-3)."""

import gzip
import hashlib
import importlib
import json
from importlib import metadata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.submission import Message
from gateway.tokenizers import (
    REVISIONS,
    TEXT_LIMIT_BYTES,
    TextTooLarge,
    UnknownRevision,
    countable,
    tokenizer,
)
from gateway.tokenizers.openai_bpe import OpenAITokenizer
from tests.shared_data import shared_data_path

KNOWN_NAMES = {
    "cl100k_base/chat-1": ("tiktoken:cl100k_base", None),
    "o200k_base/chat-1": ("tiktoken:o200k_base", None),
    "mistral-v1": ("mistral:v1", "v1"),
    "mistral-v3": ("mistral:v3", "v3"),
    "mistral-v3-tekken": ("mistral:v3_tekken_240911", "v3_tekken_240911"),
    "mistral-v7": ("mistral:v7", "v7"),
}
TOOLS_JSON = json.dumps(
    [
        {
            "type": "function",
            "function": {
                "name": "get_weather",
                "description": "Current weather",
                "parameters": {
                    "type": "object",
                    "properties": {"city": {"type": "string"}},
                    "required": ["city"],
                },
            },
        }
    ]
)


def chat(*turns):
    return [Message(role=role, content=content) for role, content in turns]


def text_of(description):
    """The text that a known count belongs to: given as it is, or by a recipe."""
    if "text" in description:
        return description["text"]
    if "words" not in description:
        return "a" * 20_000
    words, state, pieces, length = description["words"], 12345, [], 0
    while length < 100_000:
        state = (state * 1103515245 + 12345) % 2**31
        piece = words[(state >> 16) % len(words)]
        piece += ".\n" if (state >> 8) % 11 == 0 else " "
        pieces.append(piece)
        length += len(piece)
    return "".join(pieces)[:100_000]


@pytest.mark.parametrize("revision", REVISIONS)
def test_every_known_text_has_its_known_count(revision):
    known = json.loads(shared_data_path("tokenizers", "known_counts.json").read_text())
    package_name, _ = KNOWN_NAMES[revision]
    for name, description in known["texts"].items():
        text = text_of(description)
        as_bytes = text.encode("utf-8", "surrogatepass")
        assert hashlib.sha256(as_bytes).hexdigest() == description["sha256_utf8_surrogatepass"]
        expected = known["counts"][package_name][name]
        if isinstance(expected, int):  # SentencePiece raises on a lone surrogate; we replace it
            assert tokenizer(revision).count_text(text) == expected, name


@pytest.mark.parametrize("revision", [name for name, known in KNOWN_NAMES.items() if known[1]])
def test_every_known_chat_request_has_its_known_count(revision):
    known = json.loads(shared_data_path("tokenizers", "known_counts.json").read_text())
    chats = known["mistral_chat_request_counts"]
    expected = chats["counts"][KNOWN_NAMES[revision][1]]
    for name, request in chats["requests"].items():
        tools_json = None
        if isinstance(request, dict):
            definitions = [{"type": "function", "function": tool} for tool in request["tools"]]
            request, tools_json = request["messages"], json.dumps(definitions)
        assert tokenizer(revision).count_chat(chat(*request), tools_json) == expected[name], name


def test_openai_chats_count_three_for_each_message_and_three_for_the_answer():
    turns = chat(("system", "You are terse."), ("user", "Hi"))
    # system 1, "You are terse." 4, user 1, "Hi" 1: 7 tokens of text
    assert tokenizer("o200k_base/chat-1").count_chat(turns, None) == 7 + 2 * 3 + 3
    assert tokenizer("cl100k_base/chat-1").count_chat([], None) == 3


def test_mistral_counts_of_one_chat_differ_by_revision():
    turns = chat(("system", "You are terse."), ("user", "Explain token budgets in two sentences."))
    assert {name: tokenizer(name).count_chat(turns, None) for name in REVISIONS[1:4]} == {
        "mistral-v1": 24,
        "mistral-v3": 19,
        "mistral-v3-tekken": 15,
    }


def test_tool_definitions_are_counted():
    turns = chat(("user", "Weather in Paris?"))
    for revision in REVISIONS:
        without = tokenizer(revision).count_chat(turns, None)
        more = tokenizer(revision).count_chat(turns, TOOLS_JSON) - without
        assert more > 40 or (revision == "mistral-v1" and more == 0)  # v1 has no tools


@pytest.mark.parametrize("name", ["cl100k_base", "o200k_base"])
def test_the_vocabulary_is_defined_as_tiktoken_defines_it(name, tmp_path, monkeypatch):
    """tiktoken's own definition, given the rank file in its cache, cuts and ranks the same."""
    openai_public = importlib.import_module("tiktoken_ext.openai_public")
    address = f"https://openaipublic.blob.core.windows.net/encodings/{name}.tiktoken"
    packed = metadata.distribution("bpe-openai").locate_file(f"bpe_openai/data/{name}.tiktoken.gz")
    cached = tmp_path / hashlib.sha1(address.encode(), usedforsecurity=False).hexdigest()
    with open(str(packed), "rb") as rank_file:
        cached.write_bytes(gzip.decompress(rank_file.read()))
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    theirs = openai_public.ENCODING_CONSTRUCTORS[name]()
    ours = OpenAITokenizer(f"{name}/chat-1")._encoding
    assert ours._pat_str == theirs["pat_str"]
    assert ours._mergeable_ranks == theirs["mergeable_ranks"]


@pytest.mark.parametrize("revision", REVISIONS)
def test_a_lone_surrogate_counts_as_the_replacement_character(revision):
    count = tokenizer(revision).count_text
    assert count("ok \ud83d tail") == count("ok � tail")
    assert countable("\ud83d\ude00 \udc00") == "�� �"


@pytest.mark.parametrize("revision", REVISIONS)
@settings(max_examples=25)
@given(
    turns=st.lists(
        st.tuples(
            st.sampled_from(["system", "developer", "user", "assistant", "tool"]),
            st.text(st.characters(codec=None, categories=None), max_size=30),
        ),
        min_size=1,
        max_size=6,
    )
)
def test_every_chat_of_any_text_and_any_order_of_roles_has_a_count(revision, turns):
    assert tokenizer(revision).count_chat(chat(*turns), None) > 0


@pytest.mark.parametrize("revision", REVISIONS)
def test_tool_calls_of_an_assistant_are_counted_with_and_without_text(revision):
    calls_json = '[{"id":"call_1","type":"function","function":{"name":"f","arguments":"{}"}}]'
    counts = [
        tokenizer(revision).count_chat(
            [
                Message(role="user", content="hi"),
                Message(role="assistant", content=text, tool_calls_json=calls_json),
                Message(role="tool", content="sunny", tool_call_id="call_1"),
            ],
            None,
        )
        for text in ("", "I will look it up.")
    ]
    assert 20 < counts[0] < counts[1]


def test_text_over_the_limit_is_refused_by_size_and_not_quoted():
    canary = "canary"
    text = canary * (TEXT_LIMIT_BYTES // len(canary) + 1)
    for revision in REVISIONS:
        with pytest.raises(TextTooLarge) as refused:
            tokenizer(revision).count_text(text)
        assert canary not in str(refused.value)
        with pytest.raises(TextTooLarge):
            tokenizer(revision).count_chat(chat(("user", text)), None)


def test_an_unknown_revision_names_the_known_ones():
    with pytest.raises(UnknownRevision, match="known are cl100k_base/chat-1, mistral-v1"):
        tokenizer("o200k_base/chat-9")


def test_a_tokenizer_says_which_vocabulary_it_counts_with():
    identity = tokenizer("o200k_base/chat-1").identity
    assert (identity.package, identity.package_version) == (
        "bpe-openai",
        metadata.version("bpe-openai"),
    )
    assert identity.vocabulary_sha256.startswith("446a9538cb6c348e")
    assert tokenizer("o200k_base/chat-1") is tokenizer("o200k_base/chat-1")
