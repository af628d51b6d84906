"""PRV-1: what the address of an openai route says, and what it may not say."""

import pytest

from gateway.providers.openai_address import Backend, BadAddress, backend_of
from tests import policy_factories as make
from tests.gateway.providers.calls import route


def test_an_address_names_server_model_credential_and_what_is_declared_of_it():
    declared = route(
        "https://api.example.com/v1/", key_env="EXAMPLE_KEY", close_cancels=1, kv_tokens=180_000
    )
    assert backend_of(declared) == Backend(
        api_url="https://api.example.com/v1",
        post_url="https://api.example.com/v1/chat/completions",
        metrics_url="https://api.example.com/metrics",
        model="tiny",
        key_env="EXAMPLE_KEY",
        close_cancels=True,
        kv_tokens=180_000,
    )


def test_what_is_not_declared_is_not_assumed():
    backend = backend_of(route("http://127.0.0.1:8001/v1"))
    assert (backend.close_cancels, backend.kv_tokens, backend.key_env) == (False, None, None)


def test_a_models_name_may_have_a_slash():
    assert backend_of(route(model="meta-llama/Llama-3.1-8B")).model == "meta-llama/Llama-3.1-8B"


@pytest.mark.parametrize(
    ("address", "what"),
    [
        ("", "it is not"),
        ("sim:llama", "it is not"),
        ("openai:ftp://host/v1?model=a", "it is not"),
        ("openai:http://:8001/v1?model=a", "it is not"),
        ("openai:http://host:99999/v1?model=a", "it is not"),
        ("openai:http://[::1/v1?model=a", "it is not"),
        ("openai:http://host/v1", "names no model"),
        ("openai:http://host/v1?model=", "names no model"),
        ("openai:http://user:secret@host/v1?model=a", "holds a credential"),
        ("openai:http://host/v1?model=a#b", "after `#`"),
        ("openai:http://host/v1?model=a&model=b", "twice"),
        ("openai:http://host/v1?model=a&temperature=1", "no setting"),
        ("openai:http://host/v1?model=a&close_cancels=yes", "neither 0 nor 1"),
        ("openai:http://host/v1?model=a&kv_tokens=0", "kv_tokens"),
        ("openai:http://host/v1?model=a&kv_tokens=12345678901", "kv_tokens"),
        ("openai:http://host/v1?model=a&kv_tokens=-1", "kv_tokens"),
        ("openai:http://host/v1?model=a&key_env=sk-abc", "no name of an environment variable"),
        ("openai:http://host/v1?model=a&key_env=WEIGHBRIDGE_SECRET_KEY", "own settings"),
    ],
)
def test_an_address_that_cannot_be_used_is_refused_with_its_reason(address, what):
    with pytest.raises(BadAddress, match=what) as refused:
        backend_of(make.route("real-1", provider_kind="openai", address=address, capabilities=()))
    assert "route real-1" in str(refused.value)
    assert "sk-abc" not in str(refused.value)
    assert "secret@" not in str(refused.value)


def test_a_capability_that_a_call_does_not_carry_cannot_be_declared():
    with pytest.raises(BadAddress, match="can't carry vision"):
        backend_of(route(capabilities=("json_schema", "tools", "vision")))
    assert backend_of(route(capabilities=("json_schema", "tools", "logprobs"))).model == "tiny"
