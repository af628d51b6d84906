"""SEC-3: no route leads the gateway to a link-local address or a cloud's metadata service."""

import asyncio

import pytest

from gateway.providers.backend_address import BadAddress, is_off_limits
from gateway.providers.guarded_addresses import addresses_of
from gateway.providers.openai_address import backend_of
from tests import policy_factories as make


@pytest.mark.parametrize(
    "host",
    [
        "169.254.169.254", "169.254.0.1", "[fe80::1]", "[fe80::1%25eth0]", "[fd00:ec2::254]",
        "[::ffff:169.254.169.254]", "100.100.100.200", "168.63.129.16", "metadata.google.internal",
        "METADATA.google.internal.", "metadata", "[::]", "224.0.0.1",
        "0.0.0.0",  # noqa: S104 - refused here, bound nowhere
        "[fd20:ce::254]", "192.0.0.192", "[::169.254.169.254]", "[::ffff:0:169.254.169.254]",
        "[64:ff9b::169.254.169.254]", "[64:ff9b:1::169.254.169.254]",
        "[64:ff9b:1:a9fe:a9:fe00::]", "[64:ff9b:1:aa:00a9:fea9:fe00:0]", "[2002:a9fe:a9fe::1]",
        "2852039166", "0xA9FEA9FE", "0251.0376.0251.0376", "169.16689662",
    ],
)  # fmt: skip
def test_an_address_off_limits_is_refused_unless_the_settings_allow_it(host):
    address = f"openai:http://{host}/v1?model=a"
    route = make.route("real-1", provider_kind="openai", address=address, capabilities=())
    with pytest.raises(BadAddress, match="link-local or metadata address"):
        backend_of(route)
    assert backend_of(route, allow_link_local=True).model == "a"


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "localhost",
        "::1",
        "10.0.0.7",
        "192.168.1.2",
        "fd12::7",
        "gpu-7.internal",
        "::ffff:10.0.0.7",
        "64:ff9b::10.0.0.7",
        "2002:a00:7::1",
        "64:ff9b:1::10.0.0.7",
    ],
)
def test_a_host_of_ones_own_is_no_business_of_this_check(host):
    assert not is_off_limits(host)


def test_a_name_is_checked_again_by_what_it_leads_to():
    assert asyncio.run(addresses_of("localhost", 80))[0] in ("127.0.0.1", "::1")
    with pytest.raises(OSError, match="link-local or metadata"):
        asyncio.run(addresses_of("169.254.169.254", 80))
    assert asyncio.run(addresses_of("169.254.169.254", 80, allow_link_local=True))
