"""PRV-1: what the address of a kserve route says, and what it may not say."""

import pytest

from gateway.providers.backend_address import BadAddress
from gateway.providers.kserve_address import backend_of
from tests import policy_factories as make
from tests.gateway.providers.calls import kserve_route


def test_an_address_names_server_model_version_and_what_is_declared_of_it():
    backend = backend_of(
        kserve_route(
            "https://models.example.com/prefix/", model="meta-llama/Llama", version="3",
            counts="totals", key_env="EXAMPLE_KEY", close_cancels=1, kv_tokens=5,
        )
    )  # fmt: skip
    base = "https://models.example.com/prefix/v2/models/meta-llama%2FLlama/versions/3"
    assert (backend.model_url, backend.post_url) == (base, f"{base}/generate_stream")
    assert backend.metrics_url == "https://models.example.com/metrics"
    assert (backend.version, backend.counts, backend.template) == ("3", "totals", "plain")
    assert (backend.key_env, backend.close_cancels, backend.kv_tokens) == ("EXAMPLE_KEY", True, 5)


def test_what_is_not_declared_is_not_assumed():
    backend = backend_of(kserve_route())
    assert (backend.version, backend.counts, backend.streams) == (None, None, True)
    assert (backend.close_cancels, backend.kv_tokens, backend.key_env) == (False, None, None)


def test_metrics_can_have_a_port_of_their_own():
    backend = backend_of(kserve_route("http://[::1]:8000", kv_tokens=5, metrics_port=8002))
    assert backend.metrics_url == "http://[::1]:8002/metrics"


def test_a_version_can_be_the_id_of_the_models_identity():
    backend = backend_of(kserve_route(version="@identity"))
    assert backend.version == "identity-of-kserve-1"


@pytest.mark.parametrize(
    ("address", "what"),
    [
        ("openai:http://host?model=a", "it is not `kserve:"),
        ("kserve:grpc://host?model=a", "it is not `kserve:"),
        ("kserve:http://host", "names no model"),
        ("kserve:http://user:secret@host?model=a", "holds a credential"),
        ("kserve:http://169.254.169.254?model=a", "link-local or metadata"),
        ("kserve:http://host?model=a&version=..", "version is empty"),
        ("kserve:http://host?model=a&counts=yes", "counts is none of deltas, totals"),
        ("kserve:http://host?model=a&metrics_port=0", "metrics_port is no port"),
        ("kserve:http://host?model=a&metrics_port=65536", "metrics_port is no port"),
        ("kserve:http://host?model=a&metrics_port=80.1", "metrics_port is no port"),
        ("kserve:http://host?model=a&stream=no", "neither 0 nor 1"),
        ("kserve:http://host?model=a&template=llama", "template is none of plain, none"),
    ],
)
def test_an_address_that_cannot_be_used_is_refused_with_its_reason(address, what):
    with pytest.raises(BadAddress, match=what) as refused:
        backend_of(make.route("k-1", provider_kind="kserve", address=address, capabilities=()))
    assert "route k-1" in str(refused.value)
    assert "secret@" not in str(refused.value)


@pytest.mark.parametrize("capability", ["json_schema", "logprobs", "tools", "vision"])
def test_prv_4_what_the_protocol_has_no_place_for_cannot_be_declared(capability):
    with pytest.raises(BadAddress, match=f"can't carry {capability}"):
        backend_of(kserve_route(capabilities=(capability, "long_context")))
